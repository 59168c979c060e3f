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
#include <cstdint>
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

/// What a child becomes. Belongs to the thread that forks until execve() has read it.
struct Birth {
  std::uint64_t number = 0;                         // 1, 2, ...
  std::vector<std::string> arguments, environment;  // the first argument is the program
};

/// What came of a birth. Number 0 is the start of the first thread.
struct Answer {
  std::uint64_t number = 0;
  pid_t pid = -1;
  int error = 0;
};

constexpr int kLastSignal = 64;
constexpr std::size_t kSignalSetBytes = 8;  // the kernel's; glibc's has more

/// The beginning of the kernel's struct sigaction, and room for the rest: flags, restorer and mask.
struct SignalAction {
  void (*handler)(int) = SIG_DFL;
  std::uint64_t rest[3] = {};
};

void set_signal_handler(int signal, void (*handler)(int)) {
  const SignalAction action{.handler = handler};
  ::syscall(SYS_rt_sigaction, signal, &action, nullptr, kSignalSetBytes);
}

bool is_ignored(int signal) {
  SignalAction action;
  return ::syscall(SYS_rt_sigaction, signal, nullptr, &action, kSignalSetBytes) == 0 && action.handler == SIG_IGN;
}

// The child of vfork(): it runs in our memory, and its thread waits, until execve(). So it writes only to its own frames (and to
// errno, which is that thread's), and asks the system directly: sanitizers note in our memory what libc's functions do.
[[noreturn, gnu::noinline]] void run_child(const Birth& birth, char** arguments, char** environment, int control, int socket,
                                           pid_t parent) {
  // A child that loads a model does not look at its control socket for a long time. So it is killed when our thread ends, which
  // ends with its process.
  ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::syscall(SYS_getppid) != parent) ::syscall(SYS_exit_group, 127);
  // The event loop goes on. It does not wait for execve(), which may wait for a file system.
  const Answer born{.number = birth.number, .pid = static_cast<pid_t>(::syscall(SYS_getpid))};
  ::syscall(SYS_sendto, socket, &born, sizeof born, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  // A signal to the child's process group must not reach us. But that group is in the background of our terminal. There, SIGTTIN
  // or SIGTTOU would stop the child when it reads or writes. Signals that are ignored stay ignored after execve().
  ::syscall(SYS_setpgid, 0, 0);
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    if (signal == SIGPIPE || !is_ignored(signal)) set_signal_handler(signal, SIG_DFL);
  }
  set_signal_handler(SIGTTIN, SIG_IGN);
  set_signal_handler(SIGTTOU, SIG_IGN);
  // None of our handlers can run in the child any more.
  const std::uint64_t none = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kSignalSetBytes);
  if (control == 3) {
    ::syscall(SYS_fcntl, 3, F_SETFD, 0);
  } else if (control >= 0) {
    ::syscall(SYS_dup3, control, 3, 0);
  }
  ::syscall(SYS_close_range, control >= 0 ? 4U : 3U, ~0U, 0U);
  if (const long nothing = ::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY); nothing > 0) {
    ::syscall(SYS_dup3, nothing, 0, 0);
    ::syscall(SYS_close, nothing);
  }
  ::syscall(SYS_execve, arguments[0], arguments, environment);
  while (true) ::syscall(SYS_exit_group, 127);
}

// fork() would copy the page tables of all our memory: 100 ms for each GiB, and a page fault at each page that we write later.
// ThreadSanitizer makes a fork() of vfork(). All signals are blocked meanwhile, because a handler of ours must not run in the
// child. A function of its own: the child may not return from it.
[[gnu::noinline]] pid_t start_child(const Birth& birth, char** arguments, char** environment, int control, int socket,
                                    pid_t parent) {
  const std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, kSignalSetBytes);
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(birth, arguments, environment, control, socket, parent);
  const int error = errno;  // means something only if there is no child
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kSignalSetBytes);
  errno = error;
  return pid;
}

