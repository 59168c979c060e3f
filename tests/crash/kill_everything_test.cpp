// SIGKILL of all processes at once: nothing may remain that holds memory or disturbs the next start.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>

#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kRounds = 100;

// Inodes of our memfds that these processes hold.
std::set<std::string> memfds_of(const std::vector<pid_t>& pids) {
  std::set<std::string> found;
  for (const pid_t pid : pids) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string target = std::filesystem::read_symlink(entry->path(), error).string();
      struct stat info {};
      if (target.starts_with("/memfd:shoal") && ::stat(entry->path().c_str(), &info) == 0)
        found.insert(std::to_string(info.st_ino));
    }
  }
  return found;
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (const pid_t pid = std::atoi(entry.path().filename().c_str()); pid > 0) pids.push_back(pid);
  }
  return pids;
}

TEST(KillEverything, TheNextStartSucceedsWithinASecondAndNothingIsLeft) {
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}, .wait_until_ready = false});
  std::chrono::nanoseconds slowest{0};
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(daemon.wait_until_ready()) << daemon.log();
    const std::set<std::string> memfds = memfds_of(daemon.all_processes());
    EXPECT_FALSE(memfds.empty());
    for (const pid_t pid : daemon.all_processes()) ::kill(pid, SIGKILL);
    daemon.wait_for_exit();
    // all_processes() finds processes by their environment. A dying process loses its environment before its descriptors.
    const auto none_is_left = [&] {
      const auto left = memfds_of(all_pids());
      return std::ranges::none_of(memfds, [&](const std::string& inode) { return left.contains(inode); });
    };
    ASSERT_TRUE(eventually([&] { return daemon.all_processes().empty() && none_is_left(); }, std::chrono::seconds(2)));
    const auto start = std::chrono::steady_clock::now();
    daemon.start();
    ASSERT_TRUE(daemon.wait_until_ready(std::chrono::seconds(1))) << "round " << round << "\n" << daemon.log();
    slowest = std::max<std::chrono::nanoseconds>(slowest, std::chrono::steady_clock::now() - start);
  }
  std::printf("%d rounds; the slowest start took %.0f ms\n", kRounds, static_cast<double>(slowest.count()) / 1e6);
  Pool pool = daemon.connect();
  Tensor tensor = Tensor::create(DType::kFloat32, Shape{3}).value();
  EXPECT_TRUE(pool.predict("echo", {{"data", tensor}}).ok());
}

}  // namespace
}  // namespace shoal::test
