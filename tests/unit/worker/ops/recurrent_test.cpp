// RNN, through the importer's lowering and the oracle kernel. The numbers are worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/recurrent.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

Texts rnn(const std::string& mode, Texts more = {}) {
  Texts texts{{"mode", mode}, {"state_size", "1"}, {"num_layers", "1"}, {"state_outputs", "True"}};
  for (const auto& [key, text] : more) texts[key] = text;
  return texts;
}

const Tensor kState = tensor({1, 1, 1}, {0.5});
constexpr double kOpen = 100, kClosed = -100;  // a gate with that bias gives 1 or 0

TEST(Rnn, AddsBothProductsAndBothBiases) {
  const Tensor data = tensor({2, 1, 1}, {1, -3}), parameters = tensor({4}, {1, 2, 0.5, 0.25});
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu"), {data, parameters, kState}, {2, 1, 1}, {2.75, 3.25}));
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu"), {data, parameters, kState}, {1, 1, 1}, {3.25}, 1));
  EXPECT_TRUE(gives("_npx_rnn", rnn("rnn_tanh", {{"p", "0.5"}}), {data, parameters, kState}, {2, 1, 1},
                    {std::tanh(2.75), std::tanh(-2.25 + 2 * std::tanh(2.75))}));
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu"), {tensor({1, 1, 1}, {-9}), parameters, kState}, {1, 1, 1}, {0}));
}

TEST(Rnn, TakesAllWeightsFirstAndThenAllBiases) {
  const Tensor data = tensor({1, 1, 2}, {1, 1}), states = tensor({2, 1, 1}, {1, 1});
  const Tensor parameters = tensor({9}, {1, 10, 100, 2, 3, 0.125, 0.25, 0.5, 1});
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu", {{"num_layers", "2"}}), {data, parameters, states}, {1, 1, 1}, {227.25}));
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu", {{"num_layers", "2"}}), {data, parameters, states}, {2, 1, 1}, {111.375, 227.25}, 1));
}

/// One unit; every gate has the weights 0, but for the candidate, which reads the input. The biases of the gates: i, f, o.
Tensor lstm(double input, double forget, double output) {
  return tensor({16}, {0, 0, 1, 0, 0, 0, 0, 0, input, forget, 0, output, 0, 0, 0, 0});
}

TEST(Rnn, HasTheGatesOfAnLstmInMxnetsOrder) {
  const Tensor data = tensor({2, 1, 1}, {100, -100}), cell = tensor({1, 1, 1}, {0.5});
  const auto check = [&](const Tensor& parameters, const std::vector<double>& hidden, double last_cell) {
    const std::vector<Tensor> inputs{data, parameters, kState, cell};
    EXPECT_TRUE(gives("RNN", rnn("lstm"), inputs, {2, 1, 1}, hidden));
    EXPECT_TRUE(gives("RNN", rnn("lstm"), inputs, {1, 1, 1}, {hidden[1]}, 1));
    EXPECT_TRUE(gives("RNN", rnn("lstm"), inputs, {1, 1, 1}, {last_cell}, 2));
  };
  check(lstm(kOpen, kOpen, kOpen), {std::tanh(1.5), std::tanh(0.5)}, 0.5);
  check(lstm(kClosed, kOpen, kOpen), {std::tanh(0.5), std::tanh(0.5)}, 0.5);
  check(lstm(kOpen, kClosed, kOpen), {std::tanh(1.0), -std::tanh(1.0)}, -1);
  check(lstm(kOpen, kOpen, kClosed), {0, 0}, 0.5);
}

