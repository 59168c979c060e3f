// Reads the test data beside the repository: vectors, their tolerances, arrays.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "tests/support/tensor_values.hpp"

namespace shoal::testing {

/// $SHOAL_TEST_DATA, or ../shared beside the source tree. Tests skip when it does not exist.
std::filesystem::path test_data();

/// One entry of a cases.json.
struct VectorCase {
  std::string name;
  double tolerance = 0;
};
/// Empty when the file does not exist.
std::vector<VectorCase> read_cases(const std::filesystem::path& cases_json);

/// Returns the arrays of a .params file whose names begin with `prefix` ("in:"), copied to aligned memory, in the file's order.
/// The names are returned without the prefix.
Result<Tensors> read_arrays(const std::filesystem::path& params_file, std::string_view prefix);

/// True when dtype and shape are equal and every |got - want| <= tolerance * max(1, max|want|); NaN and infinities in the same
/// places. Tolerance 0 means equal values (0 equals -0).
::testing::AssertionResult close_to(const TensorView& got, const TensorView& want, double tolerance);
/// Like close_to, for values only. Differences are relative to `scale`, which includes max|want|.
::testing::AssertionResult values_close(std::span<const double> got, std::span<const double> want, double limit);
/// The largest finite |element|.
double largest_magnitude(std::span<const double> values);

/// Makes a name for gtest: characters other than letters, digits and _ become _.
std::string test_name(std::string text);

}  // namespace shoal::testing
