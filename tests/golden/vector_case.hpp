// Graphs with MXNet's answers: where they are, how their sparse inputs are sent as parts, and the check of an answer.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::testing {

/// The tiers of the test data, and tests/golden/quantized and tests/golden/numpy.
std::vector<std::filesystem::path> vector_folders();
/// tests/fixtures/sparse: graphs with sparse inputs and parameters.
std::filesystem::path sparse_folder();
/// A product with a sparse matrix whose other operand has a NaN that no stored element meets. A dense request has 0 * NaN there.
inline constexpr std::string_view kOnlyAsParts = "dot_beside_nan";

/// The inputs of a case as requests bring them: the parts of sparse ones.
struct PartsRequest {
  Tensors tensors;
  std::vector<TensorSpec> inputs;             ///< as model.toml has them: the dense shapes
  std::map<std::string, std::string> sparse;  ///< as model.toml has it: "csr" or "row_sparse", by input
};
/// Of the case whose files begin with `prefix`. `extra`: so many elements, all bits of them 1, follow the values and columns of
/// each csr input; they count for nothing.
PartsRequest read_parts(const std::string& prefix, std::int64_t extra = 0);

/// The lines of model.toml for these inputs.
std::string inputs_toml(const std::vector<TensorSpec>& inputs, const std::map<std::string, std::string>& sparse = {});

/// The test fails for each output that differs from MXNet's by more than `tolerance`.
void expect_answers(const std::string& prefix, const Tensors& outputs, double tolerance);

}  // namespace shoal::testing
