// Reading of the test data that lies beside the repository: vectors, their tolerances, arrays.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::testing {

/// $SHOAL_TEST_DATA, else ../shared beside the source tree. It need not exist: tests skip then.
std::filesystem::path test_data();

/// One entry of a cases.json of the tiers.
struct VectorCase {
  std::string name;
  double tolerance = 0;
};
/// Empty when the file is not there.
std::vector<VectorCase> read_cases(const std::filesystem::path& cases_json);

/// The arrays of a .params file whose names begin with `prefix` ("in:"), without it, copied to aligned memory, in the file's
/// order.
Result<Tensors> read_arrays(const std::filesystem::path& params_file, std::string_view prefix);

/// True when dtype and shape are equal and every |got - want| <= tolerance * max(1, max|want|); NaN and infinities in the same
/// places. Tolerance 0 means equal values (0 equals -0).
::testing::AssertionResult close_to(const TensorView& got, const TensorView& want, double tolerance);
/// As close_to, for values alone, in units of `scale` (which already holds max|want|).
::testing::AssertionResult values_close(std::span<const double> got, std::span<const double> want, double limit);
/// The elements as doubles (exact but for integers beyond 2^53).
std::vector<double> as_doubles(const TensorView& tensor);
/// The largest finite |element|.
double largest_magnitude(std::span<const double> values);

/// A gtest name: characters other than letters, digits and _ become _.
std::string test_name(std::string text);

}  // namespace shoal::testing
