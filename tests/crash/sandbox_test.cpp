// The kernel ends a worker that makes a forbidden system call, and the worker's record names the call. The same holds for a
// zygote that loads a model.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/checkpoint.hpp"
#include "tests/support/landlock.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

Tensor triggering(float first) { return counting(Shape{1, 4}, first); }

std::string status_line(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return line.substr(key.size() + 2);
  }
  return "none";
}

class Sandbox : public testing::Test {
 protected:
  /// Returns the --model argument for a model of one faulty operator. The input 666 triggers it.
  std::string model(const std::string& op) {
    write_checkpoint(models_.path(op), "m", {{op, "bad0", {{"scalar", "666"}}, {}}}, "[-1, 4]");
    return "bad=" + models_.path(op);
  }

  const ScratchDirectory models_;
};

TEST_F(Sandbox, AForbiddenSystemCallEndsTheWorkerWithARecordThatNamesIt) {
  const std::pair<const char*, const char*> calls[] = {
      {"_fault_exec", "execve"}, {"_fault_open", "openat"}, {"_fault_socket", "socket"}, {"_fault_bind", "bind"}};
  for (const auto& [op, call] : calls) {
    DaemonFixture daemon({.models = {model(op)}, .worker = "shoal-worker-faulty"});
    Pool pool = daemon.connect();
    const auto guilty = pool.predict("bad", {{"data", triggering(666)}});
    EXPECT_EQ(guilty.status().code(), StatusCode::kPoison) << op << ": " << guilty.status().to_string();
    EXPECT_TRUE(pool.predict("bad", {{"data", triggering(1)}}).ok()) << op;
    EXPECT_NE(daemon.log().find("forbids to call " + std::string(call)), std::string::npos) << op << "\n" << daemon.log();
  }
}

TEST_F(Sandbox, AModelThatMakesItsReaderExecuteAProgramEndsItsZygote) {
  DaemonFixture daemon({.models = {model("_fault_load_exec")}, .worker = "shoal-worker-faulty", .wait_until_ready = false});
  EXPECT_TRUE(eventually([&] { return daemon.log().find("how=\"killed by signal 31\"") != std::string::npos; })) << daemon.log();
  EXPECT_TRUE(is_alive(daemon.pid()));
}

// Clients trust whoever has bound the attach socket.
TEST_F(Sandbox, AZygoteThatWasTakenOverBindsNothingBesideTheAttachSocket) {
  if (landlock_version() < 1) GTEST_SKIP() << "this kernel has no Landlock";
  DaemonFixture daemon({.models = {model("_fault_load_bind")}, .worker = "shoal-worker-faulty"});
  EXPECT_TRUE(daemon.connect().predict("bad", {{"data", triggering(666)}}).ok());
  EXPECT_FALSE(std::filesystem::exists(daemon.directory() + "/intruder"));
}

TEST_F(Sandbox, HoldsForZygoteAndWorkersWithoutPrivileges) {
  DaemonFixture daemon({.models = {model("_fault_open")}, .worker = "shoal-worker-faulty"});
  std::vector<pid_t> pids = daemon.workers("bad");
  pids.push_back(daemon.zygote("bad"));
  for (const pid_t pid : pids) {
    EXPECT_EQ(status_line(pid, "NoNewPrivs"), "1");
    EXPECT_EQ(status_line(pid, "Seccomp"), "2");
  }
}

TEST_F(Sandbox, CanBeSwitchedOffForDebuggersAndThatIsSaid) {
  ::setenv("SHOAL_SANDBOX", "off", 1);
  DaemonFixture daemon({.models = {model("_fault_open")}, .worker = "shoal-worker-faulty"});
  ::unsetenv("SHOAL_SANDBOX");
  EXPECT_EQ(status_line(daemon.workers("bad").at(0), "Seccomp"), "0");
  EXPECT_TRUE(daemon.connect().predict("bad", {{"data", triggering(666)}}).ok());
  EXPECT_TRUE(daemon.logs("load_warning model=bad version=1 what=\"no sandbox: SHOAL_SANDBOX=off\""));
}

}  // namespace
}  // namespace shoal::test
