#include "worker/zygote/zygote.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "shm/base/cache_directory.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/wait_status.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/engine/thread_settings.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/tuning.hpp"
#include "worker/serve/sandbox.hpp"
#include "worker/serve/worker.hpp"
#include "worker/zygote/find_files.hpp"
#include "worker/zygote/golden.hpp"
#include "worker/zygote/load_message.hpp"

namespace shoal::worker {
namespace {

using wire::ControlKind;
using wire::ControlMessage;

constexpr int kMappedBytes = 128 << 10;  // glibc's default: blocks of this size are mapped, and go back when they are freed
constexpr std::string_view kZygoteMode = "--zygote", kFindMode = "--find";

/// After a load, which frees about as much heap as the model is large: every worker would inherit those pages. malloc() has
/// raised its limits to the largest block that was ever freed, which made loading faster. In workers, the heap would then keep
/// what compiling needs for a moment, between the programs that stay, and grow for hours.
void tidy_heap() {
  ::mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  ::mallopt(M_TRIM_THRESHOLD, kMappedBytes);
  ::malloc_trim(0);
}

sigset_t child_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

using SteadyClock = std::chrono::steady_clock;

/// From a worker's death to its reaping. Its last thread may still be in the kernel: there it removes its entries of /proc, and
/// waitpid() waits for it without giving up the processor (Linux 6.18). The thread that compiles is niced, so on a busy machine
/// that may take seconds, in which no worker would be forked.
constexpr auto kReapDelay = std::chrono::seconds(2);
/// Of more dead workers the oldest are reaped earlier: they count against the limits of processes (pids.max, RLIMIT_NPROC).
constexpr std::size_t kMostDead = 64;

struct ForkedWorker {
  pid_t pid;
  std::uint64_t incarnation;  // 0: the supervisor does not know it
};
struct DeadWorker {
  pid_t pid;
  SteadyClock::time_point died;
};

///   Threads  thread-bound
class Zygote {
 public:
  Zygote(UniqueFd control, ProcessTitle title) : control_(std::move(control)), title_(title) {
    const sigset_t set = child_signal();
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    children_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  /// Returns when the supervisor is gone.
  void serve() {
    while (true) {
      pollfd fds[2] = {{control_.get(), POLLIN, 0}, {children_.get(), POLLIN, 0}};
      if (::poll(fds, 2, next_reaping_ms()) < 0 && errno != EINTR) return;
      if (fds[1].revents != 0) report_deaths();
      reap();
      if (fds[0].revents == 0) continue;
      bool lost_fds = false;
      auto received = wire::receive_control(control_.get(), false, &lost_fds);
      if (!received.ok() && received.status().code() == StatusCode::kInvalidArgument) continue;
      if (!received.ok()) return;
      if (*received && lost_fds) {
        refuse(**received, unavailable("the zygote has no file descriptors left (RLIMIT_NOFILE)"));
      } else if (*received) {
        handle(**received);
      }
    }
  }

 private:
  void handle(ControlMessage& message) {
    switch (message.kind) {
      case ControlKind::kLoad:
        return handle_load(message);
      case ControlKind::kFork:
        return handle_fork(message);
      default:
        return;
    }
  }

  void refuse(const ControlMessage& message, const Status& why) {
    send({.kind = message.kind == ControlKind::kFork ? ControlKind::kForkFailed : ControlKind::kLoadFailed,
          .id = message.id,
          .a = static_cast<std::uint64_t>(why.code()),
          .text = why.message()});
  }

  void handle_load(ControlMessage& message) {
    ControlMessage reply{.kind = ControlKind::kLoaded};
    if (const Status loaded = load_niced(message, reply); !loaded.ok()) {
      reply = {.kind = ControlKind::kLoadFailed,
               .a = static_cast<std::uint64_t>(loaded.code()),
               .text = shortened(loaded.message(), wire::kMaxControlText)};  // errors may quote long names
    }
    if (loaded_) {
      if (const std::string missing = keep_to_serving(); !missing.empty()) add_warning(reply.text, missing);
    }
    tidy_heap();
    send(reply);
  }

  // After loading, the zygote and its workers need few system calls. The sandbox forbids the others, in case the model or a
  // request makes the process run foreign code.
  // Returns what is missing from it.
  std::string keep_to_serving() const {
    const auto entered = enter_sandbox(sandbox_profile(source_.config.device));
    return entered.ok() ? *entered : "no sandbox: " + entered.status().message();
  }

  // Loads at a lower priority, so that models that already serve are not slowed down. A nice value belongs to a thread and cannot
  // be taken back without privileges. So a second thread loads, and the workers, forked from this one, keep the normal priority.
  // If no thread can be started, this one loads at its own priority.
  Status load_niced(ControlMessage& message, ControlMessage& reply) {
    if (message.a == 0) return load(message, reply);
    Status loaded;
    std::thread loader;
    try {
      loader = std::thread([&] {
        (void)!::nice(static_cast<int>(std::min<std::uint64_t>(message.a, 19)));  // of this thread
        loaded = load(message, reply);
      });
    } catch (const std::exception&) {  // no memory, or no process id
      return load(message, reply);
    }
    loader.join();
    // join() may return before the kernel stops counting the thread. A process with two threads must not fork.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (auto threads = count_threads(); threads.ok() && *threads > 1 && std::chrono::steady_clock::now() < limit;
         threads = count_threads())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return loaded;
  }

