#include "worker/zygote/zygote.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/wire/control.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/serve/sandbox.hpp"
#include "worker/serve/worker.hpp"
#include "worker/zygote/golden.hpp"
#include "worker/zygote/load_message.hpp"

namespace shoal::worker {
namespace {

using wire::ControlKind;
using wire::ControlMessage;

sigset_t child_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

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
      if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
      if (fds[1].revents != 0) reap();
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
               .text = shortened(loaded.message(), wire::kMaxControlText)};  // it may quote names of any length
    }
    if (loaded_) keep_to_serving();
    // Importing leaves most of a model's size as freed heap, which every worker would inherit.
    ::malloc_trim(0);
    send(reply);
  }

  // From here on nothing new is asked of the kernel, whatever the model's bytes or a request's make us run.
  void keep_to_serving() const {
    const auto entered = enter_sandbox();
    const std::string why_not = entered.ok() ? *entered : entered.status().message();
    if (!why_not.empty())
      std::fprintf(stderr, "shoal-worker: model '%s' has no sandbox: %s\n", source_.name.c_str(), why_not.c_str());
  }

  // While others serve, loading comes second. A thread has a nice value of its own: the workers are forked from this thread,
  // which has none, and it could not be taken back from a process without privileges.
  Status load_niced(ControlMessage& message, ControlMessage& reply) {
    if (message.a == 0) return load(message, reply);
    Status loaded;
    std::thread([&] {
      (void)!::nice(static_cast<int>(std::min<std::uint64_t>(message.a, 19)));  // of this thread
      loaded = load(message, reply);
    }).join();
    // The thread is over before the kernel has ceased to count it, and who has two threads may not fork.
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
    SHOAL_ASSIGN_OR_RETURN(golden_, read_golden(source_, loaded));
    if (loaded.model->packed_fd() >= 0) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, duplicate_fd(loaded.model->packed_fd()));
      reply.fds.push_back(std::move(fd));
    }
    reply.text = loaded_text(loaded, hash);
    if (reply.text.size() > wire::kMaxControlText) {
      return invalid_argument(
          "model '{}': to say its {} inputs, {} outputs and {} ignored inputs takes {} bytes; a message has room for {}: give it "
          "fewer "
          "of them, or shorter names",
          source_.name, loaded.inputs.size(), loaded.outputs.size(), loaded.model->ignored_inputs().size(), reply.text.size(),
          wire::kMaxControlText);
    }
    loaded_ = std::move(loaded);
    return {};
  } catch (const std::exception& error) {
    return internal_error("load model '{}': {}", source_.name, error.what());
  }

  void handle_fork(ControlMessage& message) {
    if (const Status forked = fork_worker(message); !forked.ok()) refuse(message, forked);
  }

  [[gnu::noinline]] Status fork_worker(ControlMessage& message) {  // tests/crash/step finds it by its name
    if (!loaded_) return failed_precondition("no model is loaded");
    if (message.fds.size() != 2)
      return invalid_argument("fork with {} descriptors (wants control socket and status page)", message.fds.size());
    // fork() copies only the calling thread: were there others, the child might wait for ever for a lock that one of them held.
    SHOAL_ASSIGN_OR_RETURN(const int threads, count_threads());
    if (threads != 1)
      return internal_error("the zygote of model '{}' has {} threads, so it cannot fork safely", source_.name, threads);
    const pid_t pid = ::fork();
    if (pid < 0) return status_from_errno("fork a worker of model", source_.name, errno);
    if (pid == 0) become_worker(message);
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd) {
      const Status failed = status_from_errno("open the pidfd of a worker of model", source_.name, errno);
      ::kill(pid, SIGKILL);  // not reaped yet, so still that child
      return failed;
    }
    incarnations_[pid] = message.id;
    ControlMessage reply{.kind = ControlKind::kForked, .id = message.id, .a = static_cast<std::uint64_t>(pid)};
    reply.fds.push_back(std::move(pidfd));
    send(reply);
    return {};
  }

  [[noreturn]] void become_worker(ControlMessage& message) {
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
                                                         .golden = golden_};
    run_worker(served, {.incarnation = message.id,
                        .lanes = message.a,
                        .directory = std::move(message.text),
                        .control = std::move(message.fds[0]),
                        .status_page = std::move(message.fds[1])});
  }

  void reap() {
    signalfd_siginfo ignored[8];
    while (::read(children_.get(), ignored, sizeof ignored) > 0) {
    }
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = incarnations_.find(pid);
      if (found == incarnations_.end()) continue;
      send({.kind = ControlKind::kExited,
            .id = found->second,
            .a = static_cast<std::uint64_t>(pid),
            .b = static_cast<std::uint64_t>(status)});
      incarnations_.erase(found);
    }
  }

  // A supervisor that is gone shows as EOF; one whose socket is full restarts a zygote that it does not hear from.
  void send(const ControlMessage& message) { (void)wire::send_control(control_.get(), message); }

  UniqueFd control_, children_;
  ProcessTitle title_;
  ModelSource source_;
  std::optional<LoadedModel> loaded_;
  GoldenCase golden_;
  std::unordered_map<pid_t, std::uint64_t> incarnations_;  // of the living children
};

}  // namespace

void run_zygote(UniqueFd control, ProcessTitle title) {
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::signal(SIGPIPE, SIG_IGN);
  // Ctrl-C at the terminal, its end, and a service manager's stop and reload reach every process: only the daemon knows what is
  // to be done, and ends the zygote.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  // Weights and clients' arenas are memfds: the death of one worker would write gigabytes, and be noticed only after that.
  leave_shared_memory_out_of_core_dumps();
  title.set("shoal-zygote", "");
  // Why there is none is said when a model is loaded, by its name.
  (void)enter_loading_sandbox();
  Zygote& zygote = *new Zygote(std::move(control), title);  // never destroyed: children share what it points to
  zygote.serve();
  ::_exit(0);
}

int worker_main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--zygote") {
    std::fprintf(stderr, "usage: shoal-worker --zygote FD\nStarted by shoald, which talks to it over the control socket FD.\n");
    return 2;
  }
  const int fd = std::atoi(argv[2]);
  if (fd < 3 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    std::fprintf(stderr, "shoal-worker: %s is no control socket\n", argv[2]);
    return 2;
  }
  run_zygote(UniqueFd(fd), ProcessTitle(argc, argv));
}

}  // namespace shoal::worker
