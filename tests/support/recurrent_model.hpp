// A recurrent model on disk: h_out = tanh(w data + u h_in) and y = 2 h_out.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "shoal/tensor.hpp"
#include "tests/support/checkpoint.hpp"

namespace shoal::test {

inline constexpr std::int64_t kRecurrentInputs = 4;

/// Data is float32[-1, kRecurrentInputs], and the state float32[-1, `units`]. The outputs are y_output and h_out_output. Nothing
/// is measured when it is loaded, so all loads compute the same bits.
///   state  the key of model.toml
inline void write_recurrent_model(const std::filesystem::path& directory, int units = 8,
                                  const std::string& state = R"([{out = "h_out_output", in = "h_in"}])") {
  const std::string count = std::to_string(units);
  const std::string fully_connected = R"("op": "FullyConnected", "attrs": {"num_hidden": ")" + count + R"(", "no_bias": "True"})";
  const std::string symbol = R"json({"nodes": [
    {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "h_in", "inputs": []},
    {"op": "null", "name": "w", "inputs": []}, {"op": "null", "name": "u", "inputs": []},
    {"op": "Reshape", "name": "w2", "attrs": {"shape": "()json" +
                             count + R"json(, 4)"}, "inputs": [[2, 0, 0]]},
    {"op": "Reshape", "name": "u2", "attrs": {"shape": "()json" +
                             count + ", " + count + R"json()"}, "inputs": [[3, 0, 0]]},
    {"name": "wx", )json" + fully_connected +
                             R"json(, "inputs": [[0, 0, 0], [4, 0, 0]]},
    {"name": "uh", )json" + fully_connected +
                             R"json(, "inputs": [[1, 0, 0], [5, 0, 0]]},
    {"op": "elemwise_add", "name": "sum", "inputs": [[6, 0, 0], [7, 0, 0]]},
    {"op": "Activation", "name": "h_out", "attrs": {"act_type": "tanh"}, "inputs": [[8, 0, 0]]},
    {"op": "_mul_scalar", "name": "y", "attrs": {"scalar": "2"}, "inputs": [[9, 0, 0]]}],
   "arg_nodes": [0, 1, 2, 3], "heads": [[10, 0, 0], [9, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json";
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto numbers = [&](int size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = uniform(random);
    return values;
  };
  write_graph(directory, "rnn", symbol,
              "[{name = \"data\", shape = [-1, 4]}, {name = \"h_in\", shape = [-1, " + count + "]}]\nstate = " + state +
                  "\ntuning_ms = 0",
              {{"w", numbers(4 * units)}, {"u", numbers(units * units)}});
}

/// An LSTM of 3 units over data (time, batch, kRecurrentInputs), as the RNN operator takes it. h0 and c0 are the states, and
/// lstm_output, lstm_state_output and lstm_statecell_output the outputs; the last two are (1, batch, 3).
///   data   keys of the input `data` in model.toml: its shape and what else
///   pair   keys of each pair behind its names
inline void write_time_major_model(const std::filesystem::path& directory, const std::string& data, const std::string& pair) {
  const std::string symbol = R"json({"nodes": [
    {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "parameters", "inputs": []},
    {"op": "null", "name": "h0", "inputs": []}, {"op": "null", "name": "c0", "inputs": []},
    {"op": "RNN", "name": "lstm", "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]],
     "attrs": {"state_size": "3", "num_layers": "1", "mode": "lstm", "state_outputs": "True"}}],
    "arg_nodes": [0, 1, 2, 3], "heads": [[4, 0, 0], [4, 1, 0], [4, 2, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json";
  std::vector<float> numbers(4 * 3 * (kRecurrentInputs + 3 + 2));
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& number : numbers) number = uniform(random);
  write_graph(directory, "lstm", symbol,
              "[{name = \"data\", " + data + "}]\nstate = [{out = \"lstm_state_output\", in = \"h0\", " + pair +
                  "},\n {out = \"lstm_statecell_output\", in = \"c0\", " + pair +
                  "}]\nshapes = [{data = [2, 3, 4]}]\ntuning_ms = 0",
              {{"parameters", numbers}});
}

/// What a sequence is fed at a step.
inline Tensor recurrent_input(unsigned sequence, unsigned step) {
  Tensor tensor = Tensor::create(DType::kFloat32, {1, kRecurrentInputs}).value();
  std::mt19937 random(1000 * sequence + step);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

}  // namespace shoal::test
