// Paths that never answer: only who named one waits for it, and not forever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "tests/integration/life_fixture.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/integration/raw_packets.hpp"
#include "tests/support/dead_mount.hpp"
#include "tests/support/notify_socket.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The daemon's own limit is 10 s. A busy machine may add some.
constexpr auto kRefusedWithin = 25s;
// Far above a busy machine's delays, far below the limit.
constexpr auto kStall = 4s;

/// A client that has nothing to do with slow paths, and the longest time that it waited for an answer.
class Bystander {
 public:
  explicit Bystander(const DaemonFixture& daemon)
      : thread_([this, &daemon](const std::stop_token& stop) { run(daemon, stop); }) {}
  std::chrono::milliseconds longest_wait() {
    thread_.request_stop();
    thread_.join();
    return longest_;
  }
  int answered() const { return answered_; }

 private:
  void run(const DaemonFixture& daemon, const std::stop_token& stop) {
    Pool pool = daemon.connect();
    while (!stop.stop_requested()) {
      const auto begin = Clock::now();
      const auto outputs = pool.predict("echo", input(), {.timeout = 60s});
      EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
      longest_ = std::max(longest_, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin));
      if (!outputs.ok()) return;
      ++answered_;
    }
  }

  std::chrono::milliseconds longest_{0};
  std::atomic<int> answered_{0};
  std::jthread thread_;
};

class StalledFilesTest : public VersionsTest {
 protected:
  // shoal-worker-faulty never answers who looks for files there.
  std::string stalled() const { return path("stalled"); }

  // The processes that look for files.
  static std::vector<pid_t> finders(const DaemonFixture& daemon) {
    std::vector<pid_t> found;
    for (const pid_t pid : daemon.all_processes()) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
      const std::string line{std::istreambuf_iterator<char>(file), {}};
      if (line.starts_with("shoal-find") || line.find("--find") != line.npos) found.push_back(pid);
    }
    return found;
  }
  // Zygotes that wait for the file system while the file `stall` exists.
  std::string stalling_worker(const std::string& dead_file) const {
    write_text("worker", "#!/bin/sh\n[ $1 = --zygote ] && [ -e " + path("stall") + " ] && exec 9<" + dead_file + "\nexec " +
                             (binary_directory() / "shoal-worker").string() + " \"$@\"\n");
    fs::permissions(path("worker"), fs::perms::owner_all);
    return path("worker");
  }
  static std::future<Result<ModelChange>> load(const DaemonFixture& daemon, const std::string& text) {
    return std::async(std::launch::async, [&daemon, text] { return daemon.connect().load("net", text); });
  }
};

TEST_F(StalledFilesTest, LoadReloadAndSighupDelayNobodyElse) {
  write("good", 1);
  write_text("shoal.toml", "[models.configured]\npath = \"good\"\n");
  DaemonFixture daemon({.models = {"echo=builtin:identity", "kept=" + path("good")},
                        .worker = "shoal-worker-faulty",
                        .arguments = {"--config", path("shoal.toml")}});
  Bystander bystander(daemon);
  ASSERT_TRUE(eventually([&] { return bystander.answered() > 0; }));

  auto loaded = load(daemon, stalled());
  auto reloaded = std::async(std::launch::async, [&] { return daemon.connect().reload("kept", stalled()); });
  ASSERT_TRUE(eventually([&] { return finders(daemon).size() == 2; })) << "a change of the configuration could overtake them";
  write_text("shoal.toml", "[models.configured]\npath = \"stalled\"\n");
  ::kill(daemon.pid(), SIGHUP);
  ASSERT_EQ(loaded.wait_for(kRefusedWithin), std::future_status::ready) << "still waiting";
  ASSERT_EQ(reloaded.wait_for(kRefusedWithin), std::future_status::ready) << "still waiting";
  for (const Status& refused : {loaded.get().status(), reloaded.get().status()}) {
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(says(refused.message(), {stalled(), "within 10 s"}));
  }
  EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "change_failed model=configured"); }, kRefusedWithin));
  EXPECT_LT(bystander.longest_wait(), kStall);
  Pool pool = daemon.connect();
  EXPECT_EQ(added(pool, "kept"), 1);
  EXPECT_EQ(added(pool, "configured"), 1) << "what was served goes on";
  EXPECT_EQ(pool.describe("net").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.load("net", path("good")).value().version, 1u);
  EXPECT_TRUE(eventually([&] { return finders(daemon).empty(); }));
}

