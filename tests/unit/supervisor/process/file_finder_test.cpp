#include "supervisor/process/file_finder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "shm/base/clock.hpp"
#include "tests/support/says.hpp"

namespace shoal::supervisor {
namespace {

using test::says;

constexpr std::size_t kMostBytes = 100'000;

/// Children that the test plays: each ends when it says so, and no signal reaches it.
class FileFinderTest : public testing::Test {
 protected:
  struct Played {
    UniqueFd control, death;  // its end; what makes its pidfd readable
    void say(const std::string& text, bool is_last) const {
      ASSERT_TRUE(
          wire::send_control(control.get(), {.kind = wire::ControlKind::kFound, .a = is_last ? 1U : 0U, .text = text}).ok());
    }
    void die() { ::eventfd_write(death.get(), 1); }
  };

  /// Each client is a process of its own.
  std::unique_ptr<FileSearch> ask(const std::string& question = "?", Asker asker = Asker::kClient) {
    return finder_.ask(asker, "files at /x", question, asker == Asker::kClient ? ++last_process_ : 0);
  }
  std::unique_ptr<FileSearch> ask_as(std::int64_t process) { return finder_.ask(Asker::kClient, "files at /x", "?", process); }
  /// Ends a child, so that there is room for the next one. Returns what that one is asked.
  std::string next_after(std::size_t child) {
    const std::size_t next = children_.size();
    children_.at(child).die();
    loop_.run_ready();
    if (children_.size() != next + 1) return "(none started)";
    const auto asked = wire::receive_control(children_.back().control.get());
    return asked.ok() && *asked ? (*asked)->text.substr(wire::build_id().size() + 1) : "(nothing)";
  }
  void tick_late() { timers_.run_due(monotonic_now_ns() + FinderChildren().limit_ns + 1); }
  static std::string failure(FileSearch& search) {
    EXPECT_TRUE(search.is_over());
    return search.is_over() ? search.take().status().message() : "";
  }

