// Children that look for files, or fetch them, so that this process never touches a path or a server that a user named.
//
//   ask ─▶ waiting ─▶ running ─(whole answer, or a death)─▶ over
//                        └─(the limit)─▶ over, and killed ─▶ the child may be stuck in the kernel: nobody waits for it
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/log/log.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/spawn.hpp"
#include "supervisor/process/timers.hpp"

namespace shoal::supervisor {

class FileFinder;

/// Who needs the answer. Searches that wait for a place start in this order.
enum class Asker {
  kStart,          // the daemon needs its configuration file to start
  kConfiguration,  // it needs the file again, after SIGHUP
  kDaemon,         // the daemon needs the files of a model: there is one such search per model at most
  kClient,         // a client has asked for a load or a reload
};

/// One question and its answer. Destroying it gives the question up.
///   Threads  thread-bound
class FileSearch {
 public:
  ~FileSearch();
  FileSearch(const FileSearch&) = delete;
  FileSearch& operator=(const FileSearch&) = delete;

  bool is_over() const { return result_.has_value(); }
  /// The answer's text; its parser must check it. Call this once, when the search is over.
  ///   Errors  kDeadlineExceeded; kInvalidArgument: the question does not fit into a control message; kOverloaded: too many
  ///           searches of clients wait, or there are no descriptors or no memory for the child; kUnavailable: the child's
  ///           program is missing, the child died or sent something else, or too many children cannot be ended. All name `what`.
  Result<std::string> take() { return *std::move(result_); }
  /// What the child is just doing, as it says; empty if it says nothing.
  const std::string& progress() const { return progress_; }

 private:
  friend class FileFinder;
  FileSearch(FileFinder& finder, Asker asker, std::int64_t client_process, std::string what, std::string question)
      : finder_(finder), asker_(asker), client_process_(client_process), what_(std::move(what)), question_(std::move(question)) {}

  FileFinder& finder_;
  const Asker asker_;
  const std::int64_t client_process_;
  std::string what_, question_, progress_;
  std::optional<Result<std::string>> result_;
};

/// The children of a FileFinder, which are all of one kind.
struct FinderChildren {
  std::filesystem::path program;             ///< started with --find 3: it answers the kFind on its descriptor 3
  std::string_view task = "looks for them";  ///< "the process that ..."
  std::uint64_t limit_ns = 10'000'000'000;   ///< a working file system answers within a second
  std::string_view late = "not read within {} s: their file system does not answer, or there is too much to read";
  std::size_t most_running = 8;             ///< at the same time; further questions wait
  std::size_t most_running_of_process = 4;  ///< of them, for one client process, whatever the number of its connections
};

/// Starts one child per question: `shoal-worker --find` looks for files, `shoal-fetch --find` fetches them.
///   Threads  thread-bound
class FileFinder {
 public:
  /// Children that were killed and do not die, because the kernel waits for a file system. Each costs a process and 100 KB. With
  /// so many of them new questions are refused.
  static constexpr std::size_t kMostStuck = 32;
  /// The search for the configuration may still start when kMostStuck children are stuck, until so many more are.
  static constexpr std::size_t kMoreStuckForConfiguration = 8;
  /// Searches of clients that wait for a place. Further ones are refused.
  static constexpr std::size_t kMostWaiting = 64;
  /// The share of one process of these numbers.
  static constexpr std::size_t kMostStuckOfProcess = 8, kMostWaitingOfProcess = 16;

  /// If a child cannot be started for lack of descriptors or memory, searches of a running daemon wait so long before the next
  /// try.
  static constexpr std::uint64_t kShortageNs = 100'000'000;

  using Spawn = std::function<Result<Child>(const SpawnOptions&)>;

  /// `clock`, `loop`, `timers` and `log` outlive this, and this outlives its searches. `is_over` is called from within the event
  /// loop, a timer or ask(), once for each search that is not given up.
  FileFinder(FinderChildren children, std::size_t largest_answer_bytes, const Clock& clock, EventLoop& loop, Timers& timers,
             Logger& log, std::function<void()> is_over, Spawn spawn_child = spawn);
  ~FileFinder();
  FileFinder(const FileFinder&) = delete;
  FileFinder& operator=(const FileFinder&) = delete;

  /// `what` names the files in errors: "model 'net': files at /models/net". `client_process` is the process_key() of the client
  /// that asks; 0 for the daemon's own searches.
  std::unique_ptr<FileSearch> ask(Asker asker, std::string what, std::string question, std::int64_t client_process = 0);
  /// Whether a search for a client of that process may wait. ask() checks it, too. Errors: kOverloaded, which names `what`.
  Status check_room(const std::string& what, std::int64_t client_process) const;
  std::size_t stuck() const;
  /// Whether it is one of its children.
  bool watches(pid_t pid) const;

 private:
  friend class FileSearch;
  struct Process {
    FileSearch* search = nullptr;  // null: its question is over
    std::int64_t client_process = 0;
    Child child;
    UniqueFd control;
    std::string answer;
    std::optional<Timer> limit;
    std::uint64_t logged_ns = 0;  // its progress
    bool is_stuck = false;
  };

  void start_waiting(bool is_retry = false);
  /// Whether too many children cannot be ended. Errors: kUnavailable.
  Status check_stuck(const FileSearch& search) const;
  bool has_place(const FileSearch& search) const;
  std::size_t count_of(std::int64_t client_process, bool is_stuck) const;
  Status start(FileSearch& search);
  /// Reads one message. False when there was none, or there will be no more.
  bool speaks(int control);
  void take_progress(Process& process, const wire::ControlMessage& message);
  void died(int pidfd);
  void limit_is_over(Process& process);
  /// Ends the question: with the answer, or why there is none. The child is killed.
  void end(Process& process, Result<std::string> result);
  void over(FileSearch& search, Result<std::string> result);
  void give_up(FileSearch& search);
  /// Kills the child, and hears no more of it. reap_children() reaps it.
  void abandon(Process& process);
  void stop_listening(Process& process);

  const FinderChildren children_;
  const std::size_t largest_answer_bytes_;
  const Clock& clock_;
  EventLoop& loop_;
  Timers& timers_;
  Logger& log_;
  const std::function<void()> is_over_;
  const Spawn spawn_;
  std::vector<std::unique_ptr<Process>> processes_;
  Timer retry_;                      // starts a child that could not be started before
  std::deque<FileSearch*> waiting_;  // in the order of Asker; of one kind, the oldest first
};

}  // namespace shoal::supervisor