  Status load(ControlMessage& message, ControlMessage& reply) try {
    if (loaded_) return failed_precondition("this zygote has loaded model '{}' already", source_.name);
    SHOAL_ASSIGN_OR_RETURN(source_, parse_load(message.text));
    title_.set("shoal-zygote", source_.name);
    SHOAL_ASSIGN_OR_RETURN(const std::string hash, hash_files(source_));
    UniqueFd packed = message.fds.empty() ? UniqueFd() : std::move(message.fds[0]);
    SHOAL_ASSIGN_OR_RETURN(LoadedModel loaded, load_model(source_, std::move(packed)));
    reply.text = loaded_text(loaded, hash);
    SHOAL_RETURN_IF_ERROR(check_fits_messages(loaded, reply.text.size()));
    SHOAL_ASSIGN_OR_RETURN(golden_, read_golden(source_, loaded));
    if (loaded.model->packed_fd() >= 0) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, duplicate_fd(loaded.model->packed_fd()));
      reply.fds.push_back(std::move(fd));
    }
    loaded_ = std::move(loaded);
    return {};
  } catch (const std::bad_alloc&) {
    return out_of_memory("loading it", source_.name);
  } catch (const std::exception& error) {
    return internal_error("load model '{}': {}", source_.name, error.what());
  }

  Status check_fits_messages(const LoadedModel& loaded, std::size_t description_bytes) const {
    if (loaded.inputs.size() + loaded.outputs.size() > wire::kMaxTensors) {
      return invalid_argument(
          "model '{}' has {} inputs and {} outputs; a request has room for at most {} tensors. Use fewer, or concatenate them",
          source_.name, loaded.inputs.size(), loaded.outputs.size(), wire::kMaxTensors);
    }
    if (description_bytes > wire::kMaxControlText) {
      return invalid_argument(
          "model '{}': the description of its {} inputs, {} outputs and {} ignored inputs takes {} bytes; a message has room for "
          "{}. Use fewer of them or shorter names",
          source_.name, loaded.inputs.size(), loaded.outputs.size(), loaded.model->ignored_inputs().size(), description_bytes,
          wire::kMaxControlText);
    }
    return {};
  }

  void handle_fork(ControlMessage& message) try {
    if (const Status forked = fork_worker(message); !forked.ok()) refuse(message, forked);
  } catch (const std::bad_alloc&) {
    refuse(message, out_of_memory("forking a worker", source_.name));
  }

  [[gnu::noinline]] Status fork_worker(ControlMessage& message) {  // tests/crash/step finds it by its name
    if (!loaded_) return failed_precondition("no model is loaded");
    if (message.fds.size() != 2)
      return invalid_argument("fork with {} descriptors (wants control socket and status page)", message.fds.size());
    // fork() copies only the calling thread. If another thread held a lock, the child would wait for it forever.
    SHOAL_ASSIGN_OR_RETURN(const int threads, count_threads());
    if (threads != 1)
      return internal_error("the zygote of model '{}' has {} threads, so it cannot fork safely", source_.name, threads);
    // The supervisor must hear of a worker that is forked, so nothing is allocated from then on.
    ControlMessage reply{.kind = ControlKind::kForked, .id = message.id};
    reply.fds.reserve(1);
    workers_.reserve(workers_.size() + 1);
    dead_.reserve(dead_.size() + workers_.size() + 1);
    const pid_t pid = ::fork();
    if (pid < 0) return status_from_errno("fork a worker of model", source_.name, errno);
    if (pid == 0) become_worker(message);
    UniqueFd pidfd = open_pidfd(pid);
    // That worker ends by itself: the supervisor closes its control socket when it hears of the failure.
    workers_.push_back({pid, pidfd ? message.id : 0});
    if (!pidfd) return status_from_errno("open the pidfd of a worker of model", source_.name, errno);
    reply.a = static_cast<std::uint64_t>(pid);
    reply.fds.push_back(std::move(pidfd));
    send(reply);
    return {};
  }

