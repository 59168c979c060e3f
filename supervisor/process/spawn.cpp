#include "supervisor/process/spawn.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_set>

#include "shm/base/errors.hpp"
#include "shm/base/wait_status.hpp"

namespace shoal::supervisor {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& ours) {
  std::vector<std::string> merged = ours;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool overridden = std::any_of(ours.begin(), ours.end(), [&](const std::string& own) { return own.starts_with(name); });
    if (!overridden) merged.emplace_back(text);
  }
  return merged;
}

// The child of a process with threads: only async-signal-safe calls.
[[noreturn]] void run_child(const char* program, char** arguments, char** environment, int control, pid_t parent) {
  // A child that loads a model does not look at its control socket for a long time. So it is killed when our thread ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  // A signal to the child's process group must not reach us. But that group is in the background of our terminal. There, SIGTTIN
  // or SIGTTOU would stop the child when it reads or writes. Signals that are ignored stay ignored after execve().
  ::setpgid(0, 0);
  ::signal(SIGTTIN, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (control == 3) {
    ::fcntl(3, F_SETFD, 0);
  } else {
    ::dup2(control, 3);
  }
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing > 0) {
    ::dup2(nothing, 0);
    ::close(nothing);
  }
  ::execve(program, arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<Child> spawn(const SpawnOptions& options) {
  const std::string program = options.program.string();
  if (::access(program.c_str(), X_OK) != 0) return status_from_errno("start", program, errno);
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = merged_environment(options.environment);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return status_from_errno("fork for", program, errno);
  if (pid == 0)
    run_child(program.c_str(), const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), options.control, parent);
  // This is no race: the kernel does not reuse the pid before we reap the child.
  Child child{pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  if (!child.pidfd) {
    const Status failure = status_from_errno("open a pidfd of", program, errno);
    ::kill(pid, SIGKILL);  // reap_children() finds it: its execve() may be waiting for a file system that is dead
    return failure;
  }
  return child;
}

std::optional<int> exit_status(const UniqueFd& pidfd) {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  return wait_status_of(info);
}

bool reap_children(const std::function<bool(pid_t)>& is_watched, const std::function<void(UniqueFd)>& reap) {
  pid_t last = 0;
  for (int reaped = 0; reaped < kMostReaped; ++reaped) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return true;
    // The kernel does not tell who comes after one that is watched, or is being reaped.
    if (ended.si_pid == last || is_watched(ended.si_pid)) return false;
    last = ended.si_pid;
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, last, 0)));
    if (!pidfd) return false;
    reap(std::move(pidfd));
  }
  return false;
}

void reap(const UniqueFd& pidfd) {
  siginfo_t ended{};
  ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &ended, WEXITED | WNOHANG);
}

std::string describe_wait_status(int status) {
  return WIFSIGNALED(status) ? format("killed by signal {}", WTERMSIG(status)) : format("exited with {}", WEXITSTATUS(status));
}

void send_signal(const UniqueFd& pidfd, int signal) { ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0); }

void kill_group(const Child& leader) {
  if (::syscall(SYS_pidfd_send_signal, leader.pidfd.get(), 0, nullptr, 0) == 0) ::kill(-leader.pid, SIGKILL);
}

std::size_t kill_group_except(const Child& leader, const std::function<bool(pid_t)>& is_spared) {
  constexpr int kMostRounds = 8;
  if (::syscall(SYS_pidfd_send_signal, leader.pidfd.get(), 0, nullptr, 0) != 0) return 0;
  std::unordered_set<pid_t> killed;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::size_t before = killed.size();
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
    while (const dirent* entry = processes ? ::readdir(processes.get()) : nullptr) {
      const pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0 || pid == leader.pid || ::getpgid(pid) != leader.pid || is_spared(pid) || killed.contains(pid)) continue;
      const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      pollfd death{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
      if (!pidfd || ::getpgid(pid) != leader.pid || ::poll(&death, 1, 0) != 0) continue;  // it has ended
      send_signal(pidfd, SIGKILL);
      killed.insert(pid);
    }
    if (killed.size() == before) return killed.size();
  }
  kill_group(leader);
  return killed.size();
}

void send_signal_to_thread(const UniqueFd& pidfd, pid_t pid, pid_t thread, int signal) {
  // Kernels before 6.9 have no pidfds of threads, so the thread is named by its number. The process is alive here. It would have
  // to die, be reaped, and have its pid and this thread's number used again before the next line.
  pollfd death{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&death, 1, 0) != 0) return;
  if (thread <= 0 || ::syscall(SYS_tgkill, pid, thread, signal) != 0) send_signal(pidfd, signal);
}

}  // namespace shoal::supervisor
