// A daemon that is stopped, and a model that never loads: no call waits longer than its deadline, and no request is lost when the
// daemon continues.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "shm/base/memory_group.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/local_address.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kSoon = 2s;              // on a busy machine
constexpr auto kSilence = 200ms;        // control_timeout
constexpr std::int64_t kAll = 1 << 21;  // floats that fill the input arena

Tensors input() { return {{"data", counting({4})}}; }

/// What `call` returns within kSoon. A call that does not end is a failure; `release` must make it end.
Status in_time(const std::function<Status()>& call, const std::function<void()>& release) {
  auto ending = std::async(std::launch::async, call);
  if (ending.wait_for(kSoon) != std::future_status::ready) {
    ADD_FAILURE() << "the call did not end within 2 s";
    release();
  }
  return ending.get();
}

class StoppedDaemonTest : public testing::Test {
 protected:
  ~StoppedDaemonTest() override { go_on(); }
  void stop() const { stop_process(daemon_.pid()); }
  void go_on() const { ::kill(daemon_.pid(), SIGCONT); }
  Status in_time(const std::function<Status()>& call) const {
    return test::in_time(call, [this] { go_on(); });
  }
  /// That the call was given up because the daemon said nothing, and names who was asked what.
  void expect_silence(const std::function<Status()>& call, std::string_view asked) const {
    const Status status = in_time(call);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << asked << ": " << status.to_string();
    EXPECT_TRUE(says(status.message(), {asked, daemon_.directory(), std::to_string(daemon_.pid()), "control_timeout"}));
  }

  const DaemonFixture daemon_{{.models = {"echo=builtin:identity", "quick=builtin:identity,timeout_ms=300"}}};
  Pool pool_ = daemon_.connect({.arena_limit_bytes = 8 << 20, .control_timeout = kSilence});
};

TEST_F(StoppedDaemonTest, EveryCallEndsWhenTheDaemonIsSilent) {
  ASSERT_TRUE(pool_.describe("echo").ok());
  stop();
  expect_silence([&] { return pool_.describe("echo").status(); }, "'describe' of model 'echo'");
  expect_silence([&] { return pool_.list().status(); }, "'list'");
  expect_silence([&] { return pool_.stats().status(); }, "'stats'");
  expect_silence([&] { return pool_.crashes("echo").status(); }, "'crashes' of model 'echo'");
  expect_silence([&] { return pool_.trace().status(); }, "'trace'");
  expect_silence([&] { return pool_.load("more", "builtin:identity").status(); }, "'load' of model 'more'");
  expect_silence([&] { return pool_.reload("echo").status(); }, "'reload' of model 'echo'");
  expect_silence([&] { return pool_.scale("echo", 2).status(); }, "'scale' of model 'echo'");
  expect_silence([&] { return pool_.drain("echo").status(); }, "'drain' of model 'echo'");
  expect_silence([&] { return pool_.unload("more").status(); }, "'unload' of model 'more'");
  go_on();
  EXPECT_TRUE(pool_.stats().ok());
  stop();
  expect_silence([&] { return pool_.stop(); }, "'stop'");
}

TEST_F(StoppedDaemonTest, CallsOfManyThreadsEndWhenTheDaemonIsSilent) {
  stop();
  const auto begin = Clock::now();
  std::vector<std::future<Status>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(std::async(std::launch::async, [&] { return pool_.stats().status(); }));
  for (auto& call : calls) {
    if (call.wait_until(begin + kSoon) != std::future_status::ready) {
      ADD_FAILURE() << "a call did not end within 2 s";
      go_on();
    }
    EXPECT_EQ(call.get().code(), StatusCode::kUnavailable);
  }
}

