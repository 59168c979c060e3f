// Small checkpoints in memory.
#pragma once

#include "tests/support/predict_api.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"

namespace shoal::test {

/// The bytes of float32 values.
inline std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// The text of a symbol file with these nodes, of which the last ones are its outputs.
inline std::string symbol_of(const std::string& nodes, const std::string& heads) {
  return R"({"nodes": [)" + nodes + R"(], "arg_nodes": [0], "heads": )" + heads +
         R"(, "attrs": {"mxnet_version": ["int", 10901]}})";
}
inline std::string variable(const std::string& name) { return R"({"op": "null", "name": ")" + name + R"(", "inputs": []})"; }
inline std::string node(const std::string& op, const std::string& name, const std::string& inputs,
                        const std::string& attributes = "") {
  return R"({"op": ")" + op + R"(", "name": ")" + name + R"(", "attrs": {)" + attributes + R"(}, "inputs": )" + inputs + "}";
}

inline std::string params_of(const std::string& name, const std::vector<float>& values) {
  return list({record(Era::kV2, {static_cast<std::int64_t>(values.size())}, 0, bytes_of(values))}, {name});
}

/// data (n, 4), times 1, 10, 100 and 1000 ("scaled"), plus 1 ("plus"). The output is that of "plus".
inline const Checkpoint& decimal() {
  static const Checkpoint model{
      symbol_of(variable("data") + "," + variable("factor") + "," + node("broadcast_mul", "scaled", "[[0, 0, 0], [1, 0, 0]]") +
                    "," + node("_plus_scalar", "plus", "[[2, 0, 0]]", R"("scalar": "1")"),
                "[[3, 0, 0]]"),
      params_of("arg:factor", {1, 10, 100, 1000})};
  return model;
}
/// What decimal() gives for one row.
inline std::vector<float> decimal_of(const std::vector<float>& data) {
  return {data[0] + 1, 10 * data[1] + 1, 100 * data[2] + 1, 1000 * data[3] + 1};
}

/// a + b, of the same shape, without parameters.
inline Checkpoint sum() {
  return {
      symbol_of(variable("a") + "," + variable("b") + "," + node("elemwise_add", "add", "[[0, 0, 0], [1, 0, 0]]"), "[[2, 0, 0]]"),
      list({}, {})};
}

/// The last error of this thread has these words.
inline ::testing::AssertionResult error_says(std::initializer_list<std::string_view> words) {
  return says(MXGetLastError(), words);
}

}  // namespace shoal::test
