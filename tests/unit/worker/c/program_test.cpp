// Programs: symbols and parameters in memory, invoked by many threads.
#include <gtest/gtest.h>

#include <thread>

#include "shoal/shoal_engine.h"
#include "tests/support/says.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "worker/c/engine_handles.hpp"

namespace shoal::c {
namespace {

constexpr std::int64_t kNumbers = 16;
constexpr char kSymbol[] = R"({"nodes": [
  {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
  {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "16", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
  {"op": "Activation", "name": "relu", "attrs": {"act_type": "relu"}, "inputs": [[2, 0, 0]]}],
  "arg_nodes": [0, 1], "heads": [[3, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})";

/// w is twice the identity.
std::string params() {
  std::string values;
  for (int row = 0; row < kNumbers; ++row) {
    for (int column = 0; column < kNumbers; ++column) values += test::raw(row == column ? 2.0F : 0.0F);
  }
  return test::list({test::record(test::Era::kV2, {kNumbers, kNumbers}, 0, values)}, {"arg:w"});
}

class ProgramTest : public ::testing::Test {
 protected:
  void create(std::int64_t rows, std::int64_t contexts = 0) {
    const shoal_data_desc data{"data", SHOAL_FLOAT32, 2, {rows, kNumbers}, nullptr};
    shoal_program_options options = SHOAL_PROGRAM_OPTIONS_INIT;
    options.inputs = &data;
    options.input_count = 1;
    options.contexts = contexts;
    std::string bytes = params();
    shoal_status* const status = shoal_program_create(kSymbol, bytes.data(), bytes.size(), &options, &program_);
    ASSERT_EQ(status, nullptr) << shoal_status_message(status);
    std::ranges::fill(bytes, '\xff');  // nothing refers to it any more
  }
  ~ProgramTest() override { shoal_program_free(program_); }

  /// Invokes it with rows that begin with this number, and checks the answer.
  void expect_twice(float first, std::int64_t rows) {
    const std::int64_t dims[2] = {rows, kNumbers};
    shoal_tensor *input = nullptr, *output = nullptr;
    ASSERT_EQ(shoal_tensor_create(SHOAL_FLOAT32, dims, 2, &input), nullptr);
    auto* const numbers = static_cast<float*>(shoal_tensor_data(input));
    for (std::int64_t i = 0; i < rows * kNumbers; ++i) numbers[i] = first + static_cast<float>(i);
    shoal_status* const status = shoal_program_invoke(program_, &input, 1, &output, 1);
    ASSERT_EQ(status, nullptr) << shoal_status_message(status);
    ASSERT_EQ(shoal_tensor_element_count(output), rows * kNumbers);
    for (std::int64_t i = 0; i < rows * kNumbers; ++i)
      ASSERT_EQ(static_cast<const float*>(shoal_tensor_data(output))[i], 2 * (first + static_cast<float>(i)));
    shoal_tensor_free(input);
    shoal_tensor_free(output);
  }

  shoal_program* program_ = nullptr;
};

// MXNet's own test of this leaves it out: "may hang".
TEST_F(ProgramTest, TwentyThreadsOfThirtyTwoRequestsEachGetTheirOwnAnswers) {
  create(1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 20; ++thread) {
    threads.emplace_back([this, thread] {
      for (int request = 0; request < 32; ++request) expect_twice(static_cast<float>(1000 * thread + 20 * request), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProgramTest, ThreadsMayBringDifferentShapes) {
  create(-1, 3);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([this, thread] {
      for (int request = 0; request < 10; ++request) expect_twice(static_cast<float>(100 * thread), 1 + thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProgramTest, RefusesAShapeThatWasNotLeftOpen) {
  create(2);
  expect_twice(1, 2);
  shoal_tensor *input = nullptr, *output = nullptr;
  const std::int64_t dims[2] = {3, kNumbers};
  ASSERT_EQ(shoal_tensor_create(SHOAL_FLOAT32, dims, 2, &input), nullptr);
  shoal_status* const status = shoal_program_invoke(program_, &input, 1, &output, 1);
  EXPECT_EQ(shoal_status_code(status), SHOAL_INVALID_ARGUMENT);
  EXPECT_TRUE(test::says(shoal_status_message(status), {"data", "3x16", "2x16"}));
  EXPECT_EQ(output, nullptr);
  shoal_status_free(status);
  shoal_tensor_free(input);
}

TEST_F(ProgramTest, ServesRequestsThatDoNotBlock) {
  create(1);
  shoal_model* model = nullptr;
  shoal_request* request = nullptr;
  shoal_queue* queue = nullptr;
  shoal_tensor* input = nullptr;
  shoal_completion done{};
  std::size_t count = 0;
  const std::int64_t dims[2] = {1, kNumbers};
  ASSERT_EQ(shoal_client_model(shoal_program_client(program_), "program", 0, &model), nullptr);
  ASSERT_EQ(shoal_request_create(model, &request), nullptr);
  ASSERT_EQ(shoal_client_loan(shoal_program_client(program_), SHOAL_FLOAT32, dims, 2, &input), nullptr);
  static_cast<float*>(shoal_tensor_data(input))[0] = 21;
  ASSERT_EQ(shoal_request_set_input_at(request, 0, input), nullptr);
  ASSERT_EQ(shoal_queue_create(shoal_program_client(program_), &queue), nullptr);
  ASSERT_EQ(shoal_queue_submit(queue, request, 1), nullptr);
  ASSERT_EQ(shoal_queue_next(queue, &done, 1, SHOAL_FOREVER, &count), nullptr);
  const shoal_tensor* const output = shoal_outputs_tensor(shoal_outcome_outputs(shoal_request_outcome(done.request)), 0);
  EXPECT_EQ(static_cast<const float*>(shoal_tensor_data(output))[0], 42);
  shoal_queue_free(queue);
  shoal_request_free(request);
  shoal_tensor_free(input);
  shoal_model_free(model);
}

TEST(EngineOfBytes, NamesWhatIsMissing) {
  const std::string without_w = test::list({test::record(test::Era::kV2, {1}, 0, test::floats(1))}, {"arg:other"});
  const auto engine = Engine::load_bytes("net", kSymbol, std::as_bytes(std::span(without_w)),
                                         {.shapes = {{{"data", DType::kFloat32, {1, kNumbers}}}}});
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(test::says(engine.status().message(), {"model 'net'", "params holds no 'w'", "'fc'"}));
}

TEST(EngineOfBytes, IsDescribedByWhatItIsGiven) {
  const std::string bytes = params();
  const auto parameters = std::as_bytes(std::span(bytes));
  Engine engine =
      Engine::load_bytes("net", kSymbol, parameters, {.shapes = {{{"data", DType::kFloat32, {-1, kNumbers}}}}}).value();
  const ModelInfo info = engine.describe().value();
  EXPECT_EQ(info.name, "net");
  EXPECT_EQ(info.inputs.at(0).shape, Shape({-1, kNumbers}));
  EXPECT_EQ(info.outputs.at(0).name, "relu_output");
  EXPECT_TRUE(engine.ignored_inputs().empty());
  EXPECT_EQ(Engine::load_bytes("net", kSymbol, parameters).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::c