TEST(Rnn, CutsTheCellsOfAnLstm) {
  const Texts limits{{"lstm_state_clip_min", "-0.75"}, {"lstm_state_clip_max", "1.25"}};
  const Tensor data = tensor({4, 1, 1}, {100, -100, -100, -100}), cell = tensor({1, 1, 1}, {0.5});
  EXPECT_TRUE(gives("RNN", rnn("lstm", limits), {data, lstm(kOpen, kOpen, kOpen), kState, cell}, {4, 1, 1},
                    {std::tanh(1.25), std::tanh(0.25), std::tanh(-0.75), std::tanh(-0.75)}));
  const Tensor nan = tensor({1, 1, 1}, {kNan});
  EXPECT_TRUE(gives("RNN", rnn("lstm", limits), {data, lstm(kOpen, kOpen, kOpen), kState, nan}, {1, 1, 1}, {kNan}, 2));
  Texts cuts_nan = limits;
  cuts_nan["lstm_state_clip_nan"] = "True";
  EXPECT_TRUE(gives("RNN", rnn("lstm", cuts_nan), {tensor({1, 1, 1}, {0}), lstm(kOpen, kOpen, kOpen), kState, nan}, {1, 1, 1},
                    {-0.75}, 2));
}

TEST(Rnn, ProjectsWhatAnLstmGives) {
  // Two units whose candidates read the input once and twice; the gates are open. What they give is multiplied by (1, 0.5).
  std::vector<double> parameters(8 + 8 + 2 + 16, 0.0);
  parameters[4] = 1;
  parameters[5] = 2;
  parameters[16] = 1;
  parameters[17] = 0.5;
  for (const std::size_t unit : {0, 1, 2, 3, 6, 7}) parameters[18 + unit] = kOpen;
  const std::vector<Tensor> inputs{tensor({1, 1, 1}, {0.5}), tensor({34}, parameters), kState, tensor({1, 1, 2}, {0, 1})};
  const Texts texts = rnn("lstm", {{"state_size", "2"}, {"projection_size", "1"}});
  const double first = std::tanh(0.5), second = 1 + std::tanh(1.0);
  EXPECT_TRUE(gives("RNN", texts, inputs, {1, 1, 1}, {std::tanh(first) + std::tanh(second) / 2}));
  EXPECT_TRUE(gives("RNN", texts, inputs, {1, 1, 2}, {first, second}, 2));
}

/// One unit; the candidate gets x + reset * (h + 0.5).
Tensor gru(double reset, double update) { return tensor({12}, {0, 0, 1, 0, 0, 1, reset, update, 0, 0, 0, 0.5}); }

TEST(Rnn, ResetsWhatTheCandidateOfAGruGetsFromTheState) {
  const Tensor data = tensor({1, 1, 1}, {0.125}), state = tensor({1, 1, 1}, {0.25});
  EXPECT_TRUE(gives("RNN", rnn("gru"), {data, gru(kOpen, kClosed), state}, {1, 1, 1}, {std::tanh(0.875)}));
  EXPECT_TRUE(gives("RNN", rnn("gru"), {data, gru(kClosed, kClosed), state}, {1, 1, 1}, {std::tanh(0.125)}));
  EXPECT_TRUE(gives("RNN", rnn("gru"), {data, gru(kOpen, kOpen), state}, {1, 1, 1}, {0.25}));
  EXPECT_TRUE(gives("RNN", rnn("gru"), {data, gru(kOpen, 0), state}, {1, 1, 1}, {(std::tanh(0.875) + 0.25) / 2}));
}

/// Sums: from the first step on, and ten times those from the last step on.
const Tensor kBothWays = tensor({8}, {1, 1, 10, 1, 0, 0, 0, 0}), kNothing = tensor({2, 1, 1}, {0, 0});
const Tensor kSteps = tensor({3, 1, 1}, {1, 2, 3});

TEST(Rnn, GoesBothWays) {
  const Texts texts = rnn("rnn_relu", {{"bidirectional", "True"}});
  EXPECT_TRUE(gives("RNN", texts, {kSteps, kBothWays, kNothing}, {3, 1, 2}, {1, 60, 3, 50, 6, 30}));
  EXPECT_TRUE(gives("RNN", texts, {kSteps, kBothWays, kNothing}, {2, 1, 1}, {6, 60}, 1));
  // The second layer reads both.
  const Tensor parameters = tensor({18}, {1, 1, 10, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor states = tensor({4, 1, 1}, {0, 0, 0, 0});
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu", {{"bidirectional", "True"}, {"num_layers", "2"}}), {kSteps, parameters, states},
                    {3, 1, 2}, {61, 60, 53, 50, 36, 30}));
}

