// Tasks on a pool, beside the same tasks in this process.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "shoal/engine.hpp"
#include "shoal/sequence_predictor.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/recurrent_model.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.tensor.shape() == y.tensor.shape() &&
           std::ranges::equal(x.tensor.view().bytes(), y.tensor.view().bytes());
  });
}

TEST(Tasks, DescriptorsComeFromModelTomlThroughTheDaemon) {
  const ScratchDirectory files;
  write_checkpoint(files.path("chain"), "chain", {{"_plus_scalar", "one", {{"scalar", "1"}}, {}}}, "[-1, 4], layout = \"NC\"");
  const DaemonFixture daemon({.models = {"chain=" + files.path("chain")}});
  Pool pool = daemon.connect();
  Engine engine = Engine::load(files.path("chain")).value();
  for (const auto& [client, name] : {std::pair(pool.client(), "chain"), std::pair(engine.client(), "")}) {
    const Predictor predictor = Predictor::create(client, name).value();
    ASSERT_EQ(predictor.inputs().size(), 1u);
    EXPECT_EQ(predictor.inputs()[0], (DataDesc{"data", DType::kFloat32, {-1, 4}, {}, "NC"}));
    const Tensors outputs = predictor.predict(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}).value();
    EXPECT_EQ(outputs[0].tensor.shape(), (Shape{2, 4}));
    EXPECT_EQ(outputs[0].tensor.values<float>()[7], 9);
    const Status wrong = Predictor::create(client, name, {.inputs = {{"data", DType::kUInt8}}}).status();
    EXPECT_TRUE(says(wrong.message(), {"'data'", "float32 ?x4 NC", "uint8"}));
  }
}

TEST(Tasks, FlatArraysAreConvertedIntoSharedMemory) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  const Predictor predictor = Predictor::create(pool, "echo").value();
  std::vector<double> numbers(100'000, 0.5);
  const Tensors outputs = predictor.predict({{"data", numbers, {100, 1000}}}).value();
  EXPECT_EQ(outputs[0].tensor.values<float>()[99'999], 0.5f);
  const Tensor input = predictor.tensor("data", numbers).value();
  EXPECT_GE(pool.usage().inputs.used_bytes, input.size_bytes()) << "a loan";
  EXPECT_EQ(pool.usage().inputs.copied, 0u);
}

class Sequences : public testing::Test {
 protected:
  std::string write_model() const {
    write_recurrent_model(models_.path("rnn"));
    return "rnn=" + models_.path("rnn") + ",workers=2";
  }
  const ScratchDirectory models_;
  DaemonFixture daemon_{{.models = {write_model()}}};
  Pool pool_ = daemon_.connect();
  Engine engine_ = Engine::load(models_.path("rnn")).value();
};

TEST_F(Sequences, GoOnInAPoolAsInThisProcessThoughWorkersDie) {
  auto in_pool = SequencePredictor::create(pool_, "rnn").value();
  auto in_process = SequencePredictor::create(engine_, "").value();
  for (unsigned step = 0; step < 20; ++step) {
    if (step == 7 || step == 8) {
      for (const pid_t worker : daemon_.workers("rnn")) ::kill(worker, SIGKILL);
    }
    const Tensor data = recurrent_input(1, step);
    const auto got = in_pool.predict(data), want = in_process.predict(data);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_TRUE(same_bits(*got, want.value())) << "step " << step;
    if (step == 13) {
      EXPECT_TRUE(in_pool.reset().ok() && in_process.reset().ok());
    }
  }
}

TEST_F(Sequences, BeginAnewAfterReset) {
  SequencePredictor both[] = {SequencePredictor::create(pool_, "rnn").value(), SequencePredictor::create(engine_, "").value()};
  for (SequencePredictor& predictor : both) {
    const Tensors first = predictor.predict(recurrent_input(2, 0)).value(),
                  second = predictor.predict(recurrent_input(2, 0)).value();
    EXPECT_FALSE(same_bits(first, second));
    EXPECT_TRUE(predictor.reset().ok());
    EXPECT_TRUE(same_bits(predictor.predict(recurrent_input(2, 0)).value(), first));
  }
}

}  // namespace
}  // namespace shoal::test
