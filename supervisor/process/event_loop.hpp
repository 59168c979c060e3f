// Descriptors to wait for, behind one epoll descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// Calls a handler when its descriptor is readable or hung up. Handlers may watch and forget any descriptor, their own included.
///   Threads  thread-bound
class EventLoop {
 public:
  using Handler = std::function<void()>;
  EventLoop();

  int fd() const { return epoll_.get(); }
  void watch(int fd, Handler handler);
  /// Before the descriptor is closed. One that is not watched is no error.
  void forget(int fd);
  /// Calls the handlers of what is ready now; never waits.
  void run_ready();

 private:
  struct Watched {
    std::uint32_t generation;
    std::shared_ptr<Handler> handler;
  };
  UniqueFd epoll_;
  std::unordered_map<int, Watched> watched_;
  std::uint32_t generation_ = 0;
};

}  // namespace shoal::supervisor