TEST(Rnn, StopsAtTheLengthOfASequence) {
  const Texts texts = rnn("rnn_relu", {{"bidirectional", "True"}, {"use_sequence_length", "True"}});
  const Tensor start = tensor({2, 1, 1}, {0, 5});
  for (const Tensor& lengths : {tensor<std::int32_t>({1}, {2}), tensor({1}, {2.75}), tensor<std::uint8_t>({1}, {2})}) {
    EXPECT_TRUE(gives("RNN", texts, {kSteps, kBothWays, start, lengths}, {3, 1, 2}, {1, 35, 3, 25, 0, 0}));
    EXPECT_TRUE(gives("RNN", texts, {kSteps, kBothWays, start, lengths}, {2, 1, 1}, {3, 35}, 1));
  }
  for (const double none : {0.0, -7.0, kNan}) {
    const std::vector<Tensor> inputs{kSteps, kBothWays, start, tensor({1}, {none})};
    EXPECT_TRUE(gives("RNN", texts, inputs, {3, 1, 2}, {0, 0, 0, 0, 0, 0}));
    EXPECT_TRUE(gives("RNN", texts, inputs, {2, 1, 1}, {0, 5}, 1));
  }
  for (const double all : {3.0, 1e30})
    EXPECT_TRUE(gives("RNN", texts, {kSteps, kBothWays, kNothing, tensor({1}, {all})}, {3, 1, 2}, {1, 60, 3, 50, 6, 30}));
  // Of two sequences each has its own.
  EXPECT_TRUE(gives(
      "RNN", rnn("rnn_relu", {{"use_sequence_length", "True"}}),
      {tensor({2, 2, 1}, {1, 2, 3, 4}), tensor({4}, {1, 1, 0, 0}), tensor({1, 2, 1}, {0, 0}), tensor<std::int64_t>({2}, {1, 2})},
      {2, 2, 1}, {1, 2, 0, 6}));
}