TEST_F(StalledFilesTest, ASlowPathAtTheStartDelaysNoOtherModel) {
  const NotifySocket manager(path("notify"));
  const auto begin = Clock::now();
  const DaemonFixture daemon({.models = {"net=" + stalled(), "echo=builtin:identity"},
                              .worker = "shoal-worker-faulty",
                              .wait_until_ready = false,
                              .environment = {"NOTIFY_SOCKET=" + path("notify")}});
  ASSERT_TRUE(eventually([&] { return Pool::connect({.directory = daemon.directory()}).ok(); }));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", input()).ok());
  EXPECT_LT(Clock::now() - begin, kStall);
  EXPECT_EQ(daemon.model("net")["state"], "loading");
  std::string seen;
  ASSERT_TRUE(eventually([&] { return daemon.model("net")["state"] == "failed"; }, kRefusedWithin));
  EXPECT_TRUE(says(daemon.model("net")["reason"].get<std::string>(), {stalled(), "within 10 s"}));
  EXPECT_TRUE(manager.hears("READY=1", seen)) << seen;
}

TEST_F(StalledFilesTest, TheProcessThatFindsFilesMayDie) {
  const DaemonFixture daemon({.worker = "shoal-worker-faulty"});
  auto loaded = load(daemon, stalled());
  std::vector<pid_t> found;
  ASSERT_TRUE(eventually([&] { return !(found = finders(daemon)).empty(); })) << "no process of its own reads the files";
  ::kill(found[0], SIGKILL);
  ASSERT_EQ(loaded.wait_for(kStall), std::future_status::ready);
  EXPECT_TRUE(says(loaded.get().status().message(), {"'net'", stalled(), "killed by signal 9"}));
  EXPECT_EQ(daemon.connect().load("net", "builtin:identity").value().version, 1u) << "its name is free";
}

TEST_F(StalledFilesTest, ADaemonStopsWhileFilesAreLookedFor) {
  DaemonFixture daemon({.worker = "shoal-worker-faulty"});
  auto loaded = load(daemon, stalled());
  EXPECT_TRUE(eventually([&] { return daemon.model("net")["state"] == "loading"; }));
  ::kill(daemon.pid(), SIGTERM);
  EXPECT_EQ(daemon.wait_for_exit(kStall), 0);
  EXPECT_EQ(loaded.get().status().code(), StatusCode::kUnavailable);
}

TEST_F(StalledFilesTest, ADaemonStopsAtOnceWhileItsConfigurationIsRead) {
  write_text("worker", "#!/bin/sh\nkill -STOP $$\n");  // reads, and never ends
  fs::permissions(path("worker"), fs::perms::owner_all);
  write_text("shoal.toml", "");
  for (const int signal : {SIGTERM, SIGINT}) {
    DaemonFixture daemon({.worker = path("worker"), .wait_until_ready = false, .arguments = {"--config", path("shoal.toml")}});
    ASSERT_TRUE(eventually([&] { return daemon.all_processes().size() == 2; })) << "the daemon and the one that reads";
    ::kill(daemon.pid(), signal);
    EXPECT_EQ(daemon.wait_for_exit(kStall), 0) << signal;
    EXPECT_TRUE(eventually([&] { return daemon.all_processes().empty(); }));
  }
}

TEST_F(StalledFilesTest, AnUnloadEndsTheSearch) {
  const DaemonFixture daemon({.worker = "shoal-worker-faulty"});
  auto loaded = load(daemon, stalled());
  ASSERT_TRUE(eventually([&] { return !finders(daemon).empty(); }));
  EXPECT_TRUE(daemon.connect().unload("net").ok());
  ASSERT_EQ(loaded.wait_for(kStall), std::future_status::ready);
  EXPECT_EQ(loaded.get().status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(eventually([&] { return finders(daemon).empty(); }));
}

// Who waits for such a file system cannot even be killed.
TEST_F(StalledFilesTest, AFileSystemThatIsDeadHarmsNobodyElse) {
  fs::create_directory(path("dead"));
  DeadMount mount(path("dead"));
  if (!mount.is_mounted()) GTEST_SKIP() << "no FUSE here: " << std::strerror(errno);
  const auto patience = [&](auto& future, const char* what) {  // a process that sleeps so would outlive this test
    const bool in_time = future.wait_for(kRefusedWithin) == std::future_status::ready;
    EXPECT_TRUE(in_time) << what << " still waits";
    if (!in_time) mount.revive();
    return in_time;
  };
  write("good", 1);
  write_text("shoal.toml", "");
  fs::create_symlink("shoal.toml", path("link.toml"));
  DaemonFixture daemon({.arguments = {"--config", path("link.toml")}});
  Bystander bystander(daemon);
  ASSERT_TRUE(eventually([&] { return bystander.answered() > 0; }));
  fs::remove(path("link.toml"));
  fs::create_symlink(path("dead/shoal.toml"), path("link.toml"));
  ::kill(daemon.pid(), SIGHUP);
  auto loaded = load(daemon, path("dead/net"));
  if (patience(loaded, "load")) {
    EXPECT_TRUE(says(loaded.get().status().message(), {path("dead/net"), "within 10 s"}));
    EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "configuration_refused"); }, kRefusedWithin));
    EXPECT_TRUE(says(daemon.log(), {path("link.toml"), "within 10 s"}));
    EXPECT_LT(bystander.longest_wait(), kStall);
    EXPECT_FALSE(finders(daemon).empty()) << "one that cannot be killed";
    EXPECT_EQ(daemon.connect().load("net", path("good")).value().version, 1u);
    ::kill(daemon.pid(), SIGTERM);
    EXPECT_EQ(daemon.wait_for_exit(), 0);
    auto started = std::async(std::launch::async, [&] { return run_shoald("--config " + path("link.toml"), path("other")); });
    if (patience(started, "a daemon that starts")) {
      const CommandResult result = started.get();
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_TRUE(says(result.output, {path("link.toml"), "within 10 s"}));
    }
  }
  mount.revive();
  EXPECT_TRUE(eventually([&] { return finders(daemon).empty() && processes_of(path("other")).empty(); }));
}

