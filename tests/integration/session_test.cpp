// Recurrent models: states that requests leave out or give, and sessions.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "shoal/engine.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/recurrent_model.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.tensor.shape() == y.tensor.shape() &&
           std::ranges::equal(x.tensor.view().bytes(), y.tensor.view().bytes());
  });
}

class Sessions : public testing::Test {
 protected:
  std::string write_model() const {
    write_recurrent_model(models_.path("rnn"));
    return "rnn=" + models_.path("rnn") + ",workers=2";
  }
  /// A step in this process, after which `state` is that of the next one.
  Tensors right_step(const Tensor& data, std::optional<Tensor>& state) {
    Tensors inputs{{"data", data}};
    if (state) inputs.push_back({"h_in", *state});
    Tensors outputs = engine_.run(inputs).value();
    state = outputs[1].tensor;
    return outputs;
  }
  /// The session goes on with these steps of the sequence as the engine does.
  void expect_right_steps(Session& session, unsigned sequence, unsigned first, unsigned end, std::optional<Tensor>& state) {
    for (unsigned step = first; step < end; ++step) {
      const Tensor data = recurrent_input(sequence, step);
      const auto outputs = session.predict({{"data", data}});
      ASSERT_TRUE(outputs.ok()) << step << ": " << outputs.status().to_string();
      EXPECT_TRUE(same_bits(*outputs, right_step(data, state))) << "sequence " << sequence << ", step " << step;
    }
  }

  const ScratchDirectory models_;
  DaemonFixture daemon_{{.models = {write_model()}}};
  Pool pool_ = daemon_.connect();
  Engine engine_ = Engine::load(models_.path("rnn")).value();
};

TEST_F(Sessions, StatesAreOrdinaryTensorsThatMayBeLeftOut) {
  EXPECT_EQ(pool_.describe("rnn").value().state, (std::vector<StatePair>{{"h_out_output", "h_in", {-1, 8}}}));
  std::optional<Tensor> state;
  const Tensor data = recurrent_input(1, 0);
  const Tensors first = pool_.predict("rnn", {{"data", data}}).value();
  const Tensor zeros = Tensor::create(DType::kFloat32, {1, 8}).value();
  EXPECT_TRUE(same_bits(first, pool_.predict("rnn", {{"h_in", zeros}, {"data", data}}).value()));
  EXPECT_TRUE(same_bits(first, right_step(data, state)));
  const Tensors second = pool_.predict("rnn", {{"data", data}, {"h_in", first[1].tensor}}).value();
  EXPECT_TRUE(same_bits(second, right_step(data, state)));
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_EQ(pool_.predict("rnn", {{"data", counting({3, 4})}}).value()[1].tensor.shape(), (Shape{3, 8}));
}

TEST_F(Sessions, OfTimeMajorModelsTakeTheBatchFromTheAxisThatModelTomlNames) {
  const std::pair<const char*, const char*> keys[] = {
      {"shape = [-1, -1, 4], layout = \"TNC\"", "shape = [1, -1, 3]"},
      {"shape = [-1, -1, 4]", "shape = [1, -1, 3], batch_axis = 1"},
      {"shape = [-1, -1, 4]", "shape = [1, -1, 3], batch_input = \"data\", batch_axis = 1"},
  };
  Tensor zeros = Tensor::create(DType::kFloat32, {1, 3, 3}).value();
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    const std::string name = "lstm" + std::to_string(i);
    write_time_major_model(models_.path(name), keys[i].first, keys[i].second);
    ASSERT_EQ(pool_.load(name, models_.path(name)).status(), Status()) << keys[i].second;
    EXPECT_EQ(pool_.describe(name).value().state[1].batch_axis, 1);
    const Tensor data = counting({2, 3, 4});
    const Tensors first = pool_.predict(name, {{"data", data}}).value();
    EXPECT_EQ(first[1].tensor.shape(), (Shape{1, 3, 3}));
    EXPECT_TRUE(same_bits(first, pool_.predict(name, {{"data", data}, {"h0", zeros}, {"c0", zeros}}).value()));
    const Tensors second = pool_.predict(name, {{"data", data}, {"h0", first[1].tensor}, {"c0", first[2].tensor}}).value();
    EXPECT_FALSE(same_bits(first, second));
    Session session = pool_.open_session(name).value();
    EXPECT_TRUE(same_bits(first, session.predict({{"data", data}}).value()));
    EXPECT_TRUE(same_bits(second, session.predict({{"data", data}}).value()));
    EXPECT_TRUE(same_bits(first, Engine::load(models_.path(name)).value().run({{"data", data}}).value()));
  }
  write_time_major_model(models_.path("wrong"), "shape = [-1, -1, 4]", "shape = [1, -1, 3], batch_axis = 3");
  const Status refused = pool_.load("wrong", models_.path("wrong")).status();
  EXPECT_TRUE(says(refused.message(), {"'h0'", "`batch_axis` is 3", "'data'", "2x3x4", "model.toml"}));
}

