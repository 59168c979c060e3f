// Connections that are idle, too many, or too fast must not disturb other clients.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "tests/integration/raw_client.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

constexpr int kSilent = 2000;
constexpr int kRounds =
    12;  // at most, until the costs are alike. Each is the least of all: noise only adds, and lasts beside load
constexpr double kAllowedRatio = 1.5;
constexpr double kNoiseMs = 0.05;          // of the processor time: caches that others use, too. 25 ns for each silent one
constexpr double kLongestAnswerMs = 1000;  // a daemon that waits for one silent peer waits for 2 s

/// What 1000 requests of one client cost. Processor time is compared, because a busy machine changes the latency.
struct Cost {
  double processor_ms = 0;  ///< of the daemon: the 10th percentile, because it has other work during most requests
  double longest_ms = 0;    ///< the answer that took longest
};

Cost cost_of_requests(const DaemonFixture& daemon, Pool& pool) {
  const Tensor input = counting({4});
  std::vector<double> processor_ms;
  Cost cost;
  for (int i = 0; i < 1000; ++i) {
    const auto processor = processor_time_of(daemon.pid());
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(pool.predict("echo", {{"data", input}}).ok());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    cost.longest_ms = std::max(cost.longest_ms, took.count());
    processor_ms.push_back(std::chrono::duration<double, std::milli>(processor_time_of(daemon.pid()) - processor).count());
  }
  std::ranges::nth_element(processor_ms, processor_ms.begin() + 100);
  cost.processor_ms = processor_ms[100];
  return cost;
}

/// 2000 peers come and then say nothing more, again and again. One client asks all the time; its requests must not cost more than
/// before.
///   are_disconnected  the daemon closes them after a while
///   descriptors       how many descriptors each of them may cost the daemon
void expect_no_cost(const std::function<std::shared_ptr<void>(const DaemonFixture&)>& come, bool are_disconnected,
                    int descriptors) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < rlim_t{kSilent} * 10) GTEST_SKIP() << "too few descriptors here: " << limit.rlim_cur;
  DaemonFixture daemon({.limits = "connection_rate = 0"});  // so that all of them are there at the same time
  Pool pool = daemon.connect();
  (void)cost_of_requests(daemon, pool);  // warms up
  const int at_first = descriptors_of(daemon.pid());
  int most = 0;
  double alone_ms = 1e9, beside_ms = std::numeric_limits<double>::infinity();
  const auto are_alike = [&] { return beside_ms <= std::max(kAllowedRatio * alone_ms, alone_ms + kNoiseMs); };
  for (int round = 0; round < kRounds && !are_alike() && !testing::Test::HasFailure(); ++round) {
    alone_ms = std::min(alone_ms, cost_of_requests(daemon, pool).processor_ms);
    std::vector<std::shared_ptr<void>> silent;
    for (int i = 0; i < kSilent && !testing::Test::HasFailure(); ++i) silent.push_back(come(daemon));
    const Cost beside = cost_of_requests(daemon, pool);
    beside_ms = std::min(beside_ms, beside.processor_ms);
    EXPECT_LT(beside.longest_ms, kLongestAnswerMs);
    most = std::max(most, descriptors_of(daemon.pid()));
    if (!are_disconnected) silent.clear();
    EXPECT_TRUE(eventually([&] { return descriptors_of(daemon.pid()) <= at_first + 2; })) << descriptors_of(daemon.pid());
  }
  EXPECT_TRUE(are_alike()) << beside_ms << " ms of the daemon's processor time for a request; alone " << alone_ms;
  EXPECT_GT(most, at_first + kSilent / 10);  // they were there
  EXPECT_LE(most, at_first + descriptors * kSilent);
  std::printf("%.3f ms of processor time a request alone, %.3f ms beside %d silent connections\n", alone_ms, beside_ms, kSilent);
}

TEST(SilentClients, ConnectionsThatSayNothingCostOthersNothing) {
  const auto come = [](const DaemonFixture& daemon) {
    auto one = std::make_shared<RawClient>(daemon.directory());
    one->connect();
    return one;
  };
  expect_no_cost(come, true, 2);  // a socket and a pidfd each
}

// They attach and say that they listen, and never speak on it.
TEST(SilentClients, ClientsThatDoNotSpeakZeroMqCostOthersNothing) {
  struct Mute {
    explicit Mute(const DaemonFixture& daemon) : client(daemon.directory()) {
      EXPECT_FALSE(client.attach_until_path().empty());
      listener = client.take_listener();
      EXPECT_TRUE(wire::send_control(client.attach_socket(), {.kind = wire::ControlKind::kBound}).ok());
    }
    RawClient client;
    UniqueFd listener;
  };
  expect_no_cost([](const DaemonFixture& daemon) { return std::make_shared<Mute>(daemon); }, true, 6);
}

