// Versions, and what the daemon serves changed under load: load, reload, scale, drain, unload, SIGHUP, the service manager.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <thread>

#include "supervisor/process/memory_group.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/notify_socket.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::contains;
using test::DaemonFixture;
using test::DaemonSettings;
using test::eventually;

/// A directory of versions; version N answers x + N.
class VersionsTest : public testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return root_.path(name); }
  /// Appears whole, under its name.
  void put(int version, std::vector<test::ChainNode> more = {}) const {
    write("coming", version, std::move(more));
    fs::remove_all(path(std::to_string(version)));
    fs::rename(path("coming"), path(std::to_string(version)));
  }
  void write(const std::string& directory, int constant, std::vector<test::ChainNode> more = {}) const {
    more.push_back({.op = "_plus_scalar", .name = "plus", .attributes = {{"scalar", std::to_string(constant)}}, .weights = {}});
    test::write_checkpoint(path(directory), "net", more, "[-1, 4]");
  }
  void write_text(const std::string& name, const std::string& text) const { root_.write(name, text); }

 private:
  test::ScratchDirectory root_;
};

Tensors input(float first = 1) { return {{"data", test::counting({1, 4}, first)}}; }

/// What the model added; -1 when it did not answer.
int added(Pool& pool, const std::string& name, std::uint64_t version = 0) {
  const auto outputs = pool.predict(name, input(), {.version = version});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  return outputs.ok() ? static_cast<int>((*outputs)[0].tensor.values<float>()[0]) - 1 : -1;
}

/// Clients that ask all the time and check that answer and version agree, and that none is older than what served at its
/// submission.
class Load {
 public:
  Load(const DaemonFixture& daemon, std::string model, int clients = 2) : model_(std::move(model)) {
    for (int i = 0; i < clients; ++i) threads_.emplace_back([this, &daemon](const std::stop_token& stop) { run(daemon, stop); });
  }
  ~Load() { end(); }
  void end() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
  }

  std::atomic<std::uint64_t> oldest_version{1};  // that may answer what is submitted from now on
  std::atomic<int> answered{0}, failed{0}, mixed{0}, stale{0};

 private:
  void run(const DaemonFixture& daemon, const std::stop_token& stop) {
    Pool pool = daemon.connect();
    while (!stop.stop_requested()) {
      const std::uint64_t oldest = oldest_version;
      const Prediction prediction = pool.submit(model_, input());
      const Outcome& outcome = prediction.outcome();
      if (!outcome.outputs.ok()) {
        if (++failed <= 3) ADD_FAILURE() << outcome.outputs.status().to_string();
        continue;
      }
      const auto values = (*outcome.outputs)[0].tensor.values<float>();
      for (std::size_t i = 0; i < 4; ++i) {
        mixed += static_cast<std::uint64_t>(values[i] - 1 - static_cast<float>(i)) != outcome.model_version;
      }
      stale += outcome.model_version < oldest;
      ++answered;
    }
  }

  std::string model_;
  std::vector<std::jthread> threads_;
};

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

// Memory that is no file's and no memfd's: the pages of the last dead workers, which the daemon keeps, are as full as their work
// was.
double heap_bytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string key; status >> key; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (double kib = 0; key == "RssAnon:" && status >> kib) return kib * 1024;
  }
  ADD_FAILURE() << "no RssAnon of process " << pid;
  return 0;
}

