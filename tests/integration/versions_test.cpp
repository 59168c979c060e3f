// Several versions at once, and reloads: no request is lost, no answer is mixed, and a bad new version does not replace the old
// one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "shm/base/memory_group.hpp"
#include "shoal/completion_queue.hpp"
#include "tests/integration/life_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(VersionsTest, ServesTheVersionsOfThePolicySideBySide) {
  for (const int version : {1, 2, 10}) put(version);
  const DaemonFixture daemon({.models = {"net=" + path() + ",versions=latest:2"}});
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "net"), 10);
  EXPECT_EQ(added(pool, "net", 2), 2);
  EXPECT_EQ(added(pool, "net", 10), 10);
  const auto missing = pool.predict("net", input(), {.version = 1});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(contains(missing.status().message(), "no version 1 (served: 2, 10)")) << missing.status().to_string();
  EXPECT_EQ(pool.describe("net").value().version, 10u);
  EXPECT_EQ(pool.describe("net", 2).value().version, 2u);
  EXPECT_EQ(pool.describe("net", 3).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.list().value(), std::vector<std::string>{"net"});
  const Prediction prediction = pool.submit("net", input(), {.version = 2});
  EXPECT_EQ(prediction.outcome().model_version, 2u);
  const auto models = daemon.stats().at("models");
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].at("version"), 10);
  EXPECT_EQ(models[0].at("current"), true);
  EXPECT_EQ(models[1].at("version"), 2);
  EXPECT_EQ(models[1].at("counts").at("ok"), 2);
}

TEST_F(VersionsTest, ServesWhatItCanAtTheStartAndSaysWhatItCannot) {
  put(1);
  fs::create_directories(path("2"));
  const DaemonFixture daemon({.models = {"net=" + path() + ",versions=all"}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object(); }));
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "net"), 1);
  const auto models = daemon.stats().at("models");
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[1].at("state"), "failed");
  EXPECT_TRUE(contains(models[1].at("reason"), path("2"))) << models[1];
  const auto scaled = pool.scale("net", 2);
  EXPECT_TRUE(scaled.ok()) << "what has failed has no workers: " << scaled.status().to_string();
  EXPECT_EQ(daemon.workers("net").size(), 2u);
}

// Anonymous memory only. The daemon also keeps the status pages of the last dead workers, whose size depends on their work.
double heap_bytes(pid_t pid) {
  const auto kib = read_key("/proc/" + std::to_string(pid) + "/status", "RssAnon:");
  EXPECT_TRUE(kib) << "no RssAnon of process " << pid;
  return static_cast<double>(kib.value_or(0)) * 1024;
}

// Reloads under load, and counts lost, mixed and stale answers.
void reload_under_load(const DaemonFixture& daemon, int reloads, const std::function<void(int)>& put_version) {
  Pool admin = daemon.connect({.arena_limit_bytes = 0});
  Load load(daemon, "net");
  const auto reload_to = [&](int version) {
    put_version(version);
    const auto changed = admin.reload("net");
    ASSERT_TRUE(changed.ok()) << changed.status().to_string();
    EXPECT_EQ(changed->outcome, "reloaded");
    EXPECT_EQ(changed->version, static_cast<std::uint64_t>(version));
    load.oldest_version = static_cast<std::uint64_t>(version);
  };
  // Buffers and the records of the last dead workers grow to their bounds in about 600 reloads, ZeroMQ's old connections in about
  // 12. Growth is measured after that.
  const bool is_long = reloads >= 1000;
  const int first = is_long ? 700 : 25;
  for (int version = 2; version < first && !testing::Test::HasFatalFailure(); ++version) reload_to(version);
  const auto before = sample_process(daemon.pid());
  const double heap_before = heap_bytes(daemon.pid());
  for (int version = first; version < first + reloads && !testing::Test::HasFatalFailure(); ++version) reload_to(version);
  ASSERT_TRUE(eventually([&] { return daemon.all_processes().size() == 4; })) << "supervisor, zygote and two workers";
  EXPECT_TRUE(eventually([&] { return sample_process(daemon.pid())->descriptors <= before->descriptors; }))
      << sample_process(daemon.pid())->descriptors << " descriptors, " << before->descriptors << " at the start";
  const double heap_after = heap_bytes(daemon.pid());
  load.end();
  EXPECT_GT(load.answered, 10 * reloads);
  EXPECT_EQ(load.failed, 0);
  EXPECT_EQ(load.mixed, 0) << "an answer that is not its version's";
  EXPECT_EQ(load.stale, 0) << "an answer older than the version that served when it was asked for";
  EXPECT_LT(heap_after, heap_before * 1.01 + (is_long ? 0 : 400e3));
  std::printf("%d reloads: %d answers; the daemon's heap %.0f KB before, %.0f KB after\n", reloads, load.answered.load(),
              heap_before / 1e3, heap_after / 1e3);
  EXPECT_EQ(daemon.stats().at("models").size(), 1u);
}