/// MXNet has lengths on GPUs only. These are its numbers for each of three sequences by itself, cut to its 1, 4 and 2 steps.
TEST(Rnn, GivesEachSequenceWhatItGivesAlone) {
  const auto cycle = [](std::int64_t count, std::int64_t step, std::int64_t size, double shift, double scale) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back((static_cast<double>(i * step % size) + shift) * scale);
    return numbers;
  };
  const Tensor data = tensor({4, 3, 2}, cycle(24, 5, 9, -4, 0.25)), lengths = tensor<std::int32_t>({3}, {1, 4, 2});
  const Texts texts{{"state_size", "2"}, {"state_outputs", "True"}, {"bidirectional", "True"}, {"use_sequence_length", "True"}};
  Texts gru = texts, lstm = texts;
  gru.insert({{"mode", "gru"}, {"num_layers", "1"}});
  lstm.insert({{"mode", "lstm"}, {"num_layers", "2"}});
  const std::vector<Tensor> of_gru{data, tensor({72}, cycle(72, 7, 16, -8, 0.125)), tensor({2, 3, 2}, cycle(12, 1, 5, -2, 0.5)),
                                   lengths};
  EXPECT_TRUE(gives("RNN", gru, of_gru, {4, 3, 4},
                    {-0.6610064, -0.2003998,  -0.1925014, -0.3395646, 0.2820051, 0.1561368,  -0.3198243, -0.2602153,
                     0.9128978,  -0.6699592,  -0.5417004, -0.3152161, 0,         0,          0,          0,
                     0.1041177,  -0.01304133, -0.5413122, 0.1308746,  0.5517654, -0.6720379, -0.8071432, 0.03133428,
                     0,          0,           0,          0,          0.1366579, -0.1744652, -0.4138695, 0.1882303,
                     0,          0,           0,          0,          0,         0,          0,          0,
                     0.4352416,  -0.09741685, 0.3607937,  0.3451981,  0,         0,          0,          0}));
  EXPECT_TRUE(gives("RNN", gru, of_gru, {2, 3, 2},
                    {-0.6610064, -0.2003998, 0.4352416, -0.09741685, 0.5517654, -0.6720379, -0.1925014, -0.3395646, -0.3198243,
                     -0.2602153, -0.5417004, -0.3152161},
                    1));
  const std::vector<Tensor> of_lstm{data, tensor({224}, cycle(224, 7, 16, -8, 0.125)),
                                    tensor({4, 3, 2}, cycle(24, 1, 5, -2, 0.5)), tensor({4, 3, 2}, cycle(24, 1, 3, -1, 0.5)),
                                    lengths};
  EXPECT_TRUE(gives("RNN", lstm, of_lstm, {4, 3, 4}, {-0.05636248, -0.02636526,
                                                      -0.05457107, 0.01264688,
                                                      0.05989179,  -0.1093429,
                                                      -0.01715288, -0.0475489,
                                                      0.001508012, 0.06596786,
                                                      0.03391057,  0.002420508,
                                                      0,           0,
                                                      0,           0,
                                                      0.05416967,  -0.1592001,
                                                      0.001623343, -0.06785875,
                                                      0.004251606, -0.004795149,
                                                      0.03958875,  0.1047722,
                                                      0,           0,
                                                      0,           0,
                                                      0.02793385,  -0.1295954,
                                                      0.01013299,  -0.09767088,
                                                      0,           0,
                                                      0,           0,
                                                      0,           0,
                                                      0,           0,
                                                      0.01340762,  -0.1053223,
                                                      0.03551145,  -0.1566697,
                                                      0,           0,
                                                      0,           0}));
  EXPECT_TRUE(gives("RNN", lstm, of_lstm, {4, 3, 2},
                    {-0.210453,   0.02146017,   0.08888983,  -0.1267181, -0.04885212, -0.1312351,  -0.03941186, 0.06307984,
                     0.06259155,  -0.1309259,   0.02636921,  0.06539927, -0.05636248, -0.02636526, 0.01340762,  -0.1053223,
                     0.004251606, -0.004795149, -0.05457107, 0.01264688, -0.01715288, -0.0475489,  0.03391057,  0.002420508},
                    1));
  EXPECT_TRUE(gives("RNN", lstm, of_lstm, {4, 3, 2},
                    {-0.366179,  0.03192987,  0.1798516,  -0.2830993, -0.1712627,  -0.5447114, -0.06746121, 0.1054896,
                     0.1265695,  -0.2916348,  0.05064327, 0.1453501,  -0.129044,   -0.0715849, 0.03987327,  -0.4253714,
                     0.01182543, -0.01420967, -0.1294662, 0.04223998, -0.04816443, -0.1700934, 0.08771039,  0.007684678},
                    2));
}

TEST(Rnn, TakesLengthsBehindTheCellsAsMxnetDoes) {
  const std::vector<Tensor> inputs{tensor({2, 1, 1}, {100, 100}), lstm(kOpen, kOpen, kOpen), kState, tensor({1, 1, 1}, {0.5}),
                                   tensor({1}, {1})};
  EXPECT_TRUE(gives("RNN", rnn("lstm", {{"use_sequence_length", "True"}}), inputs, {2, 1, 1}, {std::tanh(1.5), 0}));
}

TEST(Rnn, WithoutStepsOrSequencesKeepsItsState) {
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu"), {tensor({0, 1, 1}, {}), tensor({4}, {1, 1, 0, 0}), kState}, {1, 1, 1}, {0.5}, 1));
  EXPECT_TRUE(
      gives("RNN", rnn("rnn_relu"), {tensor({2, 0, 1}, {}), tensor({4}, {1, 1, 0, 0}), tensor({1, 0, 1}, {})}, {2, 0, 1}, {}));
  EXPECT_TRUE(gives("RNN", rnn("rnn_relu"), {tensor({1, 1, 0}, {}), tensor({3}, {2, 0, 1}), kState}, {1, 1, 1}, {2}));
}