// Reloads under load, with what a reload must never do counted.
void reload_under_load(const DaemonFixture& daemon, int reloads, const std::function<void(int)>& put_version) {
  Pool admin = daemon.connect({.input_arena_bytes = 0, .output_arena_bytes = 0});
  Load load(daemon, "net");
  const auto reload_to = [&](int version) {
    put_version(version);
    const auto changed = admin.reload("net");
    ASSERT_TRUE(changed.ok()) << changed.status().to_string();
    EXPECT_EQ(changed->outcome, "reloaded");
    EXPECT_EQ(changed->version, static_cast<std::uint64_t>(version));
    load.oldest_version = static_cast<std::uint64_t>(version);
  };
  // What is kept of the last dead workers, and buffers, grow to their bounds: in some 600 reloads.
  const bool is_long = reloads >= 1000;
  const int first = is_long ? 700 : 7;
  for (int version = 2; version < first && !testing::Test::HasFatalFailure(); ++version) reload_to(version);
  const auto before = test::sample_process(daemon.pid());
  const double heap_before = heap_bytes(daemon.pid());
  for (int version = first; version < first + reloads && !testing::Test::HasFatalFailure(); ++version) reload_to(version);
  ASSERT_TRUE(eventually([&] { return daemon.all_processes().size() == 4; })) << "supervisor, zygote and two workers";
  EXPECT_TRUE(eventually([&] { return test::sample_process(daemon.pid())->descriptors <= before->descriptors; }))
      << test::sample_process(daemon.pid())->descriptors << " descriptors, " << before->descriptors << " at the start";
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
  put(2, {{.op = "_fault_abort", .name = "crash", .attributes = {{"scalar", "0"}}, .weights = {}}});  // zeros are the probe
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
  write("net", 5);  // the same place, another content
  EXPECT_EQ(pool.reload("net").value().outcome, "reloaded");
  EXPECT_EQ(added(pool, "net"), 5);
  write("other", 7);
  EXPECT_EQ(pool.reload("net", path("other") + ",workers=2").value().workers, 2);
  EXPECT_EQ(added(pool, "net"), 7);
  EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "the new place is kept";
  EXPECT_EQ(daemon.workers("net").size(), 2u);
}