  [[noreturn]] void become_worker(ControlMessage& message) noexcept {
    const sigset_t set = child_signal();
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    close_all_but({message.fds[0].get(), message.fds[1].get(), loaded_->model->packed_fd()});
    (void)control_.release();  // closed above
    (void)children_.release();
    title_.set("shoal-worker", format("{} {}", source_.name, message.id));
    const ServedModelView& served = *new ServedModelView{.name = source_.name,
                                                         .model = *loaded_->model,
                                                         .inputs = loaded_->inputs,
                                                         .threads = source_.config.threads,
                                                         .memory_mb = source_.config.memory_mb,
                                                         .golden = golden_,
                                                         .longest_reply_bytes = message.b};
    run_worker(served, {.incarnation = message.id,
                        .lanes = message.a,
                        .sockets = std::move(message.text),
                        .tries_threads = last_ended_itself_,
                        .control = std::move(message.fds[0]),
                        .status_page = std::move(message.fds[1])});
  }

  void report_deaths() {
    signalfd_siginfo ignored[8];
    while (::read(children_.get(), ignored, sizeof ignored) > 0) {
    }
    std::erase_if(workers_, [&](const ForkedWorker& worker) {
      siginfo_t info{};
      const bool is_ours = ::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
      if (is_ours && info.si_pid == 0) return false;  // it lives
      if (is_ours) dead_.push_back({worker.pid, SteadyClock::now()});
      if (is_ours) last_ended_itself_ = info.si_code == CLD_EXITED ? info.si_status != 0 : info.si_status == SIGABRT;
      if (is_ours && worker.incarnation != 0) {
        send({.kind = ControlKind::kExited,
              .id = worker.incarnation,
              .a = static_cast<std::uint64_t>(worker.pid),
              .b = static_cast<std::uint64_t>(wait_status_of(info))});
      }
      return true;
    });
  }

  void reap() {
    const auto due = SteadyClock::now() - kReapDelay;
    auto first = dead_.begin();
    for (; first != dead_.end(); ++first) {
      const bool are_many = static_cast<std::size_t>(dead_.end() - first) > kMostDead;
      if (first->died > due && !are_many) break;
      (void)::waitpid(first->pid, nullptr, WNOHANG);
    }
    dead_.erase(dead_.begin(), first);
  }

  // -1: none is dead.
  int next_reaping_ms() const {
    if (dead_.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(dead_.front().died + kReapDelay - SteadyClock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }

  // A failed send needs no handling: a closed socket is seen as end of file, and a supervisor that misses an answer restarts the
  // zygote.
  void send(const ControlMessage& message) { (void)wire::send_control(control_.get(), message); }

  UniqueFd control_, children_;
  ProcessTitle title_;
  ModelSource source_;
  std::optional<LoadedModel> loaded_;
  GoldenCase golden_;
  std::vector<ForkedWorker> workers_;  // that live
  std::vector<DeadWorker> dead_;       // that are not reaped; who died first comes first
  // So libraries end a process in which a thread does not start: ZeroMQ aborts, OpenMP exits. The next worker says so instead.
  bool last_ended_itself_ = false;
};

}  // namespace

void run_zygote(UniqueFd control, ProcessTitle title) {
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Otherwise a crashed worker would dump the weights and all arenas, and its death would be seen only after gigabytes were
  // written.
  leave_shared_memory_out_of_core_dumps();
  title.set("shoal-zygote", "");
  // The records of algorithms are all that a zygote writes. In the sandbox it could not make the directory above theirs.
  const std::filesystem::path cache = default_cache_directory();
  std::error_code ignored;  // without that directory nothing is measured, which the load reports
  if (!cache.empty()) std::filesystem::create_directories(cache, ignored);
  // If this fails, keep_to_serving() reports the reason together with the model's name.
  (void)enter_loading_sandbox(cache, wire::lanes_directory(wire::default_directory()), all_device_nodes());
  Zygote& zygote = *new Zygote(std::move(control), title);  // never destroyed: children share what it points to
  zygote.serve();
  ::_exit(0);
}

int worker_main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[1] : "";
  if (mode != kZygoteMode && mode != kFindMode) {
    std::fprintf(stderr,
                 "usage: shoal-worker --zygote FD | --find FD\n"
                 "Started by shoald, which talks to it over the control socket FD.\n");
    return 2;
  }
  const int fd = std::atoi(argv[2]);
  if (fd < 3 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    std::fprintf(stderr, "shoal-worker: %s is not a control socket\n", argv[2]);
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  // A service manager's stop and reload reach every process, but only the daemon decides what follows, and it ends this process.
  // In a process group of its own this process is in the background of the daemon's terminal. There, SIGTTOU would stop it when
  // it writes a message.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTTIN, SIGTTOU}) ::signal(signal, SIG_IGN);
  const ProcessTitle title(argc, argv);
  if (mode == kFindMode) find_files(UniqueFd(fd), title);
  run_zygote(UniqueFd(fd), title);
}

}  // namespace shoal::worker
