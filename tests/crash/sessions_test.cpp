// Sequences survive the deaths of workers, and end with their client.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "shoal/engine.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/recurrent_model.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

class SessionDeaths : public testing::Test {
 protected:
  std::string write_model() const {
    write_recurrent_model(models_.path("rnn"));
    return "rnn=" + models_.path("rnn") + ",workers=3,queue_limit=4000";
  }
  /// The last outputs of a sequence that nobody disturbs, in this process.
  Tensors undisturbed(unsigned sequence, unsigned steps, const std::function<void(unsigned, const Tensors&)>& each = {}) {
    Tensors outputs;
    for (unsigned step = 0; step < steps; ++step) {
      Tensors inputs{{"data", recurrent_input(sequence, step)}};
      if (step > 0) inputs.push_back({"h_in", outputs[1].tensor});
      outputs = engine_.run(inputs).value();
      if (each) each(step, outputs);
    }
    return outputs;
  }
  static bool same_bits(const Tensors& a, const Tensors& b) {
    return std::ranges::equal(a, b, [](const NamedTensor& x, const NamedTensor& y) {
      return x.tensor.shape() == y.tensor.shape() && std::ranges::equal(x.tensor.view().bytes(), y.tensor.view().bytes());
    });
  }
  /// The worker that holds a request; 0 if none does.
  pid_t holder() const {
    const auto model = daemon_.model("rnn");
    for (const auto& worker : model.at("workers")) {
      if (worker.at("held") > 0) return worker.at("pid");
    }
    return 0;
  }

  const ScratchDirectory models_;
  DaemonFixture daemon_{{.models = {write_model()}}};
  Engine engine_ = Engine::load(models_.path("rnn")).value();
};

TEST_F(SessionDeaths, AHundredStepsWhoseWorkersAreKilledGiveTheBitsOfAnUndisturbedSequence) {
  constexpr unsigned kSteps = 100;
  Pool pool = daemon_.connect();
  Session session = pool.open_session("rnn").value();
  std::mt19937 random(20);
  int killed = 0, killed_blindly = 0;
  undisturbed(1, kSteps, [&](unsigned step, const Tensors& right) {
    if (HasFailure()) return;
    const Tensors inputs{{"data", recurrent_input(1, step)}};
    const auto chance = random() % 8;
    const bool kills = chance < 2, kills_blindly = chance == 2;  // the worker that holds the step; one, at any moment of it
    const auto workers = kills || kills_blindly ? daemon_.workers("rnn") : std::vector<pid_t>();
    if (kills) std::ranges::for_each(workers, stop_process);
    const Prediction prediction = session.submit(inputs);
    if (kills_blindly) {
      const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300);
      while (std::chrono::steady_clock::now() < moment) {
      }
      killed_blindly += ::kill(workers[random() % workers.size()], SIGKILL) == 0;
    }
    pid_t victim = 0;
    if (kills && eventually([&] { return (victim = holder()) != 0; }, 5s)) killed += ::kill(victim, SIGKILL) == 0;
    for (const pid_t worker : workers) {
      if (kills && worker != victim) ::kill(worker, SIGCONT);
    }
    const auto& outputs = prediction.get();
    ASSERT_TRUE(outputs.ok()) << "step " << step << ": " << outputs.status().to_string();
    ASSERT_TRUE(same_bits(*outputs, right)) << "step " << step;
    if (!workers.empty()) ASSERT_TRUE(daemon_.wait_until_ready());
  });
  EXPECT_GT(killed, 10);
  EXPECT_GT(killed_blindly, 3);
  EXPECT_GT(daemon_.model("rnn").at("counts").at("rerun").get<int>(), 10);
}

TEST_F(SessionDeaths, AThousandSequencesAtOnceGoOnWhileWorkersAreKilled) {
  constexpr unsigned kSequences = 1000, kSteps = 5;
  Pool pool = daemon_.connect();
  std::vector<Session> sessions;
  for (unsigned i = 0; i < kSequences; ++i) sessions.push_back(pool.open_session("rnn").value());
  for (unsigned i = kSequences; i < PoolOptions().session_limit; ++i) sessions.push_back(pool.open_session("rnn").value());
  const Status refused = pool.open_session("rnn").status();
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(refused.message(), {"1024 sessions", "session_limit"}));
  std::vector<Tensors> last(kSequences);
  for (unsigned step = 0; step < kSteps; ++step) {
    std::vector<Prediction> predictions;
    for (unsigned i = 0; i < kSequences; ++i) predictions.push_back(sessions[i].submit({{"data", recurrent_input(i, step)}}));
    if (const auto workers = daemon_.workers("rnn"); !workers.empty()) ::kill(workers[step % workers.size()], SIGKILL);
    for (unsigned i = 0; i < kSequences; ++i) {
      const auto& outputs = predictions[i].get();
      ASSERT_TRUE(outputs.ok()) << "sequence " << i << ", step " << step << ": " << outputs.status().to_string();
      last[i] = *outputs;
    }
  }
  for (unsigned i = 0; i < kSequences; ++i) ASSERT_TRUE(same_bits(last[i], undisturbed(i, kSteps))) << "sequence " << i;
  EXPECT_GT(pool.usage().inputs.used_bytes, 0u);
  sessions.clear();
  EXPECT_TRUE(eventually([&] {
    pool.poll_once();
    return pool.usage().inputs.used_bytes == 0;
  }));
}

/// How many arenas of clients the workers have mapped.
int arenas_in(const std::vector<pid_t>& workers) {
  int count = 0;
  for (const pid_t worker : workers) {
    std::ifstream maps("/proc/" + std::to_string(worker) + "/maps");
    for (std::string line; std::getline(maps, line);)
      count += contains(line, "memfd:shoal:input") || contains(line, "memfd:shoal:output");
  }
  return count;
}

TEST_F(SessionDeaths, AClientThatIsKilledLeavesNothing) {
  const auto supervisor = [&] { return daemon_.stats().at("supervisor"); };
  const auto workers = daemon_.workers("rnn");
  const int arenas_before = arenas_in(workers);
  const auto before = supervisor();
  const pid_t client = start_child([&] {
    Pool pool = daemon_.connect();
    std::vector<Session> sessions;
    for (unsigned i = 0; i < 100; ++i) sessions.push_back(pool.open_session("rnn").value());
    for (unsigned step = 0;; ++step) {
      for (unsigned i = 0; i < 100; ++i) (void)sessions[i].predict({{"data", recurrent_input(i, step)}});
    }
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return arenas_in(workers) > arenas_before; }));
  EXPECT_TRUE(eventually([&] { return daemon_.model("rnn").at("counts").at("ok").get<int>() > 500; }));
  ::kill(client, SIGKILL);
  EXPECT_EQ(exit_code_of(client), 128 + SIGKILL);
  for (const char* const what : {"clients", "arena_allocated_bytes"})
    EXPECT_TRUE(eventually([&] { return supervisor().at(what) == before.at(what); })) << what << ": " << supervisor().at(what);
  EXPECT_TRUE(eventually([&] { return arenas_in(workers) == arenas_before; }));
  EXPECT_EQ(daemon_.workers("rnn"), workers);
  Pool pool = daemon_.connect();
  EXPECT_TRUE(pool.open_session("rnn").value().predict({{"data", recurrent_input(1, 0)}}).ok());
}

}  // namespace
}  // namespace shoal::test