  Clock clock_;
  EventLoop loop_;
  Timers timers_;
  Logger log_{"test", LogMode::kDropping};
  std::vector<Played> children_;
  int over_ = 0;
  std::int64_t last_process_ = 1000;
  Status shortage_;  // not OK: no child can be started
  FileFinder finder_{{.program = "/worker"},
                     kMostBytes,
                     clock_,
                     loop_,
                     timers_,
                     log_,
                     [this] { ++over_; },
                     [this](const SpawnOptions& options) {
                       EXPECT_EQ(options.program, "/worker");
                       if (!shortage_.ok()) return Result<Child>(shortage_);
                       const int death = ::eventfd(0, EFD_CLOEXEC);
                       children_.push_back({UniqueFd(::fcntl(options.control, F_DUPFD_CLOEXEC, 3)),
                                            UniqueFd(::fcntl(death, F_DUPFD_CLOEXEC, 3))});
                       return Result<Child>(Child{-1, UniqueFd(death)});
                     }};
};

TEST_F(FileFinderTest, PutsTheAnswerTogether) {
  const auto search = ask("where?");
  const auto asked = wire::receive_control(children_.at(0).control.get());
  ASSERT_TRUE(asked.ok() && *asked);
  EXPECT_EQ((*asked)->kind, wire::ControlKind::kFind);
  EXPECT_EQ((*asked)->text, wire::build_id() + "\nwhere?");
  children_[0].say("here", false);
  loop_.run_ready();
  EXPECT_FALSE(search->is_over());
  children_[0].say(" and there", true);
  children_[0].die();
  loop_.run_ready();
  ASSERT_TRUE(search->is_over());
  EXPECT_EQ(search->take().value(), "here and there");
  EXPECT_EQ(over_, 1);
}

TEST_F(FileFinderTest, ReadsWhatADeadChildHasSaid) {
  const auto search = ask();
  for (int i = 0; i < 5; ++i) children_.at(0).say("x", i == 4);
  children_[0].die();
  for (int i = 0; i < 5 && !search->is_over(); ++i) loop_.run_ready();
  ASSERT_TRUE(search->is_over());
  EXPECT_EQ(search->take().value(), "xxxxx");
}

TEST_F(FileFinderTest, TellsWhatAChildSaysOfItsProgress) {
  const auto search = ask();
  EXPECT_EQ(search->progress(), "");
  ASSERT_TRUE(
      wire::send_control(children_.at(0).control.get(),
                         {.kind = wire::ControlKind::kFetching, .a = 12'400'000, .b = 97'000'001, .text = "m-0000.params"})
          .ok());
  loop_.run_ready();
  EXPECT_EQ(search->progress(), "fetching m-0000.params, 12 of 98 MB");
  EXPECT_FALSE(search->is_over());
  const std::string long_name(5000, 'x');
  ASSERT_TRUE(wire::send_control(children_[0].control.get(), {.kind = wire::ControlKind::kFetching, .text = long_name}).ok());
  children_[0].say("/here", true);
  for (int i = 0; i < 3 && !search->is_over(); ++i) loop_.run_ready();
  EXPECT_LT(search->progress().size(), 300u);
  ASSERT_TRUE(search->is_over());
  EXPECT_EQ(search->take().value(), "/here");
}

// A process that it left behind may hold the socket open.
TEST_F(FileFinderTest, AChildThatDiesBeforeItsAnswerIsAnError) {
  const auto search = ask();
  children_.at(0).say("half", false);
  children_[0].die();
  loop_.run_ready();
  EXPECT_TRUE(says(failure(*search), {"files at /x", "before it had answered"}));
  EXPECT_FALSE(timers_.next_ns().has_value()) << "nothing of it is left";
}

TEST_F(FileFinderTest, RefusesWhatIsNoAnswer) {
  const auto kinds = ask();
  ASSERT_TRUE(wire::send_control(children_.at(0).control.get(), {.kind = wire::ControlKind::kLoaded}).ok());
  const auto bytes = ask();
  ASSERT_EQ(::write(children_.at(1).control.get(), "nonsense", 8), 8);
  const auto length = ask();
  children_.at(2).say(std::string(wire::kMaxControlText, 'x'), false);
  children_.at(2).say(std::string(wire::kMaxControlText, 'x'), false);
  for (int i = 0; i < 3; ++i) loop_.run_ready();
  EXPECT_TRUE(says(failure(*kinds), {"files at /x", "not an answer"}));
  EXPECT_TRUE(says(failure(*bytes), {"files at /x", "too short"}));
  EXPECT_TRUE(says(failure(*length), {"files at /x", "too long"}));
}

TEST_F(FileFinderTest, GivesUpAtTheLimit) {
  const auto search = ask();
  ASSERT_TRUE(timers_.next_ns().has_value());
  timers_.run_due(*timers_.next_ns() - 1);
  EXPECT_FALSE(search->is_over());
  timers_.run_due(*timers_.next_ns());
  EXPECT_TRUE(says(failure(*search), {"files at /x", "within 10 s"}));
  EXPECT_EQ(finder_.stuck(), 1u) << "killed, and not dead";
  EXPECT_FALSE(timers_.next_ns().has_value()) << "nobody waits for it";
  children_.at(0).die();
  loop_.run_ready();
  EXPECT_EQ(finder_.stuck(), 0u);
}

TEST_F(FileFinderTest, TimeInWhichTheDaemonDidNotRunDoesNotCount) {
  const auto search = ask();
  const std::uint64_t limit_ns = *timers_.next_ns();
  timers_.postpone(60'000'000'000);
  timers_.run_due(limit_ns);
  EXPECT_FALSE(search->is_over());
  EXPECT_EQ(*timers_.next_ns(), limit_ns + 60'000'000'000);
}

TEST_F(FileFinderTest, OthersWaitForAPlace) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FinderChildren().most_running + 2; ++i) searches.push_back(ask());
  EXPECT_EQ(children_.size(), FinderChildren().most_running);
  children_[3].say("yes", true);
  loop_.run_ready();
  EXPECT_EQ(children_.size(), FinderChildren().most_running) << "it has answered, and is still there";
  children_[3].die();
  loop_.run_ready();
  EXPECT_EQ(children_.size(), FinderChildren().most_running + 1);
  searches.back().reset();  // given up while it waited
  tick_late();
  EXPECT_EQ(children_.size(), FinderChildren().most_running + 1) << "nobody asks any more";
}

TEST_F(FileFinderTest, RefusesWhenTooManyCannotBeEnded) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  while (finder_.stuck() < FileFinder::kMostStuck) {
    searches.push_back(ask());
    ASSERT_FALSE(searches.back()->is_over());
    tick_late();
  }
  const auto refused = ask();
  EXPECT_TRUE(says(failure(*refused), {"files at /x", "32 processes", "cannot be ended"}));
  EXPECT_EQ(children_.size(), FileFinder::kMostStuck);
  children_[5].die();
  loop_.run_ready();
  EXPECT_FALSE(ask()->is_over()) << "there is room again";
}

TEST_F(FileFinderTest, RefusesSearchesOfClientsWhenTooManyWait) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FinderChildren().most_running + FileFinder::kMostWaiting; ++i) {
    EXPECT_TRUE(finder_.check_room("files at /x", 1).ok());
    searches.push_back(ask());
    ASSERT_FALSE(searches.back()->is_over()) << i;
  }
  const auto refused = ask();
  ASSERT_TRUE(refused->is_over());
  const Status why = refused->take().status();
  EXPECT_EQ(why.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(why.message(), {"files at /x", "64 searches", "try again"}));
  EXPECT_EQ(finder_.check_room("files at /y", 1).code(), StatusCode::kOverloaded);
  EXPECT_FALSE(ask("?", Asker::kDaemon)->is_over()) << "the daemon's own are not refused";
  EXPECT_FALSE(ask("?", Asker::kConfiguration)->is_over());
  searches.back().reset();
  EXPECT_FALSE(ask()->is_over()) << "there is room again";
}

