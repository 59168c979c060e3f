// For each kind of victim: how it enters the function, and what must hold after its death.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/crash/step/walk.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {

constexpr auto kPatience = std::chrono::seconds(60);  ///< these tests are not about time, and the machine may be busy
inline bool soon(const std::function<bool()>& condition) { return eventually(condition, kPatience); }

/// A daemon with one worker, which must go on serving.
class Served {
 public:
  ///   together  how many requests submit() sends
  ///   columns   of the input of each request
  explicit Served(DaemonSettings settings, int together = 1, std::int64_t columns = 64);

  DaemonFixture& daemon() { return daemon_; }
  Pool& pool() { return pool_; }
  Pool connect(PoolOptions options = {});
  void submit();
  /// Waits for what was submitted. Each answer must be right.
  void expect_answer();
  void expect_service();

  /// The one worker, in the stats of the daemon, once it is ready and its lane has a thread.
  nlohmann::json worker();
  nlohmann::json model() { return stats().at("models").at(0); }
  nlohmann::json stats() { return nlohmann::json::parse(pool_.stats().value()); }

 private:
  const int together_;
  const std::int64_t columns_;
  DaemonFixture daemon_;
  Pool pool_;
  std::vector<Prediction> under_way_;
  float next_ = 0;
};

/// An input that begins with this crashes its lane.
constexpr float kTrigger = 666;

/// Writes the model of kCommitting, which must be served as "sum": y = h_out = h_in + data, and h_in is its state.
void write_sum(const std::filesystem::path& directory);

/// Which process dies, and what happens meanwhile.
enum class Part {
  kConnecting,
  kSubmitting,
  kGrowing,
  kCommitting,
  kLane,
  kCrash,
  kArrival,
  kDeparture,
  kBatch,
  kBirth,
  kLoad,
  kZygote,
  kSupervisor,
  kSupervisorAtDeath,
  kSupervisorAtZygoteDeath,
  kSupervisorAtAttach
};

std::unique_ptr<Scenario> scenario_of(Part part, Served& served);
/// The same where a client dies.
std::unique_ptr<Scenario> client_scenario_of(Part part, Served& served);

}  // namespace shoal::test
