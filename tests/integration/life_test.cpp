// Loading, scaling, draining and unloading models under load, and what remains when it fails.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "shm/base/memory_group.hpp"
#include "tests/integration/life_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

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
    ASSERT_TRUE(prediction.wait_for(10s)) << "no worker is left, so it was answered before; its pool may be about to read it";
    EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  }
  EXPECT_EQ(pool.predict("slow", input()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.unload("slow").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(daemon.all_processes().size(), 3u) << "those of echo";
  EXPECT_EQ(pool.load("slow", path("slow") + ",device=cpu-reference").value().workers, 1);
  EXPECT_EQ(added(pool, "slow"), 3) << "a pool that knew the model that was unloaded asks again";
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

TEST_F(VersionsTest, TheNumberOfModelsIsLimitedAndAPlaceIsFreeAgainAfterAnUnload) {
  DaemonFixture daemon({.models = {"echo=builtin:identity"}, .limits = "models = 3"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.load("a", "builtin:identity").ok());
  ASSERT_TRUE(pool.load("b", "builtin:identity").ok());
  const Status refused = pool.load("c", "builtin:identity").status();
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(refused.message(), {"'c'", "3", "[limits] models"}));
  EXPECT_FALSE(pool.load("d", path("nowhere")).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool.unload("b").ok());
    EXPECT_FALSE(pool.load("b", path("nowhere")).ok()) << "a load that fails takes no place";
    ASSERT_TRUE(pool.load("b", "builtin:identity").ok());
  }
  EXPECT_TRUE(pool.predict("b", input()).ok()) << "not the model that had its number";
  EXPECT_TRUE(pool.predict("a", input()).ok());
  daemon.change_limits("models = 4");
  ASSERT_TRUE(eventually([&] { return pool.load("c", "builtin:identity").ok(); }));
  daemon.change_limits("models = 1");
  ASSERT_TRUE(eventually([&] { return pool.load("e", "builtin:identity").status().code() == StatusCode::kOverloaded; }));
  EXPECT_EQ(pool.list().value(), (std::vector<std::string>{"echo", "a", "b", "c"})) << "who serves goes on";
}

TEST_F(VersionsTest, AModelThatHasFailedCannotBeScaled) {
  const DaemonFixture daemon({.models = {"net=" + path("nowhere")}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object() && daemon.model("net")["state"] == "failed"; }));
  const auto scaled = daemon.connect().scale("net", 3);
  EXPECT_EQ(scaled.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(scaled.status().message(), path("nowhere"))) << scaled.status().to_string();
  write("nowhere", 1);
  EXPECT_EQ(daemon.connect().reload("net").value().workers, 1) << "what was asked for in vain is forgotten";
  ASSERT_TRUE(eventually([&] { return contains(daemon.log(), " reloaded model=net"); }));
  EXPECT_FALSE(contains(daemon.log(), "versions=none")) << "a model that failed was not loaded";
}

TEST_F(VersionsTest, ALoadThatHangsFailsOnceItsTimeIsOver) {
  write("net", 1);
  const std::string hang = path("hang"), zygote = path("zygote");  // a zygote that stops itself while the file `hang` exists
  write_text("zygote", "#!/bin/sh\n[ $1 = --zygote ] && [ -e " + hang + " ] && kill -STOP $$\nexec " +
                           (binary_directory() / "shoal-worker").string() + " \"$@\"\n");
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
  ::kill(dead, SIGKILL);  // its successor hangs and is started again
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
  // When a daemon starts, a killed predecessor may not have returned its memory yet. So the daemon waits before it gives up.
  const DaemonFixture later({.models = {"net=" + path("net")}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return later.stats().is_object(); }));
  EXPECT_EQ(later.model("net").at("state"), "loading");
  EXPECT_TRUE(eventually([&] { return later.model("net").at("state") == "failed"; }));
  EXPECT_TRUE(contains(later.model("net").at("reason"), "MB are available")) << later.model("net").at("reason");
}

/// The models "a" and "b": each fits into memory, both together do not.
class LargeModels : public VersionsTest {
 protected:
  /// Writes them. Returns a worker program whose zygote stops itself before it loads, and why the models cannot be so large.
  std::pair<std::string, std::error_code> write_large_models() const {
    write_text("zygote", "#!/bin/sh\n[ $1 = --zygote ] && kill -STOP $$\nexec " + (binary_directory() / "shoal-worker").string() +
                             " \"$@\"\n");
    fs::permissions(path("zygote"), fs::perms::owner_all);
    const auto available = static_cast<double>(available_memory_bytes());
    std::error_code error;
    for (const char* name : {"a", "b"}) {  // the packed weights need as much again
      write(name, 1);
      fs::resize_file(path(name) + "/net-0000.params", static_cast<std::uintmax_t>(available * 0.3), error);
    }
    return {path("zygote"), error};
  }
};