TEST_F(VersionsTest, LoadsAndUnloadsWhileRequestsRun) {
  write("slow", 3, {{.op = "_fault_spin", .name = "spin", .attributes = {{"scalar", "20"}}, .weights = {}}});
  const DaemonFixture daemon({.worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  EXPECT_EQ(pool.describe("slow").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.load("slow", path("slow") + ",workers=2,device=cpu-reference").value().outcome, "loaded");
  EXPECT_EQ(pool.load("slow", path("slow")).status().code(), StatusCode::kFailedPrecondition);
  std::vector<Prediction> predictions;
  for (int i = 0; i < 20; ++i) predictions.push_back(pool.submit("slow", input()));
  ASSERT_TRUE(predictions[0].get().ok());
  Pool admin = daemon.connect();
  EXPECT_EQ(admin.unload("slow").value().outcome, "unloaded");
  for (const Prediction& prediction : predictions) {
    ASSERT_TRUE(prediction.wait_for(0s)) << "answered before the unload was";
    EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  }
  EXPECT_EQ(pool.predict("slow", input()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.unload("slow").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(daemon.all_processes().size(), 3u) << "those of echo";
  EXPECT_EQ(pool.load("slow", path("slow") + ",device=cpu-reference").value().workers, 1);
  EXPECT_EQ(added(pool, "slow"), 3) << "a pool that knew the model that was unloaded asks again";
}

// An unload ends after 30 s, whatever runs; a reload fails no request, and others need not wait longer than that for its end.
TEST_F(VersionsTest, AReloadAwaitsWhatTheOldVersionRunsHoweverLongItTakes) {
  const test::ChainNode step{.op = "_fault_slow", .name = "step", .attributes = {{"scalar", "100"}}, .weights = {}};
  std::vector<test::ChainNode> chain(330, step);
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

TEST_F(VersionsTest, AModelThatCannotBeLoadedLeavesNothing) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  const auto missing = pool.load("net", path("nowhere"));
  EXPECT_EQ(missing.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(missing.status().message(), path("nowhere"))) << missing.status().to_string();
  EXPECT_EQ(pool.load("net", path() + ",wrokers=2").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.load("net=/x", path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.list().value(), std::vector<std::string>{"echo"});
  EXPECT_EQ(pool.describe("net").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.load("net", "builtin:identity").value().version, 1u);
}

TEST_F(VersionsTest, ALoadThatFailsLeavesItsNameFree) {
  write("good", 1);
  write("bad", 1);
  write_text("bad/net-symbol.json", "{\"nodes\": [");
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  for (int i = 0; i < 5; ++i) {
    const auto failed = pool.load("net", path("bad"));
    EXPECT_TRUE(contains(failed.status().message(), "cannot be served")) << failed.status().to_string();
    EXPECT_TRUE(contains(failed.status().message(), "net-symbol.json")) << failed.status().to_string();
    const auto loaded = pool.load("net", path("good"));
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(pool.unload("net").ok());
  }
}

TEST_F(VersionsTest, AModelThatHasFailedCannotBeScaled) {
  const DaemonFixture daemon({.models = {"net=" + path("nowhere")}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object() && daemon.model("net")["state"] == "failed"; }));
  const auto scaled = daemon.connect().scale("net", 3);
  EXPECT_EQ(scaled.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(scaled.status().message(), path("nowhere"))) << scaled.status().to_string();
  write("nowhere", 1);
  EXPECT_EQ(daemon.connect().reload("net").value().workers, 1) << "what was asked for in vain is forgotten";
}

TEST_F(VersionsTest, AClientThatKnewTheOldInputsMayAskWithTheNewOnes) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "net"), 1);
  test::write_checkpoint(path("net"), "net",
                         {{.op = "_plus_scalar", .name = "plus", .attributes = {{"scalar", "2"}}, .weights = {}}}, "[-1, 6]");
  ASSERT_TRUE(daemon.connect().reload("net").ok());
  const auto outputs = pool.predict("net", {{"data", test::counting({1, 6}, 1)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ((*outputs)[0].tensor.shape(), (Shape{1, 6}));
  EXPECT_EQ(pool.predict("net", input()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(VersionsTest, ALoadThatHangsFailsOnceItsTimeIsOver) {
  write("net", 1);
  const std::string hang = path("hang"), zygote = path("zygote");  // one that stands still while the first is there
  write_text("zygote", "#!/bin/sh\n[ -e " + hang + " ] && kill -STOP $$\nexec " +
                           (test::binary_directory() / "shoal-worker").string() + " \"$@\"\n");
  fs::permissions(zygote, fs::perms::owner_all);
  const std::string model = path("net") + ",load_timeout_s=1", why = "loading took more than 1 s: raise load_timeout_s";
  const DaemonFixture daemon({.models = {"net=" + model}, .worker = zygote});
  Pool pool = daemon.connect();
  const auto before = daemon.all_processes();

  write_text("hang", "");
  for (const auto& changed : {pool.load("other", model), pool.reload("net", "", true)}) {
    EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(changed.status().message(), why)) << changed.status().to_string();
  }
  EXPECT_TRUE(eventually([&] { return daemon.all_processes() == before; })) << "they were killed, and not tried again";
  EXPECT_EQ(added(pool, "net"), 1);

  const pid_t dead = daemon.model("net")["zygote"]["pid"];
  ::kill(dead, SIGKILL);  // its successor hangs, and is tried again
  ASSERT_TRUE(eventually([&] { return contains(daemon.model("net")["reason"], why); })) << daemon.model("net");
  EXPECT_EQ(added(pool, "net"), 1);
  fs::remove(hang);
  EXPECT_EQ(pool.scale("net", 2).value().workers, 2);
  ASSERT_TRUE(eventually([&] { return pool.list().value() == std::vector<std::string>{"net"}; }));
  EXPECT_EQ(pool.load("other", model).value().version, 1u);
}

TEST_F(VersionsTest, AModelThatDoesNotFitIntoMemoryIsRefusedBeforeItIsRead) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  Pool pool = daemon.connect();
  std::error_code error;
  fs::resize_file(path("net/net-0000.params"), std::uintmax_t{1} << 43, error);  // 8 TiB, of holes
  if (error) GTEST_SKIP() << "no file of that size here: " << error.message();
  const auto changed = pool.reload("net");
  EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(changed.status().message(), "17592187 MB of memory")) << changed.status().to_string();
  EXPECT_TRUE(contains(changed.status().message(), "MB are available")) << changed.status().to_string();
  EXPECT_EQ(added(pool, "net"), 1);
  // At a daemon's start one that was killed may still be giving its memory back: it is waited for, and in the end given up.
  const DaemonFixture later({.models = {"net=" + path("net")}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return later.stats().is_object(); }));
  EXPECT_EQ(later.model("net").at("state"), "loading");
  EXPECT_TRUE(eventually([&] { return later.model("net").at("state") == "failed"; }));
  EXPECT_TRUE(contains(later.model("net").at("reason"), "MB are available")) << later.model("net").at("reason");
}

// Each of them fits, both do not: the second is begun when the first has been loaded, or has failed.
TEST_F(VersionsTest, AModelWaitsForTheMemoryOfOneThatIsBeingLoaded) {
  for (const char* name : {"a", "b"}) write(name, 1);
  const std::string zygote = path("zygote");
  write_text("zygote", "#!/bin/sh\nkill -STOP $$\n");
  fs::permissions(zygote, fs::perms::owner_all);
  const auto available = static_cast<double>(supervisor::available_memory_bytes());
  std::error_code error;
  for (const char* name : {"a", "b"})  // packed weights are as much again
    fs::resize_file(path(name) + "/net-0000.params", static_cast<std::uintmax_t>(available * 0.3), error);
  if (error) GTEST_SKIP() << "no file of that size here: " << error.message();
  const DaemonFixture daemon(
      {.models = {"a=" + path("a") + ",load_timeout_s=2", "b=" + path("b")}, .worker = zygote, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object() && daemon.model("a")["zygote"]["pid"].is_number(); }));
  EXPECT_TRUE(daemon.model("b")["zygote"]["pid"].is_null());
  EXPECT_EQ(daemon.model("b")["state"], "loading");
  ASSERT_TRUE(eventually([&] { return daemon.model("a")["state"] == "failed"; }));
  EXPECT_TRUE(eventually([&] { return daemon.model("b")["zygote"]["pid"].is_number(); })) << daemon.log();
}

TEST_F(VersionsTest, ScalesUpAndDownUnderLoad) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net") + ",workers=2"}});
  Pool pool = daemon.connect();
  Load load(daemon, "net", 3);
  for (const int workers : {6, 1, 3, 2}) {
    const auto changed = pool.scale("net", workers);
    ASSERT_TRUE(changed.ok()) << changed.status().to_string();
    EXPECT_EQ(changed->workers, workers);
    EXPECT_EQ(daemon.workers("net").size(), static_cast<std::size_t>(workers));
    EXPECT_EQ(daemon.all_processes().size(), static_cast<std::size_t>(workers) + 2);
    EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "a reload keeps the number";
  }
  load.end();
  EXPECT_GT(load.answered, 0);
  EXPECT_EQ(load.failed + load.mixed, 0);
  EXPECT_EQ(daemon.model("net").at("counts").at("worker_deaths"), 0) << "who is sent home has not died";
  EXPECT_EQ(pool.scale("net", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.scale("nut", 1).status().code(), StatusCode::kNotFound);
}

/// Something stands where the next workers would bind their sockets: they fail, one after the other.
class Obstacle {
 public:
  Obstacle(const DaemonFixture& daemon, int first_incarnation) {
    for (int i = first_incarnation; i < first_incarnation + 20; ++i)
      paths_.push_back(fs::path(daemon.directory()) / ("w" + std::to_string(i) + "-0"));
    for (const fs::path& path : paths_) fs::create_directory(path);
  }
  ~Obstacle() {
    for (const fs::path& path : paths_) fs::remove(path);
  }

 private:
  std::vector<fs::path> paths_;
};

TEST_F(VersionsTest, AScaleThatCannotBeMetIsTakenBackAndTheModelServes) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net") + ",workers=2"}});
  Pool pool = daemon.connect();
  const auto workers = daemon.workers("net");
  {
    const Obstacle obstacle(daemon, 3);
    Load load(daemon, "net", 1);
    const auto changed = pool.scale("net", 4);
    EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(changed.status().message(), "goes on as it was")) << changed.status().to_string();
    EXPECT_TRUE(eventually([&] { return daemon.workers("net") == workers; })) << "who served goes on";
    EXPECT_EQ(daemon.model("net").at("wanted_workers"), 2);
    EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "the number that was asked for is forgotten";
    load.end();
    EXPECT_GT(load.answered, 0);
    EXPECT_EQ(load.failed + load.mixed, 0);
  }
  EXPECT_EQ(pool.scale("net", 4).value().workers, 4);
}

