#include "supervisor/process/spawn.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <unordered_set>

#include "shm/base/blocked_signals.hpp"
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

/// What a child becomes, and what came of it.
struct Birth {
  const char* program;
  char** arguments;
  char** environment;
  pid_t pid = -1;
  int error = ESRCH;  // errno of fork(); until then the thread that forks has ended
};

// The child of a process with threads: only async-signal-safe calls.
[[noreturn]] void run_child(const Birth& birth, int control, pid_t parent) {
  // A child that loads a model does not look at its control socket for a long time. So it is killed when our thread ends, which
  // ends with its process.
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
  } else if (control >= 0) {
    ::dup2(control, 3);
  }
  ::syscall(SYS_close_range, control >= 0 ? 4U : 3U, ~0U, 0U);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing > 0) {
    ::dup2(nothing, 0);
    ::close(nothing);
  }
  ::execve(birth.program, birth.arguments, birth.environment);
  ::_exit(127);
}

/// A thread that forks. Its table of descriptors is its own: its children have no copy of what a stranger sent to this process.
/// They would have to close that before execve(), and the stranger may decide how long it takes (Closer). The thread makes its
/// calls directly, because ThreadSanitizer takes its descriptors for ours of the same numbers.
///   Threads  thread-bound
class Spawner {
 public:
  Status start() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      return status_from_errno("make a socket pair for", "the thread that forks", errno);
    ours_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);  // the thread keeps its copy
    SHOAL_RETURN_IF_ERROR(start_thread(ends[1]));
    wait_for_answer();
    const int error = error_.load(std::memory_order_acquire);
    return error == 0 ? Status() : status_from_errno("give descriptors of its own to", "the thread that forks", error);
  }

  void give_birth(Birth& birth, int control) {
    char word = 0;
    iovec bytes{&word, sizeof word};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char rights[CMSG_SPACE(sizeof control)] = {};
    if (control >= 0) {
      message.msg_control = rights;
      message.msg_controllen = sizeof rights;
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      *header = {.cmsg_len = CMSG_LEN(sizeof control), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
      std::memcpy(CMSG_DATA(header), &control, sizeof control);
    }
    birth_.store(&birth, std::memory_order_release);
    ssize_t sent = -1;
    while ((sent = ::sendmsg(ours_.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
    }
    if (sent < 0) {
      birth.error = errno;
      return;
    }
    wait_for_answer();
    (void)birth_.load(std::memory_order_acquire);
  }

 private:
  Status start_thread(int socket) try {
    const BlockedSignals signals;  // the thread inherits them
    std::thread([this, socket] { serve(socket); }).detach();
    return {};
  } catch (const std::exception& error) {
    return internal_error("start the thread that forks: {}", error.what());
  }

  void wait_for_answer() const {
    char answer = 0;
    while (::read(ours_.get(), &answer, sizeof answer) < 0 && errno == EINTR) {
    }
  }

  // The end of a table is left out when it is copied, so nothing in it is closed.
  static int leave_all_but(int socket) {
    if (::syscall(SYS_close_range, static_cast<unsigned>(socket) + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return errno;
    if (socket > 3) ::syscall(SYS_close_range, 3U, static_cast<unsigned>(socket) - 1, 0U);
    return 0;
  }

  void serve(int socket) {
    ::prctl(PR_SET_NAME, "shoal-spawner");
    const pid_t parent = ::getpid();
    const char answer = 0;
    const int error = leave_all_but(socket);
    error_.store(error, std::memory_order_release);
    while (::syscall(SYS_write, socket, &answer, sizeof answer) == sizeof answer && error == 0) {
      char word = 0;
      iovec bytes{&word, sizeof word};
      alignas(cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &bytes;
      message.msg_iovlen = 1;
      message.msg_control = rights;
      message.msg_controllen = sizeof rights;
      if (::syscall(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC) != sizeof word) return;  // the process ends
      int control = -1;
      if (const cmsghdr* const header = CMSG_FIRSTHDR(&message)) std::memcpy(&control, CMSG_DATA(header), sizeof control);
      Birth* const birth = birth_.load(std::memory_order_acquire);
      const bool is_lost = (message.msg_flags & MSG_CTRUNC) != 0;
      birth->pid = is_lost ? -1 : ::fork();
      if (birth->pid == 0) run_child(*birth, control, parent);
      birth->error = is_lost ? EMFILE : errno;
      birth_.store(nullptr, std::memory_order_release);
      if (control >= 0) ::syscall(SYS_close, control);
    }
  }

  UniqueFd ours_;
  std::atomic<Birth*> birth_ = nullptr;  // that is asked for
  std::atomic<int> error_ = 0;           // why the thread has no descriptors of its own
};

// Never destroyed, because a child is killed when the thread ends. A process that is a fork of another has one of its own.
Result<Spawner*> spawner() {
  static Spawner* current = nullptr;
  static pid_t process = -1;
  if (process != ::getpid()) {
    auto made = std::make_unique<Spawner>();
    const Status started = made->start();
    current = made.release();  // a thread may use it
    SHOAL_RETURN_IF_ERROR(started);
    process = ::getpid();
  }
  return current;
}

}  // namespace

Status start_spawner() { return spawner().status(); }

Result<Child> spawn(const SpawnOptions& options) {
  const std::string program = options.program.string();
  if (::access(program.c_str(), X_OK) != 0) return status_from_errno("start", program, errno);
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = merged_environment(options.environment);
  std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  Birth birth{.program = program.c_str(), .arguments = argv.data(), .environment = envp.data()};
  SHOAL_ASSIGN_OR_RETURN(Spawner* const forks, spawner());
  forks->give_birth(birth, options.control);
  if (birth.pid < 0) return status_from_errno("fork for", program, birth.error);
  // This is no race: the kernel does not reuse the pid before we reap the child.
  Child child{birth.pid, open_pidfd(birth.pid)};
  if (!child.pidfd) {
    const Status failure = status_from_errno("open a pidfd of", program, errno);
    ::kill(birth.pid, SIGKILL);  // reap_children() finds it: its execve() may be waiting for a file system that is dead
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

bool reap_children(const std::function<bool(pid_t)>& is_anothers, const std::function<void(pid_t, UniqueFd)>& reap) {
  for (int reaped = 0; reaped < kMostReaped; ++reaped) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return true;
    if (is_anothers(ended.si_pid)) return false;  // the kernel does not tell who comes after it
    UniqueFd pidfd = open_pidfd(ended.si_pid);
    if (!pidfd) return false;
    reap(ended.si_pid, std::move(pidfd));
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
      const UniqueFd pidfd = open_pidfd(pid);
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
