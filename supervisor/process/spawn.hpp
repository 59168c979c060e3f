// Child processes: start one, notice its death by a pidfd, and signal it safely, although pids are reused.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

struct SpawnOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // "NAME=value", over our own
  int control = -1;                      // becomes descriptor 3
};

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;  // becomes readable when the child is dead
};

/// fork and exec. The child leads a process group of its own and is killed when this process ends. Its descriptor 0 is /dev/null,
/// 1 and 2 are ours, and it has no others but `control`: none of ours even before execve(). Takes as long however much memory
/// this process has, and does not wait for execve(), which may wait for a file system. Errors: kNotFound, kPermissionDenied (the
/// program), kInternal.
///   Threads  thread-bound
Result<Child> spawn(const SpawnOptions& options);
/// Starts the first thread that forks, which the first spawn() does otherwise: it closes what strangers have sent before.
/// Errors: kInternal.
Status start_spawner();

/// How the process of a readable pidfd ended, as waitpid() says; nothing if it is not our child. It stays a zombie until
/// reap_children().
std::optional<int> exit_status(const UniqueFd& pidfd);
/// Gives children that have ended to `reap`, with a pidfd, at most kMostReaped. Orphans are among them: a subreaper becomes the
/// parent of its descendants' orphans. Left alone is a child that another one reaps: one that is watched, because its watcher
/// must learn how it ended, and may have to kill its process group first; and one that `reap` was given and has not reaped yet.
/// Returns false if more may be left: call it again later.
inline constexpr int kMostReaped = 256;
bool reap_children(const std::function<bool(pid_t)>& is_anothers, const std::function<void(pid_t, UniqueFd)>& reap);
/// Reaps the process of a pidfd if it is a child of ours that has ended. That may take seconds: the kernel (6.18) waits for the
/// last thread of the dead process to leave /proc, and a niced thread may not get a processor for so long.
void reap(const UniqueFd& pidfd);
/// "killed by signal 9", "exited with 1".
std::string describe_wait_status(int status);
void send_signal(const UniqueFd& pidfd, int signal);
/// Kills the process group that a child leads. Does nothing if the child was reaped: the group's number may be another's then.
void kill_group(const Child& leader);
/// The same, except the leader and those that are spared. Kills these, too, if the others fork faster than they can be listed.
/// Returns how many were killed. Reads all of /proc, which takes 10 ms for each 1000 processes of this machine, so the event loop
/// leaves it to Closer::end_group(). Until it returns, nobody may reap the leader nor one that is spared: their numbers may be
/// another's then. Does nothing if the leader was reaped before.
///   Threads  thread-safe
std::size_t kill_group_except(pid_t leader, const std::unordered_set<pid_t>& spared);
/// Signals one thread of a living process, so that the handler runs on that thread. If `thread` is not one of its threads, any
/// thread gets the signal.
void send_signal_to_thread(const UniqueFd& pidfd, pid_t pid, pid_t thread, int signal);

}  // namespace shoal::supervisor