// They came from a client. close() of them does not return, in no process.
TEST_F(StalledFilesTest, DescriptorsThatCannotBeClosedDelayNoNewProcess) {
  write("good", 1);
  UniqueFd dead;
  DaemonFixture daemon({.limits = "client_bad_messages = 0\nconnection_rate = 0"});
  Bystander bystander(daemon);
  const std::vector<pid_t> workers = daemon.workers();
  const int before = descriptors_of(daemon.pid());
  std::vector<std::unique_ptr<RawClient>> intruders;
  write_text("file", "");
  const DeadMount mount(path("file"));  // ends first: until then neither the daemon nor this test can
  if (!mount.is_mounted()) GTEST_SKIP() << "no FUSE here: " << std::strerror(errno);
  dead.reset(::open(path("file").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(dead) << std::strerror(errno);
  for (int i = 0; i < 10; ++i) {
    intruders.push_back(std::make_unique<RawClient>(daemon.directory()));
    intruders.back()->connect();
    send_packet(intruders.back()->attach_socket(), "garbage", std::vector(wire::kMaxControlFds, dead.get()));
  }
  EXPECT_TRUE(eventually([&] { return descriptors_of(daemon.pid()) >= before + 30; })) << "nothing is stuck";
  auto loaded = load(daemon, path("good"));
  const bool is_loaded = loaded.wait_for(kStall) == std::future_status::ready;
  EXPECT_TRUE(is_loaded) << "it still waits";
  if (is_loaded) EXPECT_TRUE(loaded.get().ok());
  ::kill(daemon.zygote(), SIGKILL);
  ::kill(workers.at(0), SIGKILL);
  EXPECT_TRUE(eventually([&] { return daemon.workers() != workers && !daemon.workers().empty(); }, kStall)) << daemon.log();
  EXPECT_LT(bystander.longest_wait(), kStall);
}

// The file system dies after the files were found.
TEST_F(StalledFilesTest, AZygoteThatCannotBeKilledHarmsNobodyElse) {
  fs::create_directory(path("dead"));
  DeadMount mount(path("dead"));
  if (!mount.is_mounted()) GTEST_SKIP() << "no FUSE here: " << std::strerror(errno);
  write("good", 1);
  const std::string model = path("good") + ",load_timeout_s=1";
  DaemonFixture daemon({.models = {"echo=builtin:identity", "kept=" + model}, .worker = stalling_worker(path("dead/x"))});
  Bystander bystander(daemon);
  ASSERT_TRUE(eventually([&] { return bystander.answered() > 0; }));
  write_text("stall", "");
  ::kill(daemon.zygote("kept"), SIGKILL);  // its successor waits for the file system
  ASSERT_TRUE(eventually([&] { return contains(daemon.log(), "zygote_killed model=kept"); }));
  auto loaded = load(daemon, model);
  auto unloaded = std::async(std::launch::async, [&] { return daemon.connect().unload("kept"); });
  const auto in_time = [&](const auto& future) { return future.wait_for(kRefusedWithin) == std::future_status::ready; };
  const bool are_in_time = in_time(loaded) && in_time(unloaded);
  EXPECT_TRUE(are_in_time) << "they still wait";
  if (are_in_time) {
    EXPECT_TRUE(says(loaded.get().status().message(), {"'net'", "loading took more than 1 s"}));
    EXPECT_TRUE(unloaded.get().ok());
    for (const char* stuck : {"zygote_stuck model=kept", "zygote_stuck model=net"})
      EXPECT_TRUE(eventually([&] { return contains(daemon.log(), stuck); })) << stuck;
    EXPECT_LT(bystander.longest_wait(), kStall);
    fs::remove(path("stall"));
    for (const char* name : {"net", "kept"})
      EXPECT_EQ(daemon.connect().load(name, path("good")).value().version, 1u) << "its name is free";
    ::kill(daemon.pid(), SIGTERM);
    EXPECT_EQ(daemon.wait_for_exit(), 0);
  }
  mount.revive();
  EXPECT_TRUE(eventually([&] { return daemon.all_processes().empty() || !are_in_time; }));
}

}  // namespace
}  // namespace shoal::test
