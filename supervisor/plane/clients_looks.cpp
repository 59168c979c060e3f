// Clients: looks at arenas, to see what of them is allocated.
#include <algorithm>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "supervisor/plane/clients.hpp"

namespace shoal::supervisor {
namespace {

// So many pages of arenas may be looked at: 4 GiB per second of one process, and 8 GiB of all. Looking takes 110 to 135 ns per
// page (EPYC, in a virtual machine), so that all looks together take about a quarter of the loop's time. A client that attaches
// anew, because the daemon has restarted, has all of its arena looked at.
constexpr int kPagesPerSecond = 1 << 20;
constexpr std::uint64_t kPagesPerLook = 128;  // what a look costs besides: some 15 us
// A look that takes longer counts as so many pages as could have been looked at. Its client can delay it by a lock of the kernel.
constexpr std::uint64_t kNsPerPage = 120, kLongestLookNs = 60'000'000'000;
// A look goes beyond what is named, up to twice what is known, so that a client whose requests name ever higher ranges causes a
// few looks and not one per request.
constexpr std::uint64_t kLeastAhead = 1 << 20, kMostAhead = 64 << 20;

}  // namespace

Status Clients::check_allocated(Client& client, std::uint64_t input_end, std::uint64_t output_end) {
  if (input_end > client.input_allocated)
    SHOAL_RETURN_IF_ERROR(look_at_arena(client, client.input, "input", client.input_bytes, input_end, client.input_allocated));
  if (output_end > client.output_allocated)
    SHOAL_RETURN_IF_ERROR(
        look_at_arena(client, client.output, "output", client.output_bytes, output_end, client.output_allocated));
  return {};
}

// A worker that touches a page which is not allocated allocates it, at the expense of the daemon's memory group. Holes cannot
// come back into an input arena, because its seal forbids to punch them. In an output arena its client can punch some afterwards.
Status Clients::look_at_arena(Client& client, const UniqueFd& arena, std::string_view name, std::uint64_t size, std::uint64_t end,
                              std::uint64_t& allocated) {
  const std::uint64_t now_ns = clock_.now_ns();
  ClientProcess& process = *client.process;
  if (process.arena_looks.next_ns() > now_ns || !looks_.allows(process.look_share, now_ns)) {
    return overloaded(
        "the arenas of this process, or of all, have grown too often, or by too much, for the daemon to look at the {} arena now",
        name);
  }
  const std::uint64_t ahead = allocated + std::clamp(allocated, kLeastAhead, kMostAhead);
  const std::uint64_t most = std::max(end, ahead);
  const std::uint64_t cost_before = holes_.cost();
  const auto found = holes_.allocated_end(arena, allocated, align_up(std::min(size, most), kPageBytes));
  const std::uint64_t took_ns = std::min(clock_.now_ns() - now_ns, kLongestLookNs);
  const std::uint64_t cost = std::max(holes_.cost() - cost_before, took_ns / kNsPerPage) + kPagesPerLook;
  look_cost_ += cost;
  process.arena_looks.charge(cost, kPagesPerSecond, now_ns);
  looks_.charge(process.look_share, cost, now_ns);
  if (!found.ok()) return found.status().with_context(format("{} arena", name));
  allocated_arena_bytes_ += found->end - allocated;
  allocated = found->end;
  if (found->end >= end) return {};
  if (found->more_is_swapped) return overloaded("parts of the {} arena are swapped out, and a few were read in: try again", name);
  return invalid_argument(
      "the {} arena is not allocated up to {}, the end of what the request names: byte {} lies in a hole, or was allocated and "
      "never written",
      name, end, found->end);
}

std::uint64_t Clients::look_wait_ms(const Client& client) {
  const std::uint64_t now_ns = clock_.now_ns();
  const std::uint64_t of_all_ms = looks_.allows(client.process->look_share, now_ns) ? 1 : looks_.wait_ms(now_ns);
  return std::max(client.process->arena_looks.wait_ms(now_ns), of_all_ms);
}

}  // namespace shoal::supervisor
