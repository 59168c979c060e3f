// Closes descriptors, reaps children and ends process groups on other threads, because all of it can take long. Of a descriptor
// that a stranger sent, the stranger decides how long: for the linger time of a socket (SO_LINGER), or until a file system (FUSE,
// NFS) answers. Of shared memory it takes a second for some GiB, if nobody else has it. A process group is found by a look at all
// processes of the machine.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_set>

#include "shm/base/unique_fd.hpp"

namespace shoal::supervisor {

/// Never waits for a close(), nor for the kernel to forget or list processes. If no thread can start, the descriptors stay open
/// until a later call can start one. What strangers sent has threads of its own, so that it delays nothing else, and of these one
/// user keeps only some busy.
///   Threads  thread-safe
class Closer {
 public:
  /// Threads at the same time: for descriptors of our own; for those that strangers sent; and for those of one user of these. One
  /// more starts for a user that has none, and when kMostQueuedPerThread wait for each that a user has. One reaps children: while
  /// it waits, it may use a processor (reap() in spawn.hpp). One ends process groups.
  static constexpr std::size_t kMostThreads = 8, kMostThreadsForSent = 32, kMostThreadsPerSender = 4, kMostQueuedPerThread = 32;
  /// Threads for what strangers sent. Those beyond kMostThreadsForSent start only for users that have none.
  static constexpr std::size_t kMostThreadsOfSenders = 256;
  /// While more descriptors of one user wait to be closed, their owner takes no more from that user (is_late()).
  static constexpr std::size_t kMostSent = 256;
  /// Stands for this process and its children.
  static constexpr uid_t kChild = ~uid_t{0};

  /// Starts the first threads. All threads block all signals but those of faults.
  ///   most  of all users together; 0 = an eighth of RLIMIT_NOFILE, at least 2 * kMostSent
  explicit Closer(std::size_t most = 0);
  /// Does not wait. The threads still close what they have been given, unless the process ends first.
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  /// Closes a descriptor that a process of that user sent. Its linger time is switched off before. If all threads of that user
  /// are stuck, the descriptor stays open until one of them goes on.
  void close_sent(UniqueFd stranger, uid_t sender);
  /// Closes a descriptor of which is known that close() ends by itself.
  void close_own(UniqueFd fd);
  /// Reaps the process of a pidfd, see reap() in spawn.hpp.
  void reap_child(pid_t pid, UniqueFd pidfd);
  /// Whether it has been told so, and has not done it.
  bool is_reaping(pid_t pid) const;
  /// Kills the process group of a child, except that child and `spared`: see kill_group_except(). Tells `killed` how many, on
  /// that thread, before ends_groups() is false again. If no thread can start, it does so itself.
  void end_group(pid_t leader, std::unordered_set<pid_t> spared, std::function<void(std::size_t)> killed);
  /// Whether any group is being ended. As long as it is, nobody may reap the leader nor those that are spared.
  bool ends_groups() const;
  /// Returns when no group is being ended. Call it before the process ends, because nobody ends the rest of a group then.
  void finish_groups();
  /// Ends the connection of a unix socket of our own at once, and closes the socket. The descriptors that wait in it are closed
  /// as close_sent() does. While more than kMostSent of that user wait, a socket in which some are is closed later, and none is
  /// taken out of it.
  void hang_up(UniqueFd socket, uid_t sender);
  /// Whether more than kMostSent descriptors of that user, or more than most() of all users, wait to be closed or are being
  /// closed. The user decides how long that takes, and it must not keep others from attaching.
  bool is_late(uid_t sender) const;
  /// Whether more than most() of all users do.
  bool is_full() const;
  std::size_t most() const { return most_; }
  /// Whether any waits to be closed. Takes no lock.
  bool holds_sent() const;
  /// Whether the calling thread is one that closes what a Closer was given.
  static bool is_its_thread();

 private:
  struct Threads;
  const std::shared_ptr<Threads> own_, sent_, children_, groups_;  // the threads outlive this
  std::size_t most_;
};

}  // namespace shoal::supervisor
