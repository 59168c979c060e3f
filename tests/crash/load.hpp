// Steady requests beside what a test does to the daemon.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/pool_fixture.hpp"

namespace shoal::test {

/// Threads that send one request after the other. A thread ends at the first fatal failure of the test.
class Load {
 public:
  /// Sends request number `request` of thread number `thread`, and checks its answer.
  using Ask = std::function<void(Pool& pool, int thread, int request)>;

  Load(const DaemonFixture& daemon, int threads, Ask ask) : pool_(daemon.connect()), ask_(std::move(ask)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
  }
  ~Load() { stop(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  void stop() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::uint64_t answers() const { return answers_; }

 private:
  void run(int thread) {
    for (int request = 0; !is_over_ && !testing::Test::HasFatalFailure(); ++request) {
      ask_(pool_, thread, request);
      ++answers_;
    }
  }

  Pool pool_;
  const Ask ask_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> answers_{0};
  std::vector<std::thread> threads_;
};

}  // namespace shoal::test