// The second load begins when the first has ended.
TEST_F(LargeModels, AModelWaitsForTheMemoryOfOneThatIsBeingLoaded) {
  const auto [zygote, error] = write_large_models();
  if (error) GTEST_SKIP() << "no file of that size here: " << error.message();
  const DaemonFixture daemon({.models = {"a=" + path("a") + ",load_timeout_s=2", "b=" + path("b") + ",load_timeout_s=2"},
                              .worker = zygote,
                              .wait_until_ready = false});
  const auto loads = [&](const std::string& name) { return daemon.model(name)["zygote"]["pid"].is_number(); };
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object() && (loads("a") || loads("b")); }));
  const std::string first = loads("a") ? "a" : "b", other = first == "a" ? "b" : "a";  // whose files were found first
  EXPECT_FALSE(loads(other));
  EXPECT_EQ(daemon.model(other)["state"], "loading");
  ASSERT_TRUE(eventually([&] { return daemon.model(first)["state"] == "failed"; }));
  EXPECT_TRUE(eventually([&] { return loads(other); })) << daemon.log();
}

TEST_F(LargeModels, AClientsLoadWaitsForSuchMemoryForItsLoadTimeoutAtMost) {
  const auto [zygote, error] = write_large_models();
  if (error) GTEST_SKIP() << "no file of that size here: " << error.message();
  const DaemonFixture daemon({.models = {"a=" + path("a")}, .worker = zygote, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.stats().is_object() && daemon.model("a")["zygote"]["pid"].is_number(); }));
  auto loaded = std::async(std::launch::async, [&] { return daemon.connect().load("b", path("b") + ",load_timeout_s=1"); });
  const bool in_time = loaded.wait_for(15s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "it still waits";
  if (!in_time) ::kill(daemon.pid(), SIGKILL);
  const Status refused = loaded.get().status();
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded) << refused.to_string();
  EXPECT_TRUE(contains(refused.message(), "model 'b'") && contains(refused.message(), "for 1 s")) << refused.to_string();
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
    // The process that looked for the files may not have been reaped yet.
    EXPECT_TRUE(eventually([&] { return daemon.all_processes().size() == static_cast<std::size_t>(workers) + 2; }));
    EXPECT_EQ(pool.reload("net").value().outcome, "unchanged") << "a reload keeps the number";
  }
  load.end();
  EXPECT_GT(load.answered, 0);
  EXPECT_EQ(load.failed + load.mixed, 0);
  EXPECT_EQ(daemon.model("net").at("counts").at("worker_deaths"), 0) << "who is sent home has not died";
  EXPECT_EQ(pool.scale("net", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.scale("nut", 1).status().code(), StatusCode::kNotFound);
}

TEST_F(VersionsTest, AScaleThatCannotBeMetIsTakenBackAndTheModelServes) {
  write("net", 1);
  const DaemonFixture daemon({.models = {"net=" + path("net") + ",workers=2"}});
  Pool pool = daemon.connect();
  const auto workers = daemon.workers("net");
  {
    const Obstacle obstacle(daemon);
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
  ASSERT_EQ(added(pool, "slow"), 3);  // from now on the pool knows the model and sends requests at once
  Prediction hanging = pool.submit("slow", input(666));
  ASSERT_TRUE(eventually([&] { return daemon.model("slow").at("queue").at("running") == 1; }));
  Result<ModelChange> drained = Status();
  const std::jthread other([&] {
    Pool admin = daemon.connect();
    drained = admin.drain("slow");
  });
  ASSERT_TRUE(eventually([&] { return daemon.model("slow").at("state") == "drained"; }));
  EXPECT_EQ(pool.scale("slow", 0).status().code(), StatusCode::kInvalidArgument) << "which changes nothing";
  EXPECT_EQ(pool.reload("slow").value().outcome, "reloaded");
  EXPECT_EQ(daemon.model("slow").at("state"), "ready");
  EXPECT_TRUE(eventually([&] { return drained.status().code() == StatusCode::kCancelled; }));
  EXPECT_TRUE(contains(drained.status().message(), "`reload`")) << drained.status().message();
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

}  // namespace
}  // namespace shoal::test