TEST_F(VersionsTest, ReloadsUnderLoadLoseAndMixNothing) {
  const char* is_long = std::getenv("SHOAL_TEST_LONG");
  put(1);
  const DaemonFixture daemon({.models = {"net=" + path() + ",workers=2"}});
  reload_under_load(daemon, is_long && *is_long ? 1000 : 50, [&](int version) {
    put(version);
    fs::remove_all(path(std::to_string(version - 1)));
  });
}

TEST_F(VersionsTest, AVersionThatDiesOfItsProbeNeverServes) {
  put(1);
  const DaemonFixture daemon({.models = {"net=" + path() + ",device=cpu-reference"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  Load load(daemon, "net", 1);
  put(2,
      {{.op = "_fault_abort", .name = "crash", .attributes = {{"scalar", "0"}}, .weights = {}}});  // the probe's input is zeros
  const auto changed = pool.reload("net");
  EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(changed.status().message(), "goes on as it was")) << changed.status().to_string();
  EXPECT_TRUE(contains(changed.status().message(), "version 2")) << changed.status().to_string();
  EXPECT_TRUE(contains(changed.status().message(), "probe")) << changed.status().to_string();
  EXPECT_EQ(added(pool, "net"), 1);
  EXPECT_TRUE(eventually([&] { return daemon.stats().at("models").size() == 1; })) << "nothing of version 2 stays";
  EXPECT_TRUE(contains(daemon.model("net").at("reason"), "probe"));
  EXPECT_EQ(daemon.model("net").at("state"), "ready");
  EXPECT_EQ(added(pool, "net"), 1);
  load.end();
  EXPECT_EQ(load.failed + load.mixed, 0);
  put(2);
  EXPECT_EQ(pool.reload("net").value().version, 2u);
  EXPECT_EQ(daemon.model("net").at("reason"), "");
}

TEST_F(VersionsTest, ACorruptVersionKeepsTheOldOne) {
  put(1);
  const DaemonFixture daemon({.models = {"net=" + path()}});
  Pool pool = daemon.connect();
  ASSERT_EQ(added(pool, "net"), 1);
  put(2);
  write_text("2/net-symbol.json", "{\"nodes\": [");
  const auto changed = pool.reload("net");
  EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(changed.status().message(), "net-symbol.json")) << changed.status().to_string();
  EXPECT_EQ(added(pool, "net"), 1);
  fs::remove(path("2/net-symbol.json"));
  EXPECT_TRUE(contains(pool.reload("net").status().message(), path("2")));
  EXPECT_EQ(added(pool, "net"), 1);
  EXPECT_TRUE(eventually([&] { return daemon.all_processes().size() == 3; }));
}

TEST_F(VersionsTest, AReloadOfUnchangedFilesLeavesThemAlone) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  Pool pool = daemon.connect();
  const auto workers = daemon.workers("net");
  EXPECT_EQ(pool.reload("net").value().outcome, "unchanged");
  EXPECT_EQ(daemon.workers("net"), workers);
  EXPECT_EQ(pool.reload("net", "", true).value().outcome, "reloaded");
  EXPECT_NE(daemon.workers("net"), workers);
  write("net", 5);  // the same path, another content
  EXPECT_EQ(pool.reload("net").value().outcome, "reloaded");
  EXPECT_EQ(added(pool, "net"), 5);
  write("other", 7);
  EXPECT_EQ(pool.reload("net", path("other") + ",workers=2").value().workers, 2);
  EXPECT_EQ(added(pool, "net"), 7);
  EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "the new place is kept";
  EXPECT_EQ(daemon.workers("net").size(), 2u);
}

