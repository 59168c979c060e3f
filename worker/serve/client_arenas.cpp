#include "worker/serve/client_arenas.hpp"

#include "shm/base/errors.hpp"

namespace shoal::worker {

Status ArenaRegistry::attach(std::uint64_t client_id, const std::vector<UniqueFd>& fds) {
  if (fds.size() != 2)
    return invalid_argument("attach client {}: {} descriptors (wants input and output arena)", client_id, fds.size());
  SHOAL_ASSIGN_OR_RETURN(Segment input, Segment::map(fds[0], Segment::Access::kReadOnly));
  SHOAL_ASSIGN_OR_RETURN(Segment output, Segment::map(fds[1], Segment::Access::kReadWrite));
  auto arenas = std::make_shared<ClientArenas>(ClientArenas{std::move(input), std::move(output)});
  const MutexLock lock(mutex_);
  clients_[client_id] = std::move(arenas);
  attached_.notify_all();
  return {};
}

void ArenaRegistry::detach(std::uint64_t client_id) {
  std::shared_ptr<ClientArenas> dropped;  // destroyed after the lock is open: unmapping takes its time
  const MutexLock lock(mutex_);
  if (const auto found = clients_.find(client_id); found != clients_.end()) {
    dropped = std::move(found->second);
    clients_.erase(found);
  }
}

std::shared_ptr<ClientArenas> ArenaRegistry::find(std::uint64_t client_id, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  while (!clients_.contains(client_id) && attached_.wait_until(mutex_, until)) {
  }
  const auto found = clients_.find(client_id);
  return found == clients_.end() ? nullptr : found->second;
}

}  // namespace shoal::worker
