// Descriptors to wait for, behind one epoll descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"
#include "supervisor/process/closer.hpp"

namespace shoal::supervisor {

/// Calls a handler when its descriptor is readable or hung up. Handlers may watch and forget any descriptor, their own included.
///   Threads  thread-bound
class EventLoop {
 public:
  using Handler = std::function<void()>;
  EventLoop();
  ~EventLoop();  ///< waits until the groups of end_group() are ended
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  int fd() const { return epoll_.get(); }
  /// Errors: kInternal: the kernel refuses it (a file that cannot be waited for, no memory). Then nothing is watched.
  Status watch(int fd, Handler handler);
  /// Call it before the descriptor is closed. Does nothing for a descriptor that is not watched.
  void forget(int fd);
  /// Forgets a unix socket of ours, ends its connection at once, and closes it on another thread. The peer may have sent
  /// descriptors that nobody has read, and close() of those can block. `sender`: the peer's user.
  void hang_up(UniqueFd socket, uid_t sender = Closer::kChild);
  /// Closes descriptors that a peer has sent on another thread, because close() of those can block. Leaves `fds` empty.
  void close_sent(std::vector<UniqueFd>& fds, uid_t sender);
  /// Who closes them. It says whether so many of those wait to be closed that no more should be received.
  const Closer& closer() const { return *closer_; }
  const std::shared_ptr<Closer>& shared_closer() const { return closer_; }
  /// Closes a descriptor of shared memory on another thread, because it may be the last one of some GiB.
  void close_memory(UniqueFd fd) { closer_->close_own(std::move(fd)); }
  /// Kills a process group on another thread, see Closer::end_group().
  void end_group(pid_t leader, std::unordered_set<pid_t> spared, std::function<void(std::size_t)> killed) {
    closer_->end_group(leader, std::move(spared), std::move(killed));
  }
  /// Calls the handlers of the descriptors that are ready now. Never waits.
  void run_ready();

 private:
  struct Watched {
    std::uint32_t generation;
    std::shared_ptr<Handler> handler;
  };
  UniqueFd epoll_;
  const std::shared_ptr<Closer> closer_ = std::make_shared<Closer>();
  std::unordered_map<int, Watched> watched_;
  std::uint32_t generation_ = 0;
};

}  // namespace shoal::supervisor
