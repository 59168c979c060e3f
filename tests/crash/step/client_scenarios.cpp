#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "shoal/session.hpp"
#include "tests/crash/step/scenarios.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kArenaBytes = 64 << 10;  // of a client that needs little

/// A client in a child process. It stops itself before or after it connects, and then does what enters the function.
class ClientScenario : public Scenario {
 public:
  using Act = std::function<void()>;
  using Prepare = std::function<Act(Pool&)>;
  ///   prepare  runs with a connected pool that has had one answer, and gives what enters the function; empty: connecting
  ///            does
  ClientScenario(Served& served, std::uint64_t arena_limit_bytes, Prepare prepare)
      : served_(served), arena_limit_bytes_(arena_limit_bytes), prepare_(std::move(prepare)) {
    supervisor_descriptors_ = descriptors_of(served.daemon().pid());
    (void)served.worker();
    EXPECT_TRUE(served.daemon().wait_until_ready());
    arena_bytes_ = arena_bytes();
    worker_mappings_ = worker_mappings();
  }

  Victim next() override {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!prepare_) ::raise(SIGSTOP);
      Pool pool = served_.connect({.arena_limit_bytes = arena_limit_bytes_});
      (void)pool.predict("echo", {{"data", counting({4, 64})}});
      if (prepare_) {
        const Act act = prepare_(pool);
        ::raise(SIGSTOP);
        act();
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_TRUE(::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    victim_ = pid;
    return {pid, pid};
  }
  void provoke() override { ::kill(victim_, SIGCONT); }
  bool ends_by_itself() const override { return true; }
  void after_death() override {
    ::waitpid(victim_, nullptr, 0);
    served_.expect_service();
    EXPECT_TRUE(soon([&] { return served_.stats().at("supervisor").at("clients") == 1; })) << "a dead client is still there";
    // The first count may include descriptors that were about to be closed.
    int descriptors = 0;
    EXPECT_TRUE(soon([&] { return (descriptors = descriptors_of(served_.daemon().pid())) <= supervisor_descriptors_; }))
        << "the supervisor held " << supervisor_descriptors_ << " descriptors, now " << descriptors;
    supervisor_descriptors_ = std::min(supervisor_descriptors_, descriptors);
    EXPECT_TRUE(soon([&] { return worker_mappings() == worker_mappings_; })) << "a dead client's arena is still mapped";
    EXPECT_TRUE(soon([&] { return arena_bytes() == arena_bytes_; })) << "its memory is not given back: " << arena_bytes();
    EXPECT_TRUE(soon([&] { return each_request_has_one_outcome(); })) << served_.stats().at("models");
    for (const auto& entry : fs::directory_iterator(served_.daemon().directory())) {
      if (!entry.path().filename().string().starts_with("c")) continue;
      // Walked too slowly, a client binds its socket when the supervisor does not wait for it any more. The next start removes
      // that.
      EXPECT_TRUE(contains(served_.daemon().log(), "no answer within 2 s at " + entry.path().string()))
          << entry.path() << " is left";
    }
  }

 private:
  std::uint64_t arena_bytes() { return served_.stats().at("supervisor").at("arena_allocated_bytes"); }
  int worker_mappings() {
    const json stats = served_.stats();
    int mappings = 0;
    for (const json& model : stats.at("models")) {
      for (const json& worker : model.at("workers")) mappings += memfd_mappings_of(worker.at("pid"));
    }
    return mappings;
  }
  bool each_request_has_one_outcome() {
    const json stats = served_.stats();
    return std::ranges::all_of(stats.at("models"), [](const json& model) {
      const json& counts = model.at("counts");
      int outcomes = counts.at("ok").get<int>() + counts.at("orphaned").get<int>();
      for (const auto& [code, count] : counts.at("failed").items()) outcomes += count.get<int>();
      return outcomes == counts.at("admitted").get<int>() + counts.at("refused").get<int>();
    });
  }

  Served& served_;
  std::uint64_t arena_limit_bytes_;
  Prepare prepare_;
  pid_t victim_ = -1;
  int supervisor_descriptors_ = 0, worker_mappings_ = 0;
  std::uint64_t arena_bytes_ = 0;
};

/// A client in the middle of a sequence. Meanwhile another client's sequence goes on.
class SessionScenario : public ClientScenario {
 public:
  ///   session  of the client that lives, after one step
  SessionScenario(Served& served, Session session)
      : ClientScenario(served, kArenaBytes, [](Pool& pool) { return in_a_sequence(pool); }), session_(std::move(session)) {}
  void after_death() override {
    ClientScenario::after_death();
    EXPECT_EQ(step(session_), static_cast<float>(++steps_));
  }
  static Session begin(Pool& pool) {
    Session session = pool.open_session("sum").value();
    EXPECT_EQ(step(session), 1);
    return session;
  }

 private:
  /// Adds 1 to the state, and returns it.
  static float step(Session& session) {
    return session.predict({{"data", counting({1, 2})}}).value().front().tensor.values<float>()[1];
  }
  static Act in_a_sequence(Pool& pool) {
    const auto session = std::make_shared<Session>(begin(pool));
    return [session] { step(*session); };
  }

  Session session_;
  int steps_ = 1;
};

}  // namespace

void write_sum(const fs::path& directory) {
  write_graph(directory, "sum",
              R"json({"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "h_in", "inputs": []},
                {"op": "elemwise_add", "name": "h_out", "inputs": [[0, 0, 0], [1, 0, 0]]},
                {"op": "_copy", "name": "y", "inputs": [[2, 0, 0]]}],
                "arg_nodes": [0, 1], "heads": [[3, 0, 0], [2, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json",
              "[{name = \"data\", shape = [-1, 2]}, {name = \"h_in\", shape = [-1, 2]}]\n"
              "state = [{out = \"h_out_output\", in = \"h_in\"}]\ntuning_ms = 0");
}

std::unique_ptr<Scenario> client_scenario_of(Part part, Served& served) {
  switch (part) {
    case Part::kConnecting:
      return std::make_unique<ClientScenario>(served, kArenaBytes, nullptr);
    case Part::kSubmitting:
      return std::make_unique<ClientScenario>(served, kArenaBytes, [](Pool& pool) {
        return [&pool] { (void)pool.predict("echo", {{"data", counting({8, 64})}}); };
      });
    case Part::kGrowing:  // by 2 MB
      return std::make_unique<ClientScenario>(served, 8 << 20, [](Pool& pool) {
        return [&pool] { (void)pool.predict("echo", {{"data", counting({8192, 64})}}); };
      });
    case Part::kCommitting:
      return std::make_unique<SessionScenario>(served, SessionScenario::begin(served.pool()));
    default:
      return nullptr;
  }
}

}  // namespace shoal::test
