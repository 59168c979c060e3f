// Who dies in a function, what makes it enter it, and what must hold after its death.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/crash/step/walk.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {

/// A daemon with one worker that must go on serving.
class Served {
 public:
  explicit Served(DaemonSettings settings, int together = 1);

  DaemonFixture& daemon() { return daemon_; }
  Pool& pool() { return pool_; }
  Pool connect(PoolOptions options = {});
  void submit();
  /// What was submitted is answered, rightly.
  void expect_answer();
  void expect_service();

  /// The one worker that is ready, and its one lane's thread.
  nlohmann::json worker();
  nlohmann::json model() { return stats().at("models").at(0); }
  nlohmann::json stats() { return nlohmann::json::parse(pool_.stats().value()); }

 private:
  const int together_;  ///< as many requests at once
  DaemonFixture daemon_;
  Pool pool_;
  std::vector<Prediction> under_way_;
  float next_ = 0;
};

/// What crashes its lane when the worker of these tests runs it.
constexpr float kTrigger = 666;

/// Whose function it is, and what is under way when it dies.
enum class Part {
  kConnecting,
  kSubmitting,
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

}  // namespace shoal::test
