// Children: start one, learn of its death through a pidfd, signal it without racing its pid's next owner.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

struct SpawnOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // "NAME=value", over our own
  int control = -1;                      // becomes descriptor 3; stdin, stdout and stderr are ours; everything else is closed
};

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;  // readable when it is dead
};

/// fork and exec. Errors: kNotFound, kPermissionDenied (the program), kInternal.
Result<Child> spawn(const SpawnOptions& options);

/// How the process behind a readable pidfd ended, as waitpid() says it, reaping it when it is our child; nothing when another
/// process reaps it.
std::optional<int> reap(const UniqueFd& pidfd);
/// Reaps children whose parent died before it could (this process is the subreaper).
void reap_orphans();
/// "killed by signal 9", "exited with 1".
std::string describe_wait_status(int status);
void send_signal(const UniqueFd& pidfd, int signal);
/// To one thread of a living process, so that its handler runs on that thread; to any thread where `thread` is none of its.
void send_signal_to_thread(const UniqueFd& pidfd, pid_t pid, pid_t thread, int signal);

}  // namespace shoal::supervisor