// A reload waits for the requests of the old version however long they take. Commands wait 30 s at most.
TEST_F(VersionsTest, AReloadAwaitsWhatTheOldVersionRunsHoweverLongItTakes) {
  const ChainNode step{.op = "_fault_slow", .name = "step", .attributes = {{"scalar", "100"}}, .weights = {}};
  std::vector<ChainNode> chain(330, step);
  for (std::size_t i = 0; i < chain.size(); ++i) chain[i].name += std::to_string(i);
  put(1, chain);
  const DaemonFixture daemon(
      {.models = {"net=" + path() + ",device=cpu-reference,timeout_ms=0,tuning_ms=0"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("net").ok());
  const Prediction last = pool.submit("net", input());
  ASSERT_TRUE(eventually([&] { return daemon.model("net")["queue"]["running"] == 1; }));
  put(2);
  Pool admin = daemon.connect();
  const auto changed = admin.reload("net");
  EXPECT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_LT(changed->took, 32s);
  EXPECT_FALSE(last.wait_for(1ms)) << "it was not slow: the test shows nothing";
  EXPECT_EQ(added(admin, "net"), 2);
  EXPECT_TRUE(admin.scale("net", 2).ok());
  EXPECT_TRUE(last.get().ok()) << last.get().status().to_string();
  EXPECT_EQ(last.outcome().model_version, 1u);
  EXPECT_TRUE(eventually([&] { return daemon.stats().at("models").size() == 1; })) << "then it goes";
}

TEST_F(VersionsTest, AReloadWhoseWorkersCannotBeHadIsTakenBackAsAWhole) {
  for (const int version : {1, 2}) put(version);
  const DaemonFixture daemon({.models = {"net=" + path() + ",versions=all"}});
  Pool pool = daemon.connect();
  const std::string fewer_versions = path() + ",workers=2,versions=1";
  {
    const Obstacle obstacle(daemon);
    Load load(daemon, "net", 1);
    const auto changed = pool.reload("net", fewer_versions);
    EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(changed.status().message(), "goes on as it was")) << changed.status().to_string();
    EXPECT_TRUE(contains(changed.status().message(), "file descriptors are free")) << changed.status().to_string();
    EXPECT_EQ(added(pool, "net", 2), 2) << "what was to leave serves on";
    EXPECT_EQ(daemon.model("net").at("wanted_workers"), 1);
    load.end();
    EXPECT_GT(load.answered, 0);
    EXPECT_EQ(load.failed + load.mixed, 0);
  }
  EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "what was asked for in vain is forgotten";
  const auto changed = pool.reload("net", fewer_versions);
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_EQ(changed->versions, std::vector<std::uint64_t>{1});
  EXPECT_EQ(changed->workers, 2);
}

TEST_F(VersionsTest, AClientThatKnewTheOldInputsMayAskWithTheNewOnes) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "net"), 1);
  write_checkpoint(path("net"), "net", {{.op = "_plus_scalar", .name = "plus", .attributes = {{"scalar", "2"}}, .weights = {}}},
                   "[-1, 6]");
  ASSERT_TRUE(daemon.connect().reload("net").ok());
  const auto outputs = pool.predict("net", {{"data", counting({1, 6}, 1)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ((*outputs)[0].tensor.shape(), (Shape{1, 6}));
  EXPECT_EQ(pool.predict("net", input()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(VersionsTest, AModelAndItsRequestsFollowAReload) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a zygote that loads beside another has ThreadSanitizer's thread, too, and must not fork";
#endif
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  Pool pool = daemon.connect();
  const Model model = pool.client().model("net").value();
  Request request(model);
  EXPECT_TRUE(request.set_input(0, counting({1, 4}, 1)).ok());
  write_checkpoint(path("net"), "net", {{.op = "_plus_scalar", .name = "plus", .attributes = {{"scalar", "2"}}, .weights = {}}},
                   "[-1, 6]");
  ASSERT_TRUE(daemon.connect().reload("net").ok());
  EXPECT_TRUE(eventually([&] { return request.set_input(0, counting({1, 6}, 1)).ok(); })) << "it asks nobody and waits for none";
  EXPECT_EQ(model.info()->inputs[0].shape, (Shape{-1, 6}));
}

TEST_F(VersionsTest, ADaemonThatIsKilledInAReloadStartsCleanly) {
  put(1);
  DaemonFixture daemon({.models = {"net=" + path() + ",workers=2"}});
  for (int version = 2; version < 6; ++version) {
    Pool pool = daemon.connect({.reconnect_timeout = 10s});
    ASSERT_EQ(added(pool, "net"), version - 1);
    put(version);
    std::jthread admin([&] {
      auto other = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 1ms});
      if (other.ok()) (void)other->reload("net");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(version * 5));
    ::kill(daemon.pid(), SIGKILL);
    EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return daemon.all_processes().empty(); })) << "old and new version go with their supervisor";
    daemon.start();
    EXPECT_EQ(added(pool, "net"), version);
  }
}

}  // namespace
}  // namespace shoal::test