/// Threads that fork. Their table of descriptors is their own: their children have no copy of what a stranger sent to this
/// process. They would have to close that before execve(), and the stranger may decide how long it takes (Closer). A thread waits
/// for the execve() of its child, and that may wait for a file system. So one more starts when the last idle one gets work, and
/// none ever ends. The threads make their calls directly, because ThreadSanitizer takes their descriptors for ours of the same
/// numbers.
///   Threads  thread-bound
class Spawner {
 public:
  Status start() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      return status_from_errno("make a socket pair for", "the thread that forks", errno);
    ours_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);  // the threads keep their copy
    try {
      const BlockedSignals signals;  // the thread inherits them
      start_thread([this, socket = ends[1]] {
        const int error = leave_all_but(socket);
        answer(socket, {.error = error});
        if (error == 0) serve(socket);
      });
    } catch (const std::exception& error) {
      return internal_error("start the thread that forks: {}", error.what());
    }
    const int error = wait_for_answer(0).error;
    return error == 0 ? Status() : status_from_errno("give descriptors of its own to", "the thread that forks", error);
  }

  Answer give_birth(std::unique_ptr<Birth> birth, int control) {
    const std::uint64_t number = birth->number = ++last_birth_;
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
    birth_.store(birth.get(), std::memory_order_release);
    ssize_t sent = -1;
    while ((sent = ::sendmsg(ours_.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
    }
    if (sent < 0) return {.number = number, .error = errno};
    (void)birth.release();  // the thread that forks destroys it
    return wait_for_answer(number);
  }

 private:
  template <typename Run>
  void start_thread(Run run) {
    idle_.fetch_add(1);
    try {
      std::thread(run).detach();
    } catch (...) {
      idle_.fetch_sub(1);
      throw;
    }
  }

  // Passes over the second answers to births before: a child answers, and so does its thread when it has executed or ended.
  Answer wait_for_answer(std::uint64_t number) const {
    while (true) {
      Answer answer;
      const ssize_t size = ::read(ours_.get(), &answer, sizeof answer);
      if (size < 0 && errno == EINTR) continue;
      if (size != sizeof answer) return {.number = number, .error = ESRCH};  // the thread that forks has ended
      if (answer.number == number) return answer;
    }
  }

  static void answer(int socket, const Answer& answer) { ::syscall(SYS_write, socket, &answer, sizeof answer); }

  // The end of a table is left out when it is copied, so nothing in it is closed.
  static int leave_all_but(int socket) {
    if (::syscall(SYS_close_range, static_cast<unsigned>(socket) + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return errno;
    if (socket > 3) ::syscall(SYS_close_range, 3U, static_cast<unsigned>(socket) - 1, 0U);
    return 0;
  }

  void serve(int socket) {
    ::prctl(PR_SET_NAME, "shoal-spawner");
    const pid_t parent = ::getpid();
    while (true) {
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
      const std::unique_ptr<Birth> birth(birth_.exchange(nullptr, std::memory_order_acquire));
      const bool is_lost = (message.msg_flags & MSG_CTRUNC) != 0;
      answer(socket, is_lost ? Answer{.number = birth->number, .error = EMFILE} : deliver(*birth, control, socket, parent));
      if (control >= 0) ::syscall(SYS_close, control);
    }
  }

  Answer deliver(Birth& birth, int control, int socket, pid_t parent) {
    Answer result{.number = birth.number};
    const bool was_last = idle_.fetch_sub(1) == 1;
    try {
      if (was_last) start_thread([this, socket] { serve(socket); });
      std::vector<char*> arguments = pointers(birth.arguments), environment = pointers(birth.environment);
      result.pid = start_child(birth, arguments.data(), environment.data(), control, socket, parent);
      result.error = errno;
    } catch (const std::exception&) {  // the next birth would wait for the execve() of this one
      result.error = EAGAIN;
    }
    idle_.fetch_add(1);
    return result;
  }

  UniqueFd ours_;
  std::uint64_t last_birth_ = 0;
  std::atomic<Birth*> birth_ = nullptr;  // that is asked for; give_birth() releases, the thread that takes it acquires
  std::atomic<int> idle_ = 0;            // threads that wait for work, or will at once
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
  auto birth = std::make_unique<Birth>(Birth{.arguments = {program}, .environment = merged_environment(options.environment)});
  birth->arguments.insert(birth->arguments.end(), options.arguments.begin(), options.arguments.end());
  SHOAL_ASSIGN_OR_RETURN(Spawner* const forks, spawner());
  const Answer born = forks->give_birth(std::move(birth), options.control);
  if (born.pid < 0) return status_from_errno("fork for", program, born.error);
  // This is no race: the kernel does not reuse the pid before we reap the child.
  Child child{born.pid, open_pidfd(born.pid)};
  if (!child.pidfd) {
    const Status failure = status_from_errno("open a pidfd of", program, errno);
    ::kill(born.pid, SIGKILL);  // reap_children() finds it: its execve() may be waiting for a file system that is dead
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

std::size_t kill_group_except(pid_t leader, const std::unordered_set<pid_t>& spared) {
  constexpr int kMostRounds = 8;
  siginfo_t unused{};
  if (::waitid(P_PID, static_cast<id_t>(leader), &unused, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
  std::unordered_set<pid_t> killed;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::size_t before = killed.size();
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
    while (const dirent* entry = processes ? ::readdir(processes.get()) : nullptr) {
      const pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0 || pid == leader || ::getpgid(pid) != leader || spared.contains(pid) || killed.contains(pid)) continue;
      const UniqueFd pidfd = open_pidfd(pid);
      pollfd death{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
      if (!pidfd || ::getpgid(pid) != leader || ::poll(&death, 1, 0) != 0) continue;  // it has ended
      send_signal(pidfd, SIGKILL);
      killed.insert(pid);
    }
    if (killed.size() == before) return killed.size();
  }
  ::kill(-leader, SIGKILL);
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