TEST_F(FileFinderTest, OneProcessHasItsShareOfThePlaces) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FinderChildren().most_running_of_process + 2; ++i) searches.push_back(ask_as(1));
  EXPECT_EQ(children_.size(), FinderChildren().most_running_of_process);
  searches.push_back(ask_as(2));
  EXPECT_EQ(children_.size(), FinderChildren().most_running_of_process + 1) << "it waits for nobody";
  for (std::size_t i = 0; i < FinderChildren().most_running; ++i) searches.push_back(ask("?", Asker::kDaemon));
  EXPECT_EQ(children_.size(), FinderChildren().most_running) << "the daemon's own have no share";
  EXPECT_EQ(next_after(0), "?") << "of the daemon";
}

TEST_F(FileFinderTest, OneProcessHasItsShareOfThoseThatWait) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FinderChildren().most_running_of_process + FileFinder::kMostWaitingOfProcess; ++i) {
    searches.push_back(ask_as(1));
    ASSERT_FALSE(searches.back()->is_over()) << i;
  }
  const auto refused = ask_as(1);
  ASSERT_TRUE(refused->is_over());
  const Status why = refused->take().status();
  EXPECT_EQ(why.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(why.message(), {"files at /x", "16 searches", "one process", "try again"}));
  EXPECT_EQ(finder_.check_room("files at /y", 1).code(), StatusCode::kOverloaded);
  EXPECT_FALSE(ask_as(2)->is_over());
  children_[0].die();
  loop_.run_ready();
  EXPECT_FALSE(ask_as(1)->is_over()) << "there is room again";
}

TEST_F(FileFinderTest, OneProcessHasItsShareOfThoseThatCannotBeEnded) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FileFinder::kMostStuckOfProcess + FinderChildren().most_running_of_process; ++i)
    searches.push_back(ask_as(1));
  tick_late();
  ASSERT_FALSE(searches.back()->is_over());
  tick_late();
  EXPECT_EQ(finder_.stuck(), FileFinder::kMostStuckOfProcess);
  EXPECT_TRUE(says(failure(*searches.back()), {"files at /x", "8 processes", "one process", "cannot be ended"}));
  EXPECT_TRUE(ask_as(1)->is_over());
  EXPECT_FALSE(ask_as(2)->is_over());
  children_[3].die();
  loop_.run_ready();
  EXPECT_FALSE(ask_as(1)->is_over()) << "there is room again";
}

TEST_F(FileFinderTest, TheConfigurationGoesFirstAndClientsLast) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  for (std::size_t i = 0; i < FinderChildren().most_running; ++i) searches.push_back(ask());
  searches.push_back(ask("client"));
  searches.push_back(ask("model 1", Asker::kDaemon));
  searches.push_back(ask("model 2", Asker::kDaemon));
  searches.push_back(ask("configuration", Asker::kConfiguration));
  EXPECT_EQ(next_after(0), "configuration");
  EXPECT_EQ(next_after(1), "model 1");
  EXPECT_EQ(next_after(2), "model 2");
  EXPECT_EQ(next_after(3), "client");
}

TEST_F(FileFinderTest, TheConfigurationIsReadThoughManyCannotBeEnded) {
  std::vector<std::unique_ptr<FileSearch>> searches;
  while (finder_.stuck() < FileFinder::kMostStuck) {
    searches.push_back(ask());
    tick_late();
  }
  ASSERT_TRUE(ask("?", Asker::kDaemon)->is_over());
  for (std::size_t i = 0; i < FileFinder::kMoreStuckForConfiguration; ++i) {
    searches.push_back(ask("configuration", Asker::kConfiguration));
    ASSERT_FALSE(searches.back()->is_over()) << i;
    tick_late();
  }
  const auto refused = ask("configuration", Asker::kConfiguration);
  EXPECT_TRUE(says(failure(*refused), {"files at /x", "40 processes", "cannot be ended"}));
}