TEST_F(VersionsTest, AReloadWhoseWorkersCannotBeHadIsTakenBackAsAWhole) {
  for (const int version : {1, 2}) put(version);
  const DaemonFixture daemon({.models = {"net=" + path() + ",versions=all"}});
  Pool pool = daemon.connect();
  const std::string fewer_versions = path() + ",workers=2,versions=1";
  {
    const Obstacle obstacle(daemon, 3);
    Load load(daemon, "net", 1);
    const auto changed = pool.reload("net", fewer_versions);
    EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(changed.status().message(), "goes on as it was")) << changed.status().to_string();
    EXPECT_TRUE(contains(changed.status().message(), "Address already in use")) << changed.status().to_string();
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

TEST_F(VersionsTest, ManyWorkersComeAFewAtATime) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net")}});
  const pid_t zygote = daemon.model("net").at("zygote").at("pid");
  ::kill(zygote, SIGSTOP);
  Result<ModelChange> scaled = Status();
  {
    const std::jthread admin([&] {
      Pool pool = daemon.connect();
      scaled = pool.scale("net", 40);
    });
    EXPECT_TRUE(eventually([&] { return daemon.model("net").at("workers").size() > 1; }));
    EXPECT_EQ(daemon.model("net").at("workers").size(), 9u) << "each wants an answer within a second";
    ::kill(zygote, SIGCONT);
  }
  EXPECT_EQ(scaled.value().workers, 40);
  EXPECT_EQ(daemon.workers("net").size(), 40u);
}

