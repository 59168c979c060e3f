#include "worker/serve/client_arenas.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::worker {

namespace {

// While munmap() takes the pages out of a large mapping, no thread of the process can map anything, and with older kernels
// (before 6.4) none can touch a page for the first time. So the pages are taken out before, in parts.
void give_pages_back(std::span<const std::byte> mapping) {
  constexpr std::size_t kPartBytes = std::size_t{16} << 20;
  for (std::size_t at = 0; at < mapping.size(); at += kPartBytes) {
    const auto part = mapping.subspan(at, std::min(kPartBytes, mapping.size() - at));
    ::madvise(const_cast<std::byte*>(part.data()), part.size(), MADV_DONTNEED);
  }
}

}  // namespace

ArenaRegistry::~ArenaRegistry() {
  decltype(clients_) left;
  {
    const MutexLock lock(mutex_);
    left.swap(clients_);
  }
  left.clear();
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    dropped_one_.notify_one();
  }
  if (unmapper_.joinable()) unmapper_.join();
}

Result<std::shared_ptr<ClientArenas>> ArenaRegistry::map_arenas(std::uint64_t client_id, const std::vector<UniqueFd>& fds) {
  const auto map = [&]() -> Result<std::shared_ptr<ClientArenas>> {
    if (fds.size() != 2) return invalid_argument("{} descriptors (wants input and output arena)", fds.size());
    SHOAL_ASSIGN_OR_RETURN(Segment input, Segment::map(fds[0], Segment::Access::kReadOnly));
    SHOAL_ASSIGN_OR_RETURN(Segment output, Segment::map(fds[1], Segment::Access::kReadWrite));
    auto arenas = std::make_unique<ClientArenas>(ClientArenas{std::move(input), std::move(output)});
    return std::shared_ptr<ClientArenas>(arenas.release(), [this](ClientArenas* dropped) { drop(dropped); });
  };
  auto mapped = map();
  return mapped.ok() ? std::move(mapped) : mapped.status().with_context(format("attach client {}", client_id));
}

// Nobody has a reference to them any more. Without the thread they are unmapped here.
void ArenaRegistry::drop(ClientArenas* arenas) {
  std::unique_ptr<ClientArenas> dropped(arenas);
  const MutexLock lock(mutex_);
  if (!has_unmapper_) return;
  dropped->next_dropped = std::move(dropped_);
  dropped_ = std::move(dropped);
  dropped_one_.notify_one();
}

// Not before the first client attaches: the sandbox and the limit of the memory must be in force. If it cannot start, the next
// call tries again.
void ArenaRegistry::start_unmapper() {
  if (unmapper_.joinable()) return;
  try {
    unmapper_ = std::thread([this] { unmap_dropped(); });
  } catch (const std::system_error&) {
    return;
  }
  const MutexLock lock(mutex_);
  has_unmapper_ = true;
}

void ArenaRegistry::unmap_dropped() {
  ::prctl(PR_SET_NAME, wire::kUnmapperThread);
  std::unique_ptr<ClientArenas> dropped;
  mutex_.lock();
  while (dropped_ || !is_stopping_) {
    if (!dropped_) {
      dropped_one_.wait(mutex_);
      continue;
    }
    dropped = std::move(dropped_);
    dropped_ = std::move(dropped->next_dropped);
    mutex_.unlock();
    give_pages_back(dropped->input.bytes());
    give_pages_back(dropped->output.bytes());
    dropped.reset();
    mutex_.lock();
  }
  mutex_.unlock();
}

Status ArenaRegistry::attach(std::uint64_t client_id, const std::vector<UniqueFd>& fds) {
  Client client{map_arenas(client_id, fds)};
  Status status = client.arenas.status();
  if (status.code() == StatusCode::kFailedPrecondition) {
    auto copies = std::make_shared<std::vector<UniqueFd>>();
    for (const UniqueFd& fd : fds) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(fd.get()));
      copies->push_back(std::move(copy));
    }
    client.unmapped = std::move(copies);
  }
  {
    const MutexLock lock(mutex_);
    // This may throw. The arenas are not moved before: if they were destroyed here, drop() would wait for the lock for ever.
    const auto place = clients_.try_emplace(client_id, Client{std::shared_ptr<ClientArenas>()}).first;
    std::swap(place->second, client);  // an older one is destroyed after the lock is released, as in detach()
    attached_.notify_all();
  }
  start_unmapper();  // last, because the first answer of a new worker waits for what comes before
  return status;
}

void ArenaRegistry::detach(std::uint64_t client_id) {
  decltype(clients_)::node_type dropped;  // destroyed after the lock is released, because unmapping is slow
  const MutexLock lock(mutex_);
  dropped = clients_.extract(client_id);
}

std::optional<ArenaRegistry::Client> ArenaRegistry::look_up(std::uint64_t client_id) {
  const MutexLock lock(mutex_);
  const auto found = clients_.find(client_id);
  if (found == clients_.end()) return std::nullopt;
  return found->second;
}

// Not under the lock: to map takes a while, and arenas that nobody keeps are dropped. Of two lanes that try, the first counts.
Result<std::shared_ptr<ClientArenas>> ArenaRegistry::try_again(std::uint64_t client_id, Client client) {
  auto mapped = map_arenas(client_id, *client.unmapped);
  if (!mapped.ok()) return mapped;
  Client now{mapped};
  const MutexLock lock(mutex_);
  const auto found = clients_.find(client_id);
  if (found != clients_.end() && found->second.unmapped == client.unmapped) std::swap(found->second, now);
  return mapped;
}

Result<std::shared_ptr<ClientArenas>> ArenaRegistry::find(std::uint64_t client_id, std::chrono::milliseconds limit,
                                                          const std::function<void()>& before_wait) {
  auto known = look_up(client_id);
  if (!known) {
    before_wait();
    const auto until = std::chrono::steady_clock::now() + limit;
    const MutexLock lock(mutex_);
    while (!clients_.contains(client_id) && attached_.wait_until(mutex_, until)) {
    }
    const auto found = clients_.find(client_id);
    if (found == clients_.end())
      return internal_error("the arenas of client {} did not come within {} ms", client_id, limit.count());
    known = found->second;
  }
  if (known->unmapped) return try_again(client_id, *std::move(known));
  return std::move(known->arenas);
}

}  // namespace shoal::worker