// Clients and operators can ask again. Nobody asks again for the daemon's own models.
TEST_F(FileFinderTest, TheDaemonsOwnSearchesWaitUntilAProcessCanBeStarted) {
  shortage_ = Status(StatusCode::kInternal, "fork for /worker: Resource temporarily unavailable");
  const auto own = ask("own", Asker::kDaemon);
  EXPECT_FALSE(own->is_over()) << own->take().status().to_string();
  for (const Asker asker : {Asker::kClient, Asker::kStart}) {
    const auto asked = ask("asked", asker);
    ASSERT_TRUE(asked->is_over());
    const Status why = asked->take().status();
    EXPECT_EQ(why.code(), StatusCode::kOverloaded) << "it may succeed later";
    EXPECT_TRUE(says(why.message(), {"files at /x", "temporarily unavailable"}));
  }
  for (int tries = 0; tries < 10; ++tries) {
    ASSERT_TRUE(timers_.next_ns().has_value());
    timers_.run_due(*timers_.next_ns());
    ASSERT_FALSE(own->is_over());
  }
  EXPECT_GT(*timers_.next_ns(), monotonic_now_ns()) << "it waits";
  shortage_ = {};
  timers_.run_due(*timers_.next_ns());
  ASSERT_EQ(children_.size(), 1u);
  children_[0].say("found", true);
  loop_.run_ready();
  ASSERT_TRUE(own->is_over());
  EXPECT_EQ(own->take().value(), "found");
}

// Whoever sent SIGHUP learns only from the log how it ended.
TEST_F(FileFinderTest, TheConfigurationOfARunningDaemonWaitsUntilAProcessCanBeStarted) {
  shortage_ = Status(StatusCode::kInternal, "fork for /worker: Resource temporarily unavailable");
  const auto configuration = ask("configuration", Asker::kConfiguration);
  EXPECT_FALSE(configuration->is_over()) << configuration->take().status().to_string();
  shortage_ = {};
  timers_.run_due(timers_.next_ns().value());
  ASSERT_EQ(children_.size(), 1u);
  children_[0].say("found", true);
  loop_.run_ready();
  ASSERT_TRUE(configuration->is_over());
  EXPECT_EQ(configuration->take().value(), "found");
}

TEST_F(FileFinderTest, AQuestionThatIsTooLongIsRefusedAndDelaysNobody) {
  const std::string question(wire::kMaxControlText + 1, 'x');
  for (const Asker asker : {Asker::kClient, Asker::kDaemon, Asker::kStart, Asker::kConfiguration}) {
    const auto asked = ask(question, asker);
    ASSERT_TRUE(asked->is_over());
    const Status why = asked->take().status();
    EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << "it never succeeds";
    EXPECT_TRUE(says(why.message(), {"files at /x", "61441 bytes", "at most 61440", "`shapes`"}));
  }
  EXPECT_TRUE(children_.empty());
  EXPECT_FALSE(timers_.next_ns().has_value()) << "nothing is tried again";
  EXPECT_FALSE(ask()->is_over());
}

TEST_F(FileFinderTest, AQuestionThatIsGivenUpIsForgotten) {
  auto search = ask();
  search.reset();
  children_[0].die();
  loop_.run_ready();
  EXPECT_EQ(over_, 0);
  EXPECT_FALSE(timers_.next_ns().has_value());
}

TEST(FileFinder, KillsARealChildAndNamesItsEnd) {
  Clock clock;
  EventLoop loop;
  Timers timers;
  Logger log("test", LogMode::kDropping);
  FileFinder finder({.program = "/bin/false"}, kMostBytes, clock, loop, timers, log, [] {});
  const auto search = finder.ask(Asker::kClient, "files at /x", "?", 1);
  pollfd ready{loop.fd(), POLLIN, 0};
  while (!search->is_over()) {
    ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
    loop.run_ready();
  }
  EXPECT_TRUE(says(search->take().status().message(), {"files at /x", "exited with 1"}));
  FileFinder nowhere({.program = "/nowhere/worker"}, kMostBytes, clock, loop, timers, log, [] {});
  const auto none = nowhere.ask(Asker::kClient, "files at /x", "?", 1);
  ASSERT_TRUE(none->is_over());
  EXPECT_TRUE(says(none->take().status().message(), {"files at /x", "cannot be started", "/nowhere/worker"}));
}

}  // namespace
}  // namespace shoal::supervisor