TEST_F(VersionsTest, AReloadEndsADrainThatWaits) {
  write("slow", 3, {{.op = "_fault_hang", .name = "hang", .attributes = {{"scalar", "666"}}, .weights = {}}});
  const DaemonFixture daemon(
      {.models = {"slow=" + path("slow") + ",device=cpu-reference,timeout_ms=0"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  ASSERT_EQ(added(pool, "slow"), 3);  // it knows the model from now on: a request is sent at once
  Prediction hanging = pool.submit("slow", input(666));
  ASSERT_TRUE(eventually([&] { return daemon.model("slow").at("queue").at("running") == 1; }));
  Result<ModelChange> drained = Status();
  const std::jthread other([&] {
    Pool admin = daemon.connect();
    drained = admin.drain("slow");
  });
  ASSERT_TRUE(eventually([&] { return daemon.model("slow").at("state") == "drained"; }));
  EXPECT_EQ(pool.reload("slow").value().outcome, "reloaded");
  EXPECT_EQ(daemon.model("slow").at("state"), "ready");
  EXPECT_TRUE(eventually([&] { return drained.status().code() == StatusCode::kCancelled; }));
  hanging.cancel();
}

TEST_F(VersionsTest, DrainRefusesWhatIsNewAndReloadOpensAgain) {
  write("slow", 3, {{.op = "_fault_spin", .name = "spin", .attributes = {{"scalar", "20"}}, .weights = {}}});
  const DaemonFixture daemon({.models = {"slow=" + path("slow") + ",device=cpu-reference"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  const auto workers = daemon.workers("slow");
  std::vector<Prediction> predictions;
  for (int i = 0; i < 10; ++i) predictions.push_back(pool.submit("slow", input()));
  ASSERT_TRUE(predictions[0].get().ok());
  EXPECT_EQ(pool.drain("slow").value().outcome, "drained");
  for (const Prediction& prediction : predictions) EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  const auto refused = pool.predict("slow", input());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(refused.status().message(), "drained")) << refused.status().to_string();
  EXPECT_EQ(daemon.model("slow").at("state"), "drained");
  EXPECT_EQ(pool.reload("slow").value().outcome, "reloaded");
  EXPECT_EQ(added(pool, "slow"), 3);
  EXPECT_EQ(daemon.workers("slow"), workers) << "it stayed loaded";
}

TEST_F(VersionsTest, SighupReadsTheConfigurationAgain) {
  for (const int version : {1, 2}) write("m" + std::to_string(version), version);
  put(1);
  const auto configure = [&](const std::string& text) { write_text("shoal.toml", text); };
  configure("[models.gone]\npath = \"m1\"\n[models.kept]\npath = \"m1\"\n[models.changed]\npath = \"m1\"\n");
  const DaemonFixture daemon({.models = {"given=" + path()}, .arguments = {"--config", path("shoal.toml")}});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.load("asked", path("m2")).ok());
  EXPECT_EQ(added(pool, "gone"), 1);
  EXPECT_EQ(added(pool, "changed"), 1);
  const auto kept = daemon.workers("kept");

  configure("[models.kept]\npath = \"m1\"\n[models.changed]\npath = \"m2\"\nworkers = 2\n[models.new]\npath = \"m2\"\n");
  put(4);  // of a model of the command line
  ::kill(daemon.pid(), SIGHUP);
  ASSERT_TRUE(eventually([&] { return added(pool, "changed") == 2 && added(pool, "given") == 4; }));
  EXPECT_EQ(added(pool, "new"), 2);
  ASSERT_TRUE(eventually([&] { return pool.list().value().size() == 5; })) << daemon.stats();
  EXPECT_EQ(pool.predict("gone", input()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(daemon.workers("kept"), kept);
  EXPECT_EQ(daemon.workers("changed").size(), 2u);
  EXPECT_EQ(added(pool, "asked"), 2) << "what was loaded by command stays";

  configure("[models.kept]\npath = \"m2\"\nworkres = 2\n");
  ::kill(daemon.pid(), SIGHUP);
  EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "shoal.toml:3:") && contains(daemon.log(), "'workres'"); }));
  EXPECT_EQ(daemon.workers("kept"), kept) << "a file with an error changes nothing";
  EXPECT_EQ(pool.list().value().size(), 5u);

  configure("");
  ::kill(daemon.pid(), SIGHUP);
  EXPECT_TRUE(eventually([&] { return pool.list().value() == (std::vector<std::string>{"given", "asked"}); })) << daemon.stats();
}

TEST_F(VersionsTest, WhatTheConfigurationWantsBackIsLoadedWhenItIsUnloaded) {
  const test::NotifySocket manager(path("notify"));
  write("slow", 3, {{.op = "_fault_spin", .name = "spin", .attributes = {{"scalar", "500"}}, .weights = {}}});
  const std::string with = "[models.slow]\npath = \"slow\"\ndevice = \"cpu-reference\"\n";
  write_text("shoal.toml", with);
  const DaemonFixture daemon({.models = {},
                              .worker = "shoal-worker-faulty",
                              .arguments = {"--config", path("shoal.toml")},
                              .environment = {"NOTIFY_SOCKET=" + path("notify")}});
  Pool pool = daemon.connect();
  const auto reload = [&](const std::string& text) {
    write_text("shoal.toml", text);
    ::kill(daemon.pid(), SIGHUP);
  };
  const auto is_draining = [&] { return daemon.model("slow")["state"] == "draining"; };
  ASSERT_TRUE(pool.describe("slow").ok());
  std::string seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  for (const bool is_wanted_back : {true, false}) {
    const Prediction last = pool.submit("slow", input());
    ASSERT_TRUE(eventually([&] { return daemon.model("slow")["queue"]["running"] == 1; }));
    reload("");
    ASSERT_TRUE(eventually(is_draining));
    ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
    reload(with);
    ASSERT_TRUE(manager.hears("RELOADING=1", seen)) << seen;
    ASSERT_TRUE(is_draining());
    if (!is_wanted_back) reload("");
    EXPECT_TRUE(last.get().ok()) << last.get().status().to_string();
    EXPECT_TRUE(manager.hears("READY=1", seen)) << seen;
    if (is_wanted_back) {
      EXPECT_EQ(daemon.model("slow")["state"], "ready") << "when all is as the configuration says";
      EXPECT_EQ(added(pool, "slow"), 3);
    } else {
      EXPECT_TRUE(eventually([&] { return pool.list().value().empty(); })) << daemon.stats();
    }
  }
}

TEST_F(VersionsTest, ALoadThatFailsGivesWayToWhatTheConfigurationSays) {
  write("net", 1);
  write_text("shoal.toml", "");
  const std::string hang = path("hang"), zygote = path("zygote");
  write_text("zygote", "#!/bin/sh\n[ -e " + hang + " ] && kill -STOP $$\nexec " +
                           (test::binary_directory() / "shoal-worker").string() + " \"$@\"\n");
  fs::permissions(zygote, fs::perms::owner_all);
  const DaemonFixture daemon({.worker = zygote, .arguments = {"--config", path("shoal.toml")}});
  Pool pool = daemon.connect();
  write_text("hang", "");
  Result<ModelChange> loaded = Status();
  std::jthread admin([&] { loaded = daemon.connect().load("net", path("net") + ",load_timeout_s=1"); });
  ASSERT_TRUE(eventually([&] {
    const nlohmann::json pid = daemon.model("net")["zygote"]["pid"];
    std::ifstream stat("/proc/" + (pid.is_number() ? pid.dump() : "") + "/stat");
    std::string line;
    return std::getline(stat, line) && contains(line, ") T ");
  }));
  write_text("shoal.toml", "[models.net]\npath = \"net\"\n");
  ::kill(daemon.pid(), SIGHUP);
  fs::remove(hang);
  admin.join();
  EXPECT_EQ(loaded.status().code(), StatusCode::kFailedPrecondition) << loaded.status().to_string();
  ASSERT_TRUE(eventually([&] { return daemon.model("net")["state"] == "ready"; })) << daemon.stats();
  EXPECT_EQ(added(pool, "net"), 1);
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

// ---- the service manager ----

TEST_F(VersionsTest, TellsTheServiceManagerHowItIs) {
  const test::NotifySocket manager(path("notify"));
  write("net", 1);
  DaemonFixture daemon({.models = {"net=" + path("net"), "bad=" + path("nowhere")},
                        .wait_until_ready = false,
                        .environment = {"NOTIFY_SOCKET=" + path("notify"), "WATCHDOG_USEC=100000"}});
  std::string seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  EXPECT_TRUE(contains(seen, "STATUS=1 models are served; bad: ")) << seen;
  EXPECT_EQ(daemon.model("net").at("state"), "ready") << "READY=1 comes when all is loaded or has failed";
  seen.clear();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(manager.hears("WATCHDOG=1", seen)) << seen;
  ::kill(daemon.pid(), SIGHUP);
  ASSERT_TRUE(manager.hears("RELOADING=1\nMONOTONIC_USEC=", seen)) << seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  for (const pid_t pid : daemon.all_processes()) {  // the variables are not for our children
    if (pid == daemon.pid()) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_FALSE(contains(environment, "NOTIFY_SOCKET")) << pid;
  }
  ::kill(daemon.pid(), SIGTERM);
  EXPECT_TRUE(manager.hears("STOPPING=1", seen)) << seen;
  EXPECT_EQ(daemon.wait_for_exit(), 0);
}

std::chrono::nanoseconds processor_time_of(pid_t pid) {
  clockid_t clock{};
  timespec now{};
  EXPECT_EQ(::clock_getcpuclockid(pid, &clock), 0);
  EXPECT_EQ(::clock_gettime(clock, &now), 0);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Fast enough for one that works a little each 100 ms, and not for one that never waits.
void expect_idle(pid_t pid) {
  const auto before = processor_time_of(pid);
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_time_of(pid) - before, 50ms);
}

TEST_F(VersionsTest, WaitsForNoServiceManagerThatIsGone) {
  const DaemonFixture daemon({.environment = {"NOTIFY_SOCKET=" + path("nobody")}});
  expect_idle(daemon.pid());
  EXPECT_TRUE(daemon.connect().scale("echo", 2).ok());
}

TEST_F(VersionsTest, TellsAServiceManagerThatIsBusyLater) {
  const test::NotifySocket manager(path("notify"));
  const UniqueFd crowd = test::connected_socket(path("notify"), SOCK_DGRAM);
  while (::send(crowd.get(), "X=1", 3, MSG_DONTWAIT) > 0) {
  }
  const DaemonFixture daemon({.environment = {"NOTIFY_SOCKET=" + path("notify")}});
  expect_idle(daemon.pid());
  std::string seen;
  EXPECT_TRUE(manager.hears("READY=1", seen));
  EXPECT_TRUE(contains(seen, "STATUS=1 models are served")) << seen;
}

TEST_F(VersionsTest, AConfigurationWhoseWorkersCannotBeHadIsReloadedToo) {
  const test::NotifySocket manager(path("notify"));
  write("net", 1);
  write_text("shoal.toml", "[models.net]\npath = \"net\"\n");
  const DaemonFixture daemon(
      {.models = {}, .arguments = {"--config", path("shoal.toml")}, .environment = {"NOTIFY_SOCKET=" + path("notify")}});
  std::string seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  const Obstacle obstacle(daemon, 2);
  write_text("shoal.toml", "[models.net]\npath = \"net\"\nworkers = 2\n");
  ::kill(daemon.pid(), SIGHUP);
  ASSERT_TRUE(manager.hears("RELOADING=1", seen)) << seen;
  EXPECT_TRUE(manager.hears("READY=1", seen)) << seen;
  EXPECT_TRUE(contains(daemon.log(), "change_failed model=net goes_on=1")) << daemon.log();
  EXPECT_EQ(daemon.model("net").at("wanted_workers"), 1);
}

}  // namespace
}  // namespace shoal