TEST_F(StoppedDaemonTest, ARequestWithoutATimeoutEndsSoonAfterTheModelsDefault) {
  ASSERT_TRUE(pool_.predict("quick", input()).ok());
  stop();
  const auto begin = Clock::now();
  const Prediction asked = pool_.submit("quick", input());
  expect_silence([&] { return asked.get().status(); }, "a request of model 'quick'");
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
  EXPECT_GE(Clock::now() - begin, 300ms) << "the model's timeout_ms";
  go_on();
  EXPECT_TRUE(pool_.predict("quick", input()).ok());
}

TEST_F(StoppedDaemonTest, ARequestOfAnUnknownModelEndsWithoutATimeoutWhenTheDaemonIsSilent) {
  stop();
  const Prediction asked = pool_.submit("unknown", input());
  expect_silence([&] { return asked.get().status(); }, "a request of model 'unknown'");
  EXPECT_EQ(asked.outcome().ran, Ran::kNo);
}

TEST_F(StoppedDaemonTest, OneThatGoesOnInTimeLosesNoAnswer) {
  Pool patient = daemon_.connect({.control_timeout = 1min});
  stop();
  auto stats = std::async(std::launch::async, [&] { return patient.stats().status(); });
  auto outputs = std::async(std::launch::async, [&] { return patient.predict("echo", input()).status(); });
  EXPECT_EQ(stats.wait_for(4 * kSilence), std::future_status::timeout);
  go_on();
  EXPECT_TRUE(stats.get().ok());
  EXPECT_TRUE(outputs.get().ok());
}

TEST_F(StoppedDaemonTest, PingIsAnswered) {
  RawClient client(daemon_.directory());
  client.attach();
  client.ask(7, R"({"what": "ping"})");
  ASSERT_TRUE(client.receive());
  const auto answer = wire::decode_control(client.message()[0]).value();
  EXPECT_EQ(answer.seq, 7u);
  EXPECT_EQ(answer.status, 0u);
}

TEST_F(StoppedDaemonTest, ARequestEndsWhenItsTimeIsOver) {
  ASSERT_TRUE(pool_.predict("echo", input()).ok());
  stop();
  const auto begin = Clock::now();
  const Prediction asked = pool_.submit("echo", input(), {.timeout = 50ms});
  Prediction polled = pool_.submit("echo", input(), {.timeout = 50ms});
  EXPECT_EQ(asked.get().status().code(), StatusCode::kDeadlineExceeded) << asked.get().status().to_string();
  EXPECT_TRUE(says(asked.get().status().message(), {"echo", daemon_.directory()}));
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
  EXPECT_TRUE(eventually([&] { return polled.ready(); }));
  EXPECT_LT(Clock::now() - begin, kSoon);
  go_on();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pool_.predict("echo", input()).ok());
}

TEST_F(StoppedDaemonTest, TheSlotsOfARequestThatExpiredComeBack) {
  constexpr std::int64_t kMany = 1 << 18;  // floats; eight such tensors fill the input arena
  const auto large = [] { return Tensors{{"data", counting({kMany})}}; };
  ASSERT_TRUE(pool_.predict("echo", large()).ok());
  stop();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(pool_.predict("echo", large(), {.timeout = 100ms}).ok());
  EXPECT_FALSE(pool_.loan(DType::kFloat32, Shape{kMany}).ok()) << "a worker may still read them";
  go_on();
  EXPECT_TRUE(eventually([&] {
    pool_.poll_once();
    return pool_.loan(DType::kFloat32, Shape{kMany}).ok();
  }));
}

