// Reloading the configuration at SIGHUP, and what the daemon tells the service manager.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/integration/life_fixture.hpp"
#include "tests/support/notify_socket.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

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
  put(4);  // a new version of a model from the command line
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
  const NotifySocket manager(path("notify"));
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
  const auto is_draining = [&] {  // perhaps beside one that is to be loaded again
    const nlohmann::json stats = daemon.stats();
    return std::ranges::any_of(stats["models"], [](const nlohmann::json& model) { return model["state"] == "draining"; });
  };
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

TEST_F(VersionsTest, ALoadGivesWayToWhatTheConfigurationSays) {
  write("net", 1);
  write_text("shoal.toml", "");
  const std::string hang = path("hang"), zygote = path("zygote");
  write_text("zygote", "#!/bin/sh\n[ $1 = --zygote ] && [ -e " + hang + " ] && kill -STOP $$\nexec " +
                           (binary_directory() / "shoal-worker").string() + " \"$@\"\n");
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
  EXPECT_EQ(loaded.status().code(), StatusCode::kCancelled) << loaded.status().to_string();
  ASSERT_TRUE(eventually([&] { return daemon.model("net")["state"] == "ready"; })) << daemon.stats();
  EXPECT_EQ(added(pool, "net"), 1);
}

TEST_F(VersionsTest, AConfigurationWhoseWorkersCannotBeHadIsReloadedToo) {
  const NotifySocket manager(path("notify"));
  write("net", 1);
  write_text("shoal.toml", "[models.net]\npath = \"net\"\n");
  const DaemonFixture daemon(
      {.models = {}, .arguments = {"--config", path("shoal.toml")}, .environment = {"NOTIFY_SOCKET=" + path("notify")}});
  std::string seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  const Obstacle obstacle(daemon);
  write_text("shoal.toml", "[models.net]\npath = \"net\"\nworkers = 2\n");
  ::kill(daemon.pid(), SIGHUP);
  ASSERT_TRUE(manager.hears("RELOADING=1", seen)) << seen;
  EXPECT_TRUE(manager.hears("READY=1", seen)) << seen;
  EXPECT_TRUE(daemon.logs("change_failed model=net goes_on=1")) << daemon.log();
  EXPECT_EQ(daemon.model("net").at("wanted_workers"), 1);
}

TEST_F(VersionsTest, TellsTheServiceManagerHowItIs) {
  const NotifySocket manager(path("notify"));
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
  for (const pid_t pid : daemon.all_processes()) {  // the daemon's children must not have these variables
    if (pid == daemon.pid()) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_FALSE(contains(environment, "NOTIFY_SOCKET")) << pid;
  }
  ::kill(daemon.pid(), SIGTERM);
  EXPECT_TRUE(manager.hears("STOPPING=1", seen)) << seen;
  EXPECT_EQ(daemon.wait_for_exit(), 0);
}

// In the configuration they are too long for the question, in model.toml for the LOAD.
TEST_F(VersionsTest, AModelWhoseKeysAreTooLongFailsAndDelaysNoOther) {
  const NotifySocket manager(path("notify"));
  std::string shapes = "shapes = [";
  for (int batch = 1; batch <= 4000; ++batch) shapes += "{data = [" + std::to_string(batch) + ", 4]}, ";
  shapes += "]\n";
  write("net", 1);
  write("long", 2);
  write_text("long/model.toml", shapes);
  write_text("shoal.toml",
             "[models.asked]\npath = \"net\"\n" + shapes + "[models.loaded]\npath = \"long\"\n[models.net]\npath = \"net\"\n");
  const DaemonFixture daemon({.models = {},
                              .wait_until_ready = false,
                              .arguments = {"--config", path("shoal.toml")},
                              .environment = {"NOTIFY_SOCKET=" + path("notify")}});
  std::string seen;
  ASSERT_TRUE(manager.hears("READY=1", seen)) << seen;
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "net"), 1);
  for (const char* name : {"asked", "loaded"}) {
    const Status why = pool.describe(name).status();
    EXPECT_TRUE(says(why.message(), {name, "at most 61440", "`shapes`"})) << daemon.log();
  }
  const auto asked = pool.load("again", path("long"));
  EXPECT_EQ(asked.status().code(), StatusCode::kFailedPrecondition) << "it never succeeds";
  EXPECT_TRUE(says(asked.status().message(), {"'again'", "at most 61440"}));
}

/// Fails when the process uses a tenth of a processor. A process that wakes up every 100 ms uses less.
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
  const NotifySocket manager(path("notify"));
  const UniqueFd crowd = connected_socket(path("notify"), SOCK_DGRAM);
  while (::send(crowd.get(), "X=1", 3, MSG_DONTWAIT) > 0) {
  }
  const DaemonFixture daemon({.environment = {"NOTIFY_SOCKET=" + path("notify")}});
  expect_idle(daemon.pid());
  std::string seen;
  EXPECT_TRUE(manager.hears("READY=1", seen));
  EXPECT_TRUE(contains(seen, "STATUS=1 models are served")) << seen;
}

}  // namespace
}  // namespace shoal::test