TEST_F(Sessions, KeepTheirStatesApart) {
  Session first = pool_.open_session("rnn").value(), second = pool_.open_session("rnn").value();
  std::optional<Tensor> first_state, second_state;
  for (unsigned round = 0; round < 5; ++round) {
    expect_right_steps(first, 1, 3 * round, 3 * round + 3, first_state);
    expect_right_steps(second, 2, 2 * round, 2 * round + 2, second_state);
  }
  ASSERT_TRUE(first.reset().ok());
  first_state.reset();
  expect_right_steps(first, 3, 0, 3, first_state);
  expect_right_steps(second, 2, 10, 12, second_state);
}

TEST_F(Sessions, AStepThatEndsByItsTimeoutIsSentAgain) {
  Session session = pool_.open_session("rnn").value();
  std::optional<Tensor> state;
  expect_right_steps(session, 1, 0, 3, state);
  for (const pid_t worker : daemon_.workers("rnn")) stop_process(worker);
  const Status status = session.predict({{"data", recurrent_input(1, 3)}}, {.timeout = 50ms}).status();
  for (const pid_t worker : daemon_.workers("rnn")) ::kill(worker, SIGCONT);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  expect_right_steps(session, 1, 3, 10, state);
}

TEST_F(Sessions, AStepThatIsRefusedReleasesItsInputs) {
  Session session = pool_.open_session("rnn").value();
  Prediction under_way = session.submit({{"data", recurrent_input(1, 0)}});
  const std::uint64_t used_bytes = pool_.usage().inputs.used_bytes;
  Tensor loan = pool_.loan(DType::kFloat32, {1, 4}).value();
  TensorView view = loan.view();
  std::ranges::fill(view.bytes(), std::byte{0});
  Prediction refused = session.submit({{"data", std::exchange(loan, {})}});
  EXPECT_EQ(pool_.usage().inputs.used_bytes, used_bytes);
  EXPECT_EQ(refused.get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(under_way.get().ok());
}

TEST_F(Sessions, GoOnWithTheNextDaemon) {
  Pool pool = daemon_.connect({.reconnect_timeout = 1min});
  Session session = pool.open_session("rnn").value();
  std::optional<Tensor> state;
  expect_right_steps(session, 1, 0, 5, state);
  for (const pid_t pid : daemon_.all_processes()) ::kill(pid, SIGKILL);
  daemon_.wait_for_exit();
  daemon_.start();
  expect_right_steps(session, 1, 5, 10, state);
}

TEST_F(Sessions, OfAModelThatIsReloadedGoOnOrSayThatTheirStateDoesNotFit) {
  Session session = pool_.open_session("rnn").value();
  std::optional<Tensor> state;
  expect_right_steps(session, 1, 0, 3, state);
  ASSERT_TRUE(pool_.reload("rnn", {}, true).ok());
  expect_right_steps(session, 1, 3, 6, state);

  write_recurrent_model(models_.path("rnn"), 16);
  ASSERT_TRUE(pool_.reload("rnn").ok());
  const auto step = [&] { return session.predict({{"data", recurrent_input(1, 6)}}); };
  for (int i = 0; i < 2; ++i) {
    const Status refused = step().status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(says(refused.message(), {"'rnn'", "'h_in'", "1x8", "1x16", "reset()"}));
  }
  ASSERT_TRUE(session.reset().ok());
  EXPECT_EQ(step().value()[1].tensor.shape(), (Shape{1, 16}));
  EXPECT_TRUE(step().ok());
}

TEST_F(Sessions, NeedAModelWithStates) {
  ASSERT_TRUE(pool_.load("echo", "builtin:identity").ok());
  const Status none = pool_.open_session("echo").value().predict({{"data", counting({4})}}).status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(none.message(), {"'echo'", "`state`"}));
  EXPECT_EQ(pool_.open_session("nobody").value().predict({}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool_.open_session(std::string(101, 'x')).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(daemon_.connect({.arena_limit_bytes = 0}).open_session("rnn").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(Sessions, AModelWhoseStatesDoNotFitIsNotServedAndSaysWhy) {
  write_recurrent_model(models_.path("bad"), 8, R"([{out = "h_out_output", in = "data"}])");
  const Status refused = pool_.load("bad", models_.path("bad")).status();
  EXPECT_TRUE(says(refused.message(), {"'bad'", "'state'", "'h_out_output'", "1x8", "'data'", "1x4"}));
}

TEST_F(Sessions, DoNotKeepTheMemoryOfABurst) {
  Session session = pool_.open_session("rnn").value();
  std::optional<Tensor> state;
  expect_right_steps(session, 1, 0, 3, state);
  {
    std::vector<Tensor> burst;
    for (int i = 0; i < 8; ++i) burst.push_back(pool_.loan(DType::kFloat32, {1 << 20}).value());
  }
  EXPECT_GE(pool_.usage().inputs.allocated_bytes, 32u << 20);
  unsigned step = 3;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (pool_.usage().inputs.allocated_bytes >= 4u << 20 && std::chrono::steady_clock::now() < end && !HasFatalFailure()) {
    expect_right_steps(session, 1, step, step + 10, state);
    step += 10;
  }
  EXPECT_LT(pool_.usage().inputs.allocated_bytes, 4u << 20) << "the state has moved to the new arena";
  expect_right_steps(session, 1, step, step + 3, state);
}

/// Numbers of the input arenas that this process has mapped.
std::set<std::string> mapped_input_arenas() {
  std::set<std::string> inodes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {  // ADDRESSES MODE OFFSET DEVICE INODE NAME
    if (line.find("memfd:shoal:input") == line.npos) continue;
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    inodes.insert(word);
  }
  return inodes;
}

TEST_F(Sessions, ThatNobodyUsesDoNotKeepTheMemoryOfABurst) {
  Session idle = pool_.open_session("rnn").value(), busy = pool_.open_session("rnn").value();
  std::optional<Tensor> state, busy_state;
  expect_right_steps(idle, 1, 0, 3, state);
  {
    std::vector<Tensor> burst;
    for (int i = 0; i < 8; ++i) burst.push_back(pool_.loan(DType::kFloat32, {1 << 20}).value());
  }
  ASSERT_EQ(mapped_input_arenas().size(), 1u);
  unsigned step = 0;
  const auto is_left = [&] { return pool_.usage().inputs.allocated_bytes < 4u << 20 && mapped_input_arenas().size() == 1; };
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!is_left() && std::chrono::steady_clock::now() < end && !HasFatalFailure()) {
    expect_right_steps(busy, 2, step, step + 10, busy_state);
    step += 10;
  }
  EXPECT_TRUE(is_left()) << mapped_input_arenas().size() << " arenas of inputs are mapped";
  expect_right_steps(idle, 1, 3, 6, state);
}

TEST_F(Sessions, AMisspeltInputIsNamedAndNotAStateWithoutABatch) {
  const Tensor data = recurrent_input(1, 0);
  EXPECT_TRUE(says(pool_.predict("rnn", {{"dat", data}}).status().message(), {"has no input 'dat'"}));
  EXPECT_TRUE(says(engine_.run({{"dat", data}}).status().message(), {"has no input 'dat'"}));
}

}  // namespace
}  // namespace shoal::test