// Inputs for which the arena has no room travel inside messages, which nobody reads.
TEST(StoppedDaemon, RequestsThatExpiredDoNotFillTheClientsHeap) {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kMemoryOfAByte = 5;  // the sanitizer keeps four bytes for each
#else
  constexpr std::uint64_t kMemoryOfAByte = 1;
#endif
  const DaemonFixture daemon({.limits = "client_message_mb = 16"});
  Pool pool = daemon.connect({.arena_limit_bytes = 8 << 20});
  const Tensors large = {{"data", counting({1 << 18})}};  // 1 MiB
  const auto heap_kib = [] { return read_key("/proc/self/status", "RssAnon:").value_or(0); };
  ASSERT_TRUE(pool.predict("echo", large).ok());
  const std::uint64_t before_kib = heap_kib();
  stop_process(daemon.pid());
  std::vector<Prediction> expired;
  for (int i = 0; i < 300; ++i) {
    expired.push_back(pool.submit("echo", large, {.timeout = 50ms}));  // it is sent before, also with a sanitizer
    EXPECT_FALSE(expired.back().get().ok());
  }
  EXPECT_LT(heap_kib(), before_kib + kMemoryOfAByte * 64 * 1024) << "before: " << before_kib;
  const Status last = expired.back().get().status();
  EXPECT_EQ(last.code(), StatusCode::kOverloaded) << last.to_string();
  EXPECT_TRUE(says(last.message(), {"echo", daemon.directory(), "client_message_mb", "16777216"}));
  EXPECT_EQ(expired.back().outcome().ran, Ran::kNo);
  ::kill(daemon.pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return pool.predict("echo", large).ok(); }));
}

TEST_F(StoppedDaemonTest, AWaitWithoutEndUsesNoProcessor) {
  stop();
  Prediction prediction = pool_.submit("echo", input());
  const std::clock_t before = std::clock();
  {
    std::jthread one([&] { EXPECT_TRUE(prediction.wait_for(std::chrono::nanoseconds::max())); });
    std::jthread other([&] { EXPECT_TRUE(prediction.wait_for(std::chrono::nanoseconds::max())); });
    std::this_thread::sleep_for(300ms);
    EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.15);
    go_on();
  }
  EXPECT_TRUE(prediction.get().ok());
}

// ZeroMQ drops messages when too many wait for a peer that does not read. So the client limits the requests under way.
TEST_F(StoppedDaemonTest, MoreRequestsThanItsQueueHoldsAreAnsweredNotLost) {
  ASSERT_TRUE(pool_.describe("echo").ok());
  stop();
  std::vector<Prediction> predictions;
  for (int i = 0; i < 110'000; ++i) predictions.push_back(pool_.submit("echo", input()));
  EXPECT_TRUE(predictions.back().ready());
  EXPECT_EQ(predictions.back().get().status().code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(predictions.back().get().status().message(), {"32768", daemon_.directory()}));
  go_on();
  for (Prediction& prediction : predictions) {
    ASSERT_TRUE(prediction.wait_for(30s)) << "lost";
    const StatusCode code = prediction.get().status().code();
    EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kOverloaded) << prediction.get().status().to_string();
  }
  EXPECT_TRUE(pool_.predict("echo", input()).ok());
}