TEST(Rnn, RefusesWhatDoesNotFit) {
  const Tensor data = tensor({2, 1, 1}, {}), parameters = tensor({4}, {});
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu"), {data, tensor({5}, {}), kState}, "where 4 is needed"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu"), {tensor({2, 1}, {}), parameters, kState}, "3 axes"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu"), {data, parameters, tensor({1, 2, 1}, {})}, "the state"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu"), {data, parameters, tensor<double>({1, 1, 1}, {})}, "float64"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu"), {tensor<std::int32_t>({2, 1, 1}, {}), parameters, kState}, "floating-point"));
  EXPECT_TRUE(refuses("RNN", rnn("lstm"), {data, parameters, kState}, "state_cell"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu", {{"use_sequence_length", "True"}}), {data, parameters, kState}, "sequence_length"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu", {{"use_sequence_length", "True"}}), {data, parameters, kState, tensor({2}, {})},
                      "the lengths"));
  EXPECT_TRUE(refuses("RNN", rnn("gru", {{"projection_size", "1"}}), {data, parameters, kState}, "projection_size"));
  EXPECT_TRUE(refuses("RNN", rnn("lstm", {{"lstm_state_clip_min", "0"}}), {data, parameters, kState, kState}, "both"));
  EXPECT_TRUE(refuses("RNN", rnn("lstm", {{"lstm_state_clip_min", "1"}, {"lstm_state_clip_max", "0"}}),
                      {data, parameters, kState, kState}, "above"));
  EXPECT_TRUE(refuses("RNN", rnn("rnn_relu", {{"state_size", "0"}}), {data, parameters, kState}, "state_size"));
  EXPECT_TRUE(refuses("RNN", rnn("transformer"), {data, parameters, kState}, "mode"));
  const Texts huge = rnn("lstm", {{"state_size", "2147483647"}, {"num_layers", "2147483647"}, {"projection_size", "2147483647"}});
  EXPECT_TRUE(refuses("RNN", huge, {data, parameters, kState, kState}, "the parameters"));
}

TEST(Rnn, KnowsTheShapesOfAllItsInputsFromTheData) {
  Graph graph;
  Node node{.op = &ops::kRnn,
            .name = "rnn",
            .attributes = RnnAttributes{.hidden = 4, .layers = 2, .bidirectional = true, .projection = 3, .has_lengths = true},
            .outputs = {graph.add_value({}), graph.add_value({}), graph.add_value({})}};
  for (const char* const name : {"data", "parameters", "state", "lengths", "cells"}) {
    node.inputs.push_back(graph.add_value({.name = name}));
    graph.inputs.push_back(node.inputs.back());
  }
  graph.nodes.push_back(node);
  graph.outputs = {{"output", node.outputs[0]}, {"state", node.outputs[1]}, {"cell", node.outputs[2]}};
  ASSERT_TRUE(infer_parameters(graph, std::vector<TensorSpec>{{"data", DType::kFloat32, {7, 2, 5}}}).ok());
  // 16 units: of 5 or 6 numbers, of 3, and two biases; 12 for the projection.
  EXPECT_EQ(graph.value(node.inputs[1]).shape, (Shape{2 * (16 * (5 + 3 + 2) + 12) + 2 * (16 * (6 + 3 + 2) + 12)}));
  EXPECT_EQ(graph.value(node.inputs[2]).shape, (Shape{4, 2, 3}));
  EXPECT_EQ(graph.value(node.inputs[3]).shape, (Shape{2}));
  EXPECT_EQ(graph.value(node.inputs[4]).shape, (Shape{4, 2, 4}));
  EXPECT_EQ(graph.value(node.outputs[0]).shape, (Shape{7, 2, 6}));
  EXPECT_EQ(graph.value(node.outputs[2]).shape, (Shape{4, 2, 4}));
}

}  // namespace
}  // namespace shoal::worker
