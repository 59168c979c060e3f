#include "worker/serve/client_arenas.hpp"

#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::worker {

namespace {

Result<std::shared_ptr<ClientArenas>> map_arenas(const std::vector<UniqueFd>& fds) {
  if (fds.size() != 2) return invalid_argument("{} descriptors (wants input and output arena)", fds.size());
  SHOAL_ASSIGN_OR_RETURN(Segment input, Segment::map(fds[0], Segment::Access::kReadOnly));
  SHOAL_ASSIGN_OR_RETURN(Segment output, Segment::map(fds[1], Segment::Access::kReadWrite));
  return std::make_shared<ClientArenas>(ClientArenas{std::move(input), std::move(output)});
}

}  // namespace

Status ArenaRegistry::attach(std::uint64_t client_id, const std::vector<UniqueFd>& fds) {
  auto mapped = map_arenas(fds);
  if (!mapped.ok()) mapped = mapped.status().with_context(format("attach client {}", client_id));
  const Status status = mapped.status();
  const MutexLock lock(mutex_);
  const auto [place, is_new] = clients_.try_emplace(client_id, std::move(mapped));
  if (!is_new) std::swap(place->second, mapped);  // the older one is destroyed after the lock is released, as in detach()
  attached_.notify_all();
  return status;
}

void ArenaRegistry::detach(std::uint64_t client_id) {
  decltype(clients_)::node_type dropped;  // destroyed after the lock is released, because unmapping is slow
  const MutexLock lock(mutex_);
  dropped = clients_.extract(client_id);
}

Result<std::shared_ptr<ClientArenas>> ArenaRegistry::find(std::uint64_t client_id, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  while (!clients_.contains(client_id) && attached_.wait_until(mutex_, until)) {
  }
  const auto found = clients_.find(client_id);
  if (found != clients_.end()) return found->second;
  return internal_error("the arenas of client {} did not come within {} ms", client_id, limit.count());
}

}  // namespace shoal::worker