TEST_F(StoppedDaemonTest, OneOfTheRequestsThatWaitForTheDescriptionIsCanceledAndTheOthersAreAnswered) {
  Pool patient = daemon_.connect({.control_timeout = 1min});
  const SubmitOptions unknown{.version = 1};  // the pool knows only the default version
  stop();
  const Prediction first = patient.submit("echo", input(), unknown), canceled = patient.submit("echo", input(), unknown);
  (void)patient.submit("echo", input(), unknown);  // and is dropped
  const Prediction last = patient.submit("echo", input(), unknown);
  canceled.cancel();
  go_on();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(last.get().ok());
  EXPECT_EQ(canceled.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(daemon_.model().at("counts").at("admitted"), 2);
}

TEST_F(StoppedDaemonTest, ConnectingEndsWhenItsTimeIsOver) {
  stop();
  const sockaddr_un address = wire::local_address(daemon_.directory() + "/attach");
  std::vector<UniqueFd> crowd;  // until the daemon's backlog is full
  do {
    crowd.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (crowd.size() < 10'000 &&
           ::connect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const auto begin = Clock::now();
  const auto late = Pool::connect({.directory = daemon_.directory(), .connect_timeout = 100ms});
  EXPECT_FALSE(late.ok());
  EXPECT_LT(Clock::now() - begin, kSoon);
  EXPECT_TRUE(says(late.status().message(), {daemon_.directory()}));
  go_on();
  EXPECT_TRUE(Pool::connect({.directory = daemon_.directory()}).ok());
}

/// A daemon whose model stays in loading.
class NeverLoaded : public testing::Test {
 protected:
  NeverLoaded() {
    scratch_.write("zygote", "#!/bin/sh\nkill -STOP $$\n");
    std::filesystem::permissions(scratch_.path("zygote"), std::filesystem::perms::owner_all);
    daemon_ = std::make_unique<DaemonFixture>(DaemonSettings{.worker = scratch_.path("zygote"), .wait_until_ready = false});
    EXPECT_TRUE(eventually([&] { return Pool::connect({.directory = daemon_->directory()}).ok(); }));
  }

  const ScratchDirectory scratch_;
  std::unique_ptr<DaemonFixture> daemon_;
};

TEST_F(NeverLoaded, WhoWaitsForTheModelWaitsWhileTheDaemonLives) {
  constexpr auto kShort = 500ms;  // a busy machine may delay a ping
  Pool pool = daemon_->connect({.control_timeout = kShort});
  const auto release = [&] { ::kill(daemon_->pid(), SIGKILL); };
  std::vector<std::future<Status>> waiting;
  waiting.push_back(std::async(std::launch::async, [&] { return pool.describe("echo").status(); }));
  waiting.push_back(std::async(std::launch::async, [&] { return pool.load("more", "builtin:identity").status(); }));
  waiting.push_back(std::async(std::launch::async, [&] { return pool.predict("echo", input()).status(); }));
  for (auto& call : waiting) EXPECT_EQ(call.wait_for(4 * kShort), std::future_status::timeout);
  stop_process(daemon_->pid());
  for (auto& call : waiting) {
    const Status status = in_time([&] { return call.get(); }, release);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
    EXPECT_TRUE(says(status.message(), {"control_timeout", daemon_->directory()}));
  }
  ::kill(daemon_->pid(), SIGCONT);
}

TEST_F(NeverLoaded, ARequestEndsWhenItsTimeIsOver) {
  Pool pool = daemon_->connect();
  const auto begin = Clock::now();
  const Status status = pool.predict("echo", input(), {.timeout = 50ms}).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.to_string();
  EXPECT_TRUE(says(status.message(), {"echo", "loaded"}));
  EXPECT_LT(Clock::now() - begin, kSoon);
}

/// The daemon's model stays in loading, and each request fills the input arena.
class FullArena : public NeverLoaded {
 protected:
  bool is_free() { return pool_.loan(DType::kFloat32, Shape{kAll}).ok(); }
  Prediction submit(SubmitOptions options = {}) {
    Prediction asked = pool_.submit("echo", {{"data", counting({kAll})}}, options);
    EXPECT_FALSE(is_free());
    return asked;
  }

  Pool pool_ = daemon_->connect({.arena_limit_bytes = 8 << 20, .reconnect_timeout = 1min, .control_timeout = kSilence});
};

TEST_F(FullArena, ADroppedRequestReleasesItsSlots) {
  (void)submit();
  EXPECT_TRUE(is_free());
}

TEST_F(FullArena, ACanceledRequestReleasesItsSlots) {
  const Prediction asked = submit();
  asked.cancel();
  EXPECT_TRUE(is_free());
  ASSERT_TRUE(asked.ready());
  EXPECT_EQ(asked.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(asked.outcome().ran, Ran::kNo);
}

TEST_F(FullArena, ARequestWhoseTimeIsOverReleasesItsSlots) {
  const Prediction asked = submit({.timeout = 1s}), other = pool_.submit("echo", input(), {.timeout = 1h});
  EXPECT_EQ(asked.get().status().code(), StatusCode::kDeadlineExceeded) << asked.get().status().to_string();
  EXPECT_TRUE(is_free());
  EXPECT_FALSE(other.ready());
}

TEST_F(FullArena, ARequestThatEndsBecauseTheDaemonIsSilentReleasesItsSlots) {
  const Prediction asked = submit();
  stop_process(daemon_->pid());
  EXPECT_EQ(asked.get().status().code(), StatusCode::kUnavailable) << asked.get().status().to_string();
  EXPECT_TRUE(is_free());
  ::kill(daemon_->pid(), SIGCONT);
}

TEST_F(FullArena, ARequestThatWaitsForTheNextDaemonReleasesItsSlots) {
  const Prediction asked = submit();
  ::kill(daemon_->pid(), SIGKILL);
  EXPECT_EQ(daemon_->wait_for_exit(), 128 + SIGKILL);
  pool_.poll_once();
  EXPECT_FALSE(asked.ready());
  asked.cancel();
  EXPECT_TRUE(is_free());
  EXPECT_EQ(asked.get().status().code(), StatusCode::kCancelled);
}

// Its cancellation does not reach the daemon that is dying.
TEST(DeadDaemon, ARequestThatWasSentAndWaitsForTheNextDaemonReleasesItsSlots) {
  DaemonFixture daemon;
  Pool pool = daemon.connect({.arena_limit_bytes = 8 << 20, .reconnect_timeout = 1min});
  ASSERT_TRUE(pool.describe("echo").ok());
  stop_process(daemon.pid());
  const Prediction asked = pool.submit("echo", {{"data", counting({kAll})}});
  asked.cancel();
  ::kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
  EXPECT_TRUE(asked.wait_for(10s)) << "it waits for the next daemon, to run there";
  EXPECT_EQ(asked.get().status().code(), StatusCode::kCancelled) << asked.get().status().to_string();
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
  EXPECT_TRUE(pool.loan(DType::kFloat32, Shape{kAll}).ok());
}

TEST(DeadDaemon, ARequestThatMayHaveRunSaysSoIfTheNextDaemonHasNoSuchModel) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's thread keeps a zygote from forking that loads while other models serve";
#endif
  DaemonFixture daemon;
  Pool pool = daemon.connect({.arena_limit_bytes = 8 << 20, .reconnect_timeout = 1min});
  ASSERT_TRUE(pool.load("guest", "builtin:identity").ok());
  ASSERT_TRUE(pool.describe("guest").ok());
  stop_process(daemon.pid());
  const Prediction asked = pool.submit("guest", {{"data", counting({4})}});
  ::kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
  daemon.start();
  EXPECT_EQ(asked.get().status().code(), StatusCode::kNotFound) << asked.get().status().to_string();
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
}

TEST(DeadDaemon, ARequestThatMayHaveRunSaysSoIfTheNextDaemonRefusesIt) {
  DaemonFixture daemon;
  Pool pool = daemon.connect({.arena_limit_bytes = 8 << 20, .reconnect_timeout = 1min});
  ASSERT_TRUE(pool.describe("echo").ok());
  stop_process(daemon.pid());
  const Prediction asked = pool.submit("echo", {{"data", counting({4})}});
  ::kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
  daemon.start();
  ASSERT_TRUE(daemon.connect().drain("echo").ok());
  EXPECT_EQ(asked.get().status().code(), StatusCode::kUnavailable) << asked.get().status().to_string();
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
}

// The daemon says that it was not run, and the model is gone.
TEST(UnloadedModel, ARequestForItDidNotRun) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's thread keeps a zygote from forking that loads while other models serve";
#endif
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.load("guest", "builtin:identity").ok());
  ASSERT_TRUE(pool.describe("guest").ok());
  ASSERT_TRUE(daemon.connect().unload("guest").ok());
  const Prediction asked = pool.submit("guest", {{"data", counting({4})}});
  EXPECT_EQ(asked.get().status().code(), StatusCode::kNotFound) << asked.get().status().to_string();
  EXPECT_EQ(asked.outcome().ran, Ran::kNo);
}

TEST_F(NeverLoaded, APoolHasNoMoreRequestsThatWaitThanItMay) {
  Pool pool = daemon_->connect();
  std::vector<Prediction> waiting;
  for (int i = 0; i < 32'768; ++i) waiting.push_back(pool.submit("echo", input()));
  EXPECT_FALSE(waiting.back().ready());
  const Prediction refused = pool.submit("other", input());
  ASSERT_TRUE(refused.ready());
  EXPECT_EQ(refused.get().status().code(), StatusCode::kOverloaded) << refused.get().status().to_string();
  EXPECT_TRUE(says(refused.get().status().message(), {"32768", daemon_->directory()}));
  EXPECT_EQ(refused.outcome().ran, Ran::kNo);
  waiting.pop_back();
  waiting.front().cancel();
  for (int i = 0; i < 2; ++i) waiting.push_back(pool.submit("echo", input()));
  EXPECT_FALSE(waiting.back().ready()) << "two places became free";
  EXPECT_EQ(pool.submit("echo", input()).get().status().code(), StatusCode::kOverloaded);
}

// As a container that is frozen for longer than its deadlines.
TEST(Standstill, BlamesNobodyForTimeInWhichTheDaemonDidNotRun) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own thread keeps a zygote that was stopped from forking";
#endif
  constexpr auto kLoadTimeout = 5s;
  const ScratchDirectory scratch;
  const std::string hang = scratch.path("hang"), worker = scratch.path("worker");  // a zygote stops itself while `hang` exists
  scratch.write("worker", "#!/bin/sh\n[ $1 = --zygote ] && [ -e " + hang + " ] && kill -STOP $$\nexec " +
                              (binary_directory() / "shoal-worker").string() + " \"$@\"\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}, .worker = worker});
  const auto workers = daemon.workers();
  const pid_t zygote = daemon.zygote();
  scratch.write("hang", "");
  auto loaded = std::async(std::launch::async, [&] {
    return daemon.connect({.control_timeout = 5min}).load("late", "builtin:identity,load_timeout_s=5").status();
  });
  pid_t loading = 0;
  EXPECT_TRUE(eventually([&] {
    const auto model = daemon.model("late");
    if (model.is_object() && model["zygote"]["pid"].is_number()) loading = model["zygote"]["pid"];
    return loading != 0;
  }));
  std::vector<pid_t> frozen = daemon.all_processes();
  std::erase(frozen, daemon.pid());
  frozen.push_back(daemon.pid());  // it continues last
  stop_process(daemon.pid());
  for (const pid_t pid : frozen) stop_process(pid);
  std::this_thread::sleep_for(kLoadTimeout + 1s);
  std::filesystem::remove(hang);
  for (const pid_t pid : frozen) {
    if (pid != loading) ::kill(pid, SIGCONT);
  }
  EXPECT_TRUE(daemon.connect().stats().ok()) << "its deadlines are checked";
  if (loading != 0) ::kill(loading, SIGCONT);
  const Status status = loaded.get();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(daemon.connect().predict("echo", input()).ok());
  EXPECT_EQ(daemon.workers(), workers);
  EXPECT_EQ(daemon.zygote(), zygote);
  EXPECT_EQ(daemon.model()["counts"]["worker_deaths"], 0);
}

TEST(Timeout, OneThatIsOverAlreadyIsNotSubmitted) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("echo").ok());
  const Prediction late = pool.submit("echo", input(), {.timeout = -1ns});
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.outcome().ran, Ran::kNo);
  EXPECT_EQ(daemon.model("echo").at("counts").at("admitted"), 0);
}

}  // namespace
}  // namespace shoal::test
