// Closes descriptors on another thread, because close() can block: for the linger time of a socket (SO_LINGER), or until a file
// system (FUSE, NFS) answers. Whoever sent the descriptor decides how long.
#pragma once

#include <cstddef>
#include <memory>

#include "shm/base/unique_fd.hpp"

namespace shoal::supervisor {

/// Never waits for a close(). If no thread can start, the descriptors stay open until a later call can start one.
///   Threads  thread-safe
class Closer {
 public:
  /// Threads at the same time. One more starts when kMostQueuedPerThread descriptors wait for each of the others.
  static constexpr std::size_t kMostThreads = 8, kMostQueuedPerThread = 32;

  /// Starts the first thread. All threads block all signals.
  Closer();
  /// Does not wait. The threads still close what they have been given, unless the process ends first.
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  /// Closes a descriptor that a stranger sent. Its linger time is switched off before. If all threads are stuck, the descriptor
  /// stays open until one of them goes on: RLIMIT_NOFILE is the only bound.
  void close(UniqueFd stranger);
  /// Ends the connection of a unix socket of our own at once, and closes the socket and the descriptors that wait in it.
  void hang_up(UniqueFd socket);

 private:
  struct State;
  void push(UniqueFd fd, bool is_socket_of_ours);
  bool start_thread();
  static void serve(State& state);

  const std::shared_ptr<State> state_;  // the threads outlive this
};

}  // namespace shoal::supervisor
