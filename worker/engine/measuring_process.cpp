#include "worker/engine/measuring_process.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/helper_program.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/model_json.hpp"
#include "worker/exec/tuning.hpp"

namespace shoal::worker {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kForLoading(30'000);  // to read and pack the model, beside the measurement
constexpr int kSocket = 3;                   // of the child

Result<std::string> find_worker_file() {
  Dl_info library{};
  const bool is_known = ::dladdr(reinterpret_cast<void*>(&measure_elsewhere), &library) != 0 && library.dli_fname != nullptr;
  // In a program it is argv[0], which anybody chose: a name that is not absolute would be looked for in the current directory.
  fs::path near_library = is_known ? fs::path(library.dli_fname).parent_path() : fs::path();
  if (!near_library.is_absolute()) near_library.clear();
  const fs::path near_program = program_directory();
  for (const fs::path& directory : {near_library, near_program}) {
    if (const fs::path file = helper_program("shoal-worker", directory); !file.empty()) return file.string();
  }
  return not_found(
      "a program with threads has algorithms measured by shoal-worker, which is neither in {} nor in ../libexec/shoal",
      (near_library.empty() ? near_program : near_library).string());
}

/// Ended and reaped with its owner.
class Zygote {
 public:
  static Result<Zygote> start() {
    SHOAL_ASSIGN_OR_RETURN(const std::string file, find_worker_file());
    SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
    std::string mode = "--zygote", socket = std::to_string(kSocket), name = file;
    char* arguments[] = {name.data(), mode.data(), socket.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid = 0;
    int why = ::posix_spawn_file_actions_adddup2(&actions, pair.theirs.get(), kSocket);
    if (why == 0) why = ::posix_spawn_file_actions_addclosefrom_np(&actions, kSocket + 1);
    if (why == 0) why = ::posix_spawn(&pid, file.c_str(), &actions, &attributes, arguments, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (why != 0) return status_from_errno("start", file, why);
    UniqueFd pidfd = open_pidfd(pid);
    if (pidfd) return Zygote(std::move(pidfd), std::move(pair.ours));
    const Status failure = status_from_errno("open a pidfd of", file, errno);
    pair.ours.reset();  // it exits by itself
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return failure;
  }
  Zygote(Zygote&&) = default;
  Zygote& operator=(Zygote&&) = delete;
  // Not by its pid: the application may have reaped it (wait(), SIGCHLD ignored), and then a stranger may have the number.
  ~Zygote() {
    if (!pidfd_) return;
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    siginfo_t ended;
    while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &ended, WEXITED) != 0 && errno == EINTR) {
    }
  }
  int control() const { return control_.get(); }

 private:
  Zygote(UniqueFd pidfd, UniqueFd control) : pidfd_(std::move(pidfd)), control_(std::move(control)) {}

  UniqueFd pidfd_, control_;
};

}  // namespace

Status measure_elsewhere(const ServedModel& model, const TuningProgress& progress) {
  SHOAL_ASSIGN_OR_RETURN(std::string text, wire::load_text(model));
  SHOAL_ASSIGN_OR_RETURN(const Zygote zygote, Zygote::start());
  SHOAL_RETURN_IF_ERROR(wire::send_control(zygote.control(), {.kind = wire::ControlKind::kLoad, .text = std::move(text)}));
  const milliseconds budget(model.config.tuning_ms);
  const milliseconds limit = std::min<milliseconds>(3 * budget + kForLoading, std::chrono::seconds(model.config.load_timeout_s));
  const std::uint64_t start_ns = monotonic_now_ns();
  while (true) {
    SHOAL_RETURN_IF_ERROR(
        wait_for_measurement(zygote.control(), start_ns, budget, limit, progress).with_context("a shoal-worker that measures"));
    SHOAL_ASSIGN_OR_RETURN(const auto received, wire::receive_control(zygote.control()));
    if (!received) continue;
    if (received->kind == wire::ControlKind::kLoaded) return {};
    if (received->kind == wire::ControlKind::kLoadFailed)
      return internal_error("a shoal-worker that measures: {}", received->text);
  }
}

}  // namespace shoal::worker
