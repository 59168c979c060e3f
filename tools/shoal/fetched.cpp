#include "tools/shoal/fetched.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/helper_program.hpp"
#include "shm/base/url.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/wire/control.hpp"

namespace shoal::tool {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

/// shoal-fetch, which ends when its socket is closed. Reaped when destroyed.
class Fetcher {
 public:
  static Result<Fetcher> start(ModelPlace place) {
    const std::string program = helper_program("shoal-fetch", program_directory());
    if (program.empty())
      return unavailable("shoal-fetch is neither beside shoal in {} nor in ../libexec/shoal", program_directory().string());
    SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
    Fetcher fetcher;
    fetcher.control_ = std::move(pair.ours);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pair.theirs.get(), 3);
    std::string name = program, mode = place == ModelPlace::kCache ? "--copy" : "--find", descriptor = "3";
    char* const arguments[] = {name.data(), mode.data(), descriptor.data(), nullptr};
    const int error = ::posix_spawn(&fetcher.pid_, program.c_str(), &actions, nullptr, arguments, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return status_from_errno("start", program, error);
    return fetcher;
  }
  Fetcher(Fetcher&& other) noexcept : control_(std::move(other.control_)), pid_(std::exchange(other.pid_, -1)) {}
  Fetcher& operator=(Fetcher&&) = delete;
  ~Fetcher() { (void)reap(); }

  int control() const { return control_.get(); }
  /// How it ended. Waits until it does.
  std::optional<int> reap() {
    control_.reset();
    int status = 0;
    if (pid_ < 0) return std::nullopt;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  Fetcher() = default;
  UniqueFd control_;
  pid_t pid_ = -1;
};

/// A bar for the file that is just coming.
class FileProgress {
 public:
  void show(const wire::ControlMessage& message) {
    const std::size_t total = (message.b + kMega - 1) / kMega;
    if (!progress_ || message.text != file_ || total != total_) {
      file_ = message.text;
      total_ = total;
      progress_ = std::make_unique<Progress>(printable("fetching " + file_ + ", MB"), total);
    }
    if (total == 0) return progress_->show([&] { return format("{}", message.a / kMega); });
    progress_->show(message.a / kMega);
  }

 private:
  std::string file_;
  std::size_t total_ = 0;
  std::unique_ptr<Progress> progress_;
};

}  // namespace

Result<FetchedModel> fetch(const std::string& url, const ModelOverrides& overrides, ModelPlace place) {
  SHOAL_RETURN_IF_ERROR(check_url(url));
  SHOAL_ASSIGN_OR_RETURN(Fetcher fetcher, Fetcher::start(place));
  const std::string question = question_text(ModelRequest{.name = "model", .path = url, .overrides = overrides});
  const auto has_died = [&] {
    const auto status = fetcher.reap();
    return unavailable("{}: the process that fetches it {} before it had answered", url,
                       status && WIFSIGNALED(*status) ? format("was killed by signal {}", WTERMSIG(*status)) : "ended");
  };
  if (const Status asked = wire::send_question(fetcher.control(), question); !asked.ok())
    return asked.code() == StatusCode::kUnavailable ? has_died() : asked;
  std::string answer;
  FileProgress progress;
  while (true) {
    const auto message = wire::receive_control(fetcher.control(), true);
    if (!message.ok() || !*message) return has_died();
    if ((*message)->kind == wire::ControlKind::kFetching) progress.show(**message);
    if ((*message)->kind != wire::ControlKind::kFound) continue;
    answer += (*message)->text;
    if ((*message)->a == 1) return parse_fetched(answer);
  }
}

Result<std::string> local_model(const std::string& path_or_url, Console& console) {
  if (!must_be_fetched(path_or_url)) return path_or_url;
  SHOAL_ASSIGN_OR_RETURN(FetchedModel model, fetch(path_or_url, {}, ModelPlace::kWhereItIs));
  for (std::string& warning : model.warnings) console.warn(std::move(warning));
  return std::move(model.path);
}

}  // namespace shoal::tool
