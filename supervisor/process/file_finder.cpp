#include "supervisor/process/file_finder.hpp"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "supervisor/process/received_message.hpp"

namespace shoal::supervisor {

FileSearch::~FileSearch() {
  if (!is_over()) finder_.give_up(*this);
}

FileFinder::FileFinder(FinderChildren children, std::size_t largest_answer_bytes, const Clock& clock, EventLoop& loop,
                       Timers& timers, Logger& log, std::function<void()> is_over, Spawn spawn_child)
    : children_(std::move(children)),
      largest_answer_bytes_(largest_answer_bytes),
      clock_(clock),
      loop_(loop),
      timers_(timers),
      log_(log),
      is_over_(std::move(is_over)),
      spawn_(std::move(spawn_child)),
      retry_(timers, Timer::Kind::kClock, [this](std::uint64_t) { start_waiting(true); }) {}

FileFinder::~FileFinder() {
  for (const auto& process : processes_) {
    abandon(*process);
    loop_.forget(process->child.pidfd.get());
  }
}

std::unique_ptr<FileSearch> FileFinder::ask(Asker asker, std::string what, std::string question, std::int64_t client_process) {
  std::unique_ptr<FileSearch> search(new FileSearch(*this, asker, client_process, std::move(what), std::move(question)));
  if (Status room = check_room(search->what_, client_process); asker == Asker::kClient && !room.ok()) {
    over(*search, std::move(room));
    return search;
  }
  const auto after = std::ranges::upper_bound(waiting_, asker, {}, [](const FileSearch* other) { return other->asker_; });
  waiting_.insert(after, search.get());
  start_waiting();
  return search;
}

Status FileFinder::check_room(const std::string& what, std::int64_t client_process) const {
  std::size_t of_all = 0, of_process = 0;
  for (const FileSearch* search : waiting_) {
    if (search->asker_ != Asker::kClient) continue;
    ++of_all;
    of_process += search->client_process_ == client_process;
  }
  if (of_all >= kMostWaiting) {
    return overloaded("{}: {} searches for files are waiting, which is the limit: try again when some loads are over", what,
                      kMostWaiting);
  }
  if (of_process < kMostWaitingOfProcess) return {};
  return overloaded(
      "{}: {} searches for files that this client's process asked for are waiting, which is the limit for one process: try again "
      "when some loads are over",
      what, kMostWaitingOfProcess);
}

Status FileFinder::check_stuck(const FileSearch& search) const {
  const bool is_of_configuration = search.asker_ == Asker::kStart || search.asker_ == Asker::kConfiguration;
  const std::size_t most = kMostStuck + (is_of_configuration ? kMoreStuckForConfiguration : 0);
  constexpr std::string_view kRemedy = "their file systems do not answer; unmount them, or mount them again";
  if (stuck() >= most)
    return unavailable("{} processes that looked for files cannot be ended, which is the limit: {}", most, kRemedy);
  if (search.asker_ != Asker::kClient || count_of(search.client_process_, true) < kMostStuckOfProcess) return {};
  return unavailable(
      "{} processes that looked for files for this client's process cannot be ended, which is the limit for one process: {}",
      kMostStuckOfProcess, kRemedy);
}

bool FileFinder::has_place(const FileSearch& search) const {
  const bool is_free =
      search.asker_ != Asker::kClient || count_of(search.client_process_, false) < children_.most_running_of_process;
  return is_free && processes_.size() - stuck() < children_.most_running;
}

std::size_t FileFinder::count_of(std::int64_t client_process, bool is_stuck) const {
  return static_cast<std::size_t>(std::ranges::count_if(processes_, [&](const auto& process) {
    return process->client_process == client_process && process->is_stuck == is_stuck;
  }));
}

void FileFinder::start_waiting(bool is_retry) {
  is_retry |= retry_.is_set();
  retry_.clear();
  while (true) {
    const auto found =
        std::ranges::find_if(waiting_, [&](const FileSearch* each) { return has_place(*each) || !check_stuck(*each).ok(); });
    if (found == waiting_.end()) return;
    FileSearch& next = **found;
    waiting_.erase(found);
    Status started = check_stuck(next);
    if (started.ok()) started = start(next);
    const bool is_of_a_running_daemon = next.asker_ == Asker::kDaemon || next.asker_ == Asker::kConfiguration;
    if (started.code() == StatusCode::kOverloaded && is_of_a_running_daemon) {
      // Nobody would ask again. It stays the first; searches of clients, which wait behind it, do not wait for descriptors.
      if (!is_retry) log_.warn("file_search_waits reason=\"{}: {}\"", next.what_, started.message());
      retry_.set(clock_.now_ns() + kShortageNs);
      const auto asked = std::ranges::find(waiting_, Asker::kClient, [](const FileSearch* each) { return each->asker_; });
      const std::vector<FileSearch*> refused(asked, waiting_.end());
      waiting_.erase(asked, waiting_.end());
      waiting_.push_front(&next);
      for (FileSearch* each : refused) over(*each, started.with_context(each->what_));
      return;
    }
    if (!started.ok()) over(next, started.with_context(next.what_));
  }
}

Status FileFinder::start(FileSearch& search) {
  if (wire::build_id().size() + 1 + search.question_.size() > wire::kMaxControlText) {
    return invalid_argument(
        "the keys of the request need {} bytes (at most {}): give fewer or shorter entries of `shapes`, "
        "`inputs`, `outputs` and `buckets`",
        search.question_.size(), wire::kMaxControlText);
  }
  const auto failed = [&](const Status& why) {
    const bool is_program_bad = why.code() == StatusCode::kNotFound || why.code() == StatusCode::kPermissionDenied ||
                                why.code() == StatusCode::kInvalidArgument;
    return Status(is_program_bad ? StatusCode::kUnavailable : StatusCode::kOverloaded,
                  format("the process that {} cannot be started: {}", children_.task, why.message()));
  };
  auto pair = wire::make_control_pair();
  if (!pair.ok()) return failed(pair.status());
  auto child =
      spawn_({.program = children_.program, .arguments = {"--find", "3"}, .environment = {}, .control = pair->theirs.get()});
  if (!child.ok()) return failed(child.status());
  auto process = std::make_unique<Process>();
  process->search = &search;
  process->client_process = search.client_process_;
  process->child = *std::move(child);
  process->control = std::move(pair->ours);
  process->limit.emplace(timers_, Timer::Kind::kPatience, [this, of = process.get()](std::uint64_t) { limit_is_over(*of); });
  process->limit->set(clock_.now_ns() + children_.limit_ns);
  Status asked = loop_.watch(process->child.pidfd.get(), [this, fd = process->child.pidfd.get()] { died(fd); });
  if (!asked.ok()) {  // nobody would notice its end; reap_children() reaps it
    send_signal(process->child.pidfd, SIGKILL);
    return failed(asked);
  }
  asked = loop_.watch(process->control.get(), [this, fd = process->control.get()] { speaks(fd); });
  if (asked.ok()) asked = wire::send_question(process->control.get(), search.question_);
  processes_.push_back(std::move(process));
  if (asked.ok() || asked.code() == StatusCode::kUnavailable) return {};  // its pidfd tells how it ended
  abandon(*processes_.back());
  return failed(asked);
}

bool FileFinder::speaks(int control) {
  const auto found = std::ranges::find(processes_, control, [](const auto& process) { return process->control.get(); });
  if (control < 0 || found == processes_.end()) return false;  // nobody listens to it any more
  Process& process = **found;
  ReceivedMessage message(control, loop_);
  const Status& received = message.status();
  if (received.ok() && !message.has_value()) return false;
  const auto wrong = [&](std::string_view what) {
    end(process, unavailable("{}: the process that {} {}", process.search->what_, children_.task, what));
    return false;
  };
  if (!received.ok() && received.code() != StatusCode::kUnavailable) return wrong("sent " + received.message());
  if (!received.ok()) {  // the end: its pidfd tells how
    stop_listening(process);
    return false;
  }
  if (message->kind == wire::ControlKind::kFetching) {
    take_progress(process, *message);
    return true;
  }
  if (message->kind != wire::ControlKind::kFound) return wrong("sent a message that is not an answer");
  if (process.answer.size() + message->text.size() > largest_answer_bytes_) return wrong("sent an answer that is too long");
  process.answer += message->text;
  if (message->a == 1) end(process, std::move(process.answer));
  return true;
}

// A stranger's numbers and name: they are shown and believed by nobody.
void FileFinder::take_progress(Process& process, const wire::ControlMessage& message) {
  constexpr std::uint64_t kLogEveryNs = 10'000'000'000, kMega = 1'000'000;
  constexpr std::size_t kMostShown = 200;
  const std::string of = message.b > 0 ? format(" of {}", (message.b + kMega - 1) / kMega) : "";
  process.search->progress_ = format("fetching {}, {}{} MB", shortened(message.text, kMostShown), message.a / kMega, of);
  const std::uint64_t now_ns = clock_.now_ns();
  if (process.logged_ns != 0 && now_ns - process.logged_ns < kLogEveryNs) return;
  process.logged_ns = now_ns;
  log_.info("fetching what=\"{}\" file=\"{}\" bytes={} of={}", process.search->what_, shortened(message.text, kMostShown),
            message.a, message.b);
}

void FileFinder::died(int pidfd) {
  const auto found = std::ranges::find(processes_, pidfd, [](const auto& process) { return process->child.pidfd.get(); });
  if (found == processes_.end()) return;
  while (speaks((*found)->control.get())) {  // messages from before its death may still wait
  }
  const std::unique_ptr<Process> process = std::move(*found);
  processes_.erase(found);
  stop_listening(*process);
  loop_.forget(pidfd);
  const auto status = exit_status(process->child.pidfd);
  if (process->is_stuck) log_.info("file_search_gone pid={}", process->child.pid);
  if (process->search) {
    over(*process->search, unavailable("{}: the process that {} {} before it had answered", process->search->what_,
                                       children_.task, status ? describe_wait_status(*status) : "ended"));
  }
  start_waiting();
}

void FileFinder::end(Process& process, Result<std::string> result) {
  FileSearch& search = *process.search;
  abandon(process);
  over(search, std::move(result));
}

void FileFinder::over(FileSearch& search, Result<std::string> result) {
  search.result_ = std::move(result);
  is_over_();
}

void FileFinder::give_up(FileSearch& search) {
  std::erase(waiting_, &search);
  for (const auto& process : processes_) {
    if (process->search == &search) abandon(*process);
  }
}

void FileFinder::abandon(Process& process) {
  process.search = nullptr;
  stop_listening(process);
  send_signal(process.child.pidfd, SIGKILL);
}

void FileFinder::stop_listening(Process& process) {
  if (process.control) loop_.hang_up(std::move(process.control));
}

void FileFinder::limit_is_over(Process& process) {
  process.is_stuck = true;
  const std::uint64_t limit_s = children_.limit_ns / 1'000'000'000;
  log_.warn("file_search_killed pid={} after_s={}", process.child.pid, limit_s);
  if (process.search) end(process, deadline_exceeded("{}: {}", process.search->what_, format(children_.late, limit_s)));
  start_waiting();
}

std::size_t FileFinder::stuck() const {
  return static_cast<std::size_t>(std::ranges::count(processes_, true, [](const auto& process) { return process->is_stuck; }));
}

bool FileFinder::watches(pid_t pid) const {
  return std::ranges::any_of(processes_, [&](const auto& process) { return process->child.pid == pid; });
}

}  // namespace shoal::supervisor
