// A daemon with one honest client beside hostile ones. Whatever these do, and whatever resource is exhausted, the daemon and its
// processes live, and every request of the honest client gets its right answer. The times of the answers are printed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {

/// An honest client: sends one request after the other and checks each answer. The first requests run before a hostile client
/// comes, so that their times can be compared with the later ones. Its arenas fit where few addresses are left.
class Honest {
 public:
  explicit Honest(const DaemonFixture& daemon)
      : pool_(daemon.connect({.arena_limit_bytes = 4 << 20})), thread_([this](const std::stop_token& stop) { run(stop); }) {
    EXPECT_TRUE(eventually([&] { return answered_ >= kAlone; }, std::chrono::seconds(30)));
  }
  ~Honest() { end(); }
  /// Stops the client. All its requests must have had right answers.
  void end() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    EXPECT_GT(times_ms_.size(), kAlone);
    EXPECT_EQ(failed_, 0) << error_;
    EXPECT_EQ(wrong_, 0);
    parts_.push_back({"", times_ms_.size()});
    for (std::size_t i = 0; i + 1 < parts_.size(); ++i)
      print(parts_[i].name, std::span(times_ms_).subspan(parts_[i].first, parts_[i + 1].first - parts_[i].first));
  }
  std::size_t answered() const { return answered_; }
  /// Names what else happens from now on, for the printed times.
  void from_now(std::string beside) { parts_.push_back({std::move(beside), answered_}); }

 private:
  static constexpr std::size_t kAlone = 500;

  struct Part {
    std::string name;
    std::size_t first;
  };
  static void print(const std::string& when, std::span<double> times_ms) {
    if (times_ms.empty()) return;
    std::ranges::sort(times_ms);
    std::printf("%s: %zu answers, p50 %.3f ms, p99 %.3f ms, max %.3f ms\n", when.c_str(), times_ms.size(),
                times_ms[times_ms.size() / 2], times_ms[times_ms.size() * 99 / 100], times_ms.back());
  }
  void run(const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const auto first = static_cast<float>(i % 100'000);
      const auto start = std::chrono::steady_clock::now();
      const auto outputs = pool_.predict("echo", {{"data", counting({16}, first)}});
      times_ms_.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      if (!outputs.ok()) {
        error_ = outputs.status().to_string();
        ++failed_;
      } else {
        wrong_ += (*outputs)[0].tensor.values<float>()[15] != first + 15;
      }
      ++answered_;
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // leaves the processor to others
    }
  }

  Pool pool_;
  std::vector<Part> parts_ = {{"alone", 0}, {"beside it", kAlone}};
  std::vector<double> times_ms_;
  int failed_ = 0, wrong_ = 0;  // read after the thread has ended
  std::string error_;
  std::atomic<std::size_t> answered_ = 0;
  std::jthread thread_;
};

class HostileTest : public testing::Test {
 protected:
  explicit HostileTest(const std::string& limits = "")
      : daemon_({.models = {"echo=builtin:identity,workers=2"}, .limits = limits}) {}
  ~HostileTest() override {
    honest_.end();
    EXPECT_TRUE(is_alive(daemon_.pid()));
    EXPECT_TRUE(daemon_.wait_until_ready());
    EXPECT_TRUE(eventually([&] { return descriptors_of(daemon_.pid()) <= descriptors_ + 1; })) << descriptors_of(daemon_.pid());
  }
  void expect_nobody_died() const {
    std::istringstream log(daemon_.log());
    for (std::string line; std::getline(log, line);) EXPECT_FALSE(contains(line, "worker_died")) << line;
  }
  /// Waits until the honest client has had this many more answers.
  void wait_for_honest(std::size_t answers = 20) const {
    const std::size_t until = honest_.answered() + answers;
    EXPECT_TRUE(eventually([&] { return honest_.answered() >= until; }));
  }

  DaemonFixture daemon_;
  pid_t zygote_ = daemon_.zygote();
  std::vector<pid_t> workers_ = daemon_.workers();
  Honest honest_{daemon_};
  int descriptors_ = descriptors_of(daemon_.pid());
};

/// Disconnected clients may come back at once.
class UnlimitedRateTest : public HostileTest {
 protected:
  UnlimitedRateTest() : HostileTest("connection_rate = 0\n") {}
};

/// No limit slows the hostile clients down.
class FloodTest : public HostileTest {
 protected:
  FloodTest() : HostileTest("client_bad_messages = 0\nconnection_rate = 0\n") {}
};

}  // namespace shoal::test