TEST(SilentClients, ClientsThatAskNothingCostOthersNothing) {
  constexpr std::size_t kPerContext = 500;
  std::shared_ptr<wire::MessageContext> context;
  std::size_t count = 0;
  const auto come = [&](const DaemonFixture& daemon) {
    if (count++ % kPerContext == 0) context = std::make_shared<wire::MessageContext>();
    auto one = std::make_shared<RawClient>(daemon.directory(), context);
    one->attach();
    return one;
  };
  expect_no_cost(come, false, 6);
}

/// Processor time of the threads of that process that have this name.
std::chrono::nanoseconds processor_time_of_threads(pid_t pid, const std::string& name) {
  std::chrono::nanoseconds all{0};
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string its_name;
    std::int64_t ns = 0;
    std::getline(std::ifstream(thread.path() / "comm") >> std::ws, its_name);
    std::ifstream(thread.path() / "schedstat") >> ns;
    if (its_name == name) all += std::chrono::nanoseconds(ns);
  }
  return all;
}

// The kernel frees the pages of an arena in the thread that closes the last descriptor. A client that dies closes its own at
// about the same time as the daemon, so this one has closed them before.
TEST(DeadClients, TheirArenasAreFreedBesideTheLoop) {
  const DaemonFixture daemon;
  std::optional<RawClient> rich(std::in_place, daemon.directory());
  rich->attach(1 << 29, 4096);
  rich->forget_arenas();
  const auto loop_before = processor_time_of_threads(daemon.pid(), "shoald");
  const auto closer_before = processor_time_of_threads(daemon.pid(), "shoal-closer");
  rich.reset();
  std::chrono::duration<double, std::milli> loop{}, closer{};
  EXPECT_TRUE(eventually([&] {
    loop = processor_time_of_threads(daemon.pid(), "shoald") - loop_before;
    closer = processor_time_of_threads(daemon.pid(), "shoal-closer") - closer_before;
    return closer.count() > 5 && closer > loop;
  })) << loop.count()
      << " ms of the loop, " << closer.count() << " ms of the closer";
}

// As if the daemon had stood still until they gave up: nobody listens at their sockets.
TEST(Limits, ClientsThatGaveUpBreakNoRule) {
  const DaemonFixture daemon;
  for (int i = 0; i < 20; ++i) {
    RawClient late(daemon.directory());
    EXPECT_FALSE(late.attach_until_path().empty());
    ASSERT_TRUE(wire::send_control(late.attach_socket(), {.kind = wire::ControlKind::kBound}).ok());
  }
  EXPECT_TRUE(daemon.connect().predict("echo", {{"data", counting({4})}}).ok());
}

TEST(Limits, AClientThatAsksTooOftenHearsWhenToAskAgainAndAnotherDoesNot) {
  DaemonFixture daemon({.limits = "client_rate = 100"});
  Pool eager = daemon.connect(), modest = daemon.connect();
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const Prediction asked = eager.submit("echo", {{"data", counting({4})}});
    const Outcome& outcome = asked.outcome();
    if (outcome.outputs.ok()) continue;
    ++refused;
    EXPECT_EQ(outcome.outputs.status().code(), StatusCode::kOverloaded);
    EXPECT_NE(outcome.outputs.status().message().find("client_rate"), std::string::npos);
    EXPECT_GT(outcome.retry_after.count(), 0);
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(modest.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(Limits, AClientHasNoMoreRequestsUnderWayThanItMay) {
  DaemonFixture daemon({.models = {"slow=builtin:identity"}, .limits = "client_requests = 3"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("slow", {{"data", counting({4})}}).ok());
  StoppedModel slow(daemon, "slow");
  std::vector<Prediction> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(pool.submit("slow", {{"data", counting({4})}}));
  EXPECT_EQ(asked[3].get().status().code(), StatusCode::kOverloaded);
  EXPECT_NE(asked[3].get().status().message().find("client_requests"), std::string::npos) << asked[3].get().status().to_string();
  EXPECT_EQ(daemon.model("slow")["counts"]["refused"], 1);
  slow.go_on();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(asked[static_cast<std::size_t>(i)].get().ok()) << i;
  EXPECT_TRUE(pool.predict("slow", {{"data", counting({4})}}).ok());
}

TEST(Limits, AClientHasItsShareOfAQueueAndPlacesAreLeftForOthers) {
  DaemonFixture daemon({.models = {"slow=builtin:identity,queue_limit=20"}, .limits = "client_queue_percent = 60"});
  Pool greedy = daemon.connect(), modest = daemon.connect();
  for (Pool* pool : {&greedy, &modest}) ASSERT_TRUE(pool->predict("slow", {{"data", counting({4})}}).ok());
  StoppedModel slow(daemon, "slow");
  std::vector<Prediction> asked;
  for (int i = 0; i < 200; ++i) asked.push_back(greedy.submit("slow", {{"data", counting({4})}}));
  EXPECT_EQ(asked.back().get().status().code(), StatusCode::kOverloaded);
  EXPECT_NE(asked.back().get().status().message().find("client_queue_percent"), std::string::npos)
      << asked.back().get().status().to_string();
  const Prediction admitted = modest.submit("slow", {{"data", counting({4})}});
  slow.go_on();
  EXPECT_TRUE(admitted.get().ok());
}

TEST(Limits, TheNumberOfClientsIsLimitedUntilTheConfigurationAllowsMore) {
  DaemonFixture daemon({.limits = "connections = 2"});
  std::vector<Pool> pools;
  const auto connect = [&] {
    auto pool = Pool::connect({.directory = daemon.directory()});
    if (pool.ok()) pools.push_back(*std::move(pool));
    return pool.status();
  };
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(eventually([&] { return connect().ok(); }));  // the fixture's own connection may not be closed yet
  const Status refused = connect();
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.message().find("connections"), std::string::npos) << refused.to_string();
  daemon.change_limits("connections = 3");
  EXPECT_TRUE(eventually([&] { return connect().ok(); }));
  EXPECT_EQ(connect().code(), StatusCode::kOverloaded);
  for (Pool& pool : pools) EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(Limits, TheRateOfNewClientsIsLimitedAndTheOthersWait) {
  DaemonFixture daemon({.limits = "connection_rate = 20"});  // after a pause 40
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto seconds_of = [&](int count) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<RawClient>(daemon.directory()));
      EXPECT_FALSE(clients.back()->attach_until_path().empty());  // it waited, and was not refused
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_GT(seconds_of(80), 1.9) << "40 of them wait for a turn";
  daemon.change_limits("connection_rate = 0");
  EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "configuration_taken"); }));
  EXPECT_LT(seconds_of(100), 2.5) << "nobody waits any more";
}

