// Models whose answers tell their version, clients that check it, and an obstacle that makes workers fail to start.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {

/// A directory with versions of a model. Version N answers x + N.
class VersionsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return root_.path(name); }
  /// Writes the version and then renames it, so that it appears complete.
  void put(int version, std::vector<ChainNode> more = {}) const {
    write("coming", version, std::move(more));
    std::filesystem::remove_all(path(std::to_string(version)));
    std::filesystem::rename(path("coming"), path(std::to_string(version)));
  }
  void write(const std::string& directory, int constant, std::vector<ChainNode> more = {}) const {
    more.push_back({.op = "_plus_scalar", .name = "plus", .attributes = {{"scalar", std::to_string(constant)}}, .weights = {}});
    write_checkpoint(path(directory), "net", more, "[-1, 4]");
  }
  void write_text(const std::string& name, const std::string& text) const { root_.write(name, text); }

 private:
  ScratchDirectory root_;
};

inline Tensors input(float first = 1) { return {{"data", counting({1, 4}, first)}}; }

/// Returns what the model added to its input; -1 when it did not answer.
inline int added(Pool& pool, const std::string& name, std::uint64_t version = 0) {
  const auto outputs = pool.predict(name, input(), {.version = version});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  return outputs.ok() ? static_cast<int>((*outputs)[0].tensor.values<float>()[0]) - 1 : -1;
}

/// Clients that send requests all the time. They check that answer and version agree, and that no answer comes from a version
/// older than the one that served when the request was submitted.
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

  std::atomic<std::uint64_t> oldest_version{1};  // that may answer requests submitted from now on
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

/// Leaves the zygotes that run now so few descriptors that the workers which they fork from now on fail to start.
class Obstacle {
 public:
  explicit Obstacle(const DaemonFixture& daemon) {
    const auto stats = daemon.stats();
    for (const auto& model : stats.at("models")) {
      if (!model.at("zygote").at("pid").is_number()) continue;
      const pid_t zygote = model.at("zygote").at("pid");
      rlimit before{};
      EXPECT_EQ(::prlimit(zygote, RLIMIT_NOFILE, nullptr, &before), 0);
      const rlimit now{.rlim_cur = static_cast<rlim_t>(descriptors_of(zygote)) + kForTheZygote, .rlim_max = before.rlim_max};
      EXPECT_EQ(::prlimit(zygote, RLIMIT_NOFILE, &now, nullptr), 0);
      limits_.emplace_back(zygote, before);
    }
  }
  ~Obstacle() {
    for (const auto& [zygote, before] : limits_) ::prlimit(zygote, RLIMIT_NOFILE, &before, nullptr);
  }
  Obstacle(const Obstacle&) = delete;
  Obstacle& operator=(const Obstacle&) = delete;

 private:
  static constexpr rlim_t kForTheZygote = 8;  // a worker needs 16 more than it has when it binds
  std::vector<std::pair<pid_t, rlimit>> limits_;
};

}  // namespace shoal::test