TEST(Limits, ALongMessageIsRefusedWithTheLimitNamedAndNothingBreaks) {
  DaemonFixture daemon({.limits = "client_message_mb = 1"});
  Pool pool = daemon.connect({.arena_limit_bytes = 4096});
  const auto refused = pool.predict("echo", {{"data", counting({1 << 20})}});  // 4 MiB, and no room in the arena
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("client_message_mb"), std::string::npos);
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({1 << 16})}}).ok());
  // A client that sends it anyway is disconnected, and no other client is.
  RawClient rude(daemon.directory());
  rude.attach();
  wire::Request request = rude.request(2);
  request.inputs = {wire::to_wire({DType::kFloat32, Shape{1 << 20}, nullptr})};
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  std::vector<std::byte> head, tensor(4 << 20);
  wire::encode_request(request, head);
  const std::span<const std::byte> frames[] = {head, tensor};
  rude.send(wire::Frames(frames));
  const wire::Request small = rude.request(3);
  std::vector<std::byte> small_frame;
  wire::encode_request(small, small_frame);
  const std::span<const std::byte> small_frames[] = {small_frame};
  EXPECT_TRUE(eventually([&] { return !rude.try_send(wire::Frames(small_frames)); })) << "it is still connected";
  EXPECT_LT(daemon.stats()["supervisor"]["client_bytes"], 2 << 20) << "the daemon never had it";
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

// A process asks for traces, 128 KiB each, as fast as it can. Its model is described all the same, and another process hears all.
TEST(Limits, AProcessThatAsksForLongAnswersAgainAndAgainMustWaitAndAnotherNeedNot) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  // A daemon that has to share its processor may be too slow to reach its own limit. Only root may do this.
  for (const pid_t hurried : {daemon.pid(), ::getpid()}) (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(hurried), -15);
  RawClient greedy(daemon.directory());
  greedy.attach();
  const auto ask = [&](const std::string& question) {
    greedy.ask(1, question);
    EXPECT_TRUE(greedy.receive());
    return static_cast<StatusCode>(wire::decode_control(greedy.message()[0]).value().status);
  };
  ASSERT_TRUE(eventually([&] { return ask(R"({"what": "trace"})") == StatusCode::kOverloaded; }));
  const auto text = greedy.message()[1];
  const auto why = nlohmann::json::parse(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  EXPECT_TRUE(says(why["message"].get<std::string>(), {"control", "16 MiB"}));
  EXPECT_GT(why["retry_after_ms"], 0);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ask(R"({"what": "describe", "model": "echo"})"), StatusCode::kOk);
    EXPECT_EQ(ask(R"({"what": "ping"})"), StatusCode::kOk);
    while (ask(R"({"what": "trace"})") == StatusCode::kOk) {
    }
  }
  EXPECT_EQ(exit_code_of([&] { return daemon.connect().stats().ok() ? 0 : 1; }), 0);
  EXPECT_TRUE(eventually([&] { return ask(R"({"what": "list"})") == StatusCode::kOk; })) << "after a pause";
}

}  // namespace
}  // namespace shoal::test
