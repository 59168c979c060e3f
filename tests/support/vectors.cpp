#include "tests/support/vectors.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::testing {

std::filesystem::path test_data() {
  if (const char* given = std::getenv("SHOAL_TEST_DATA")) return given;
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  return std::filesystem::path(source ? source : ".") / ".." / "shared";
}

std::vector<VectorCase> read_cases(const std::filesystem::path& cases_json) {
  std::vector<VectorCase> cases;
  std::ifstream file(cases_json);
  if (!file) return cases;
  for (const auto& entry : nlohmann::json::parse(file)) cases.push_back({entry.at("name"), entry.at("tolerance")});
  return cases;
}

Result<Tensors> read_arrays(const std::filesystem::path& params_file, std::string_view prefix) {
  SHOAL_ASSIGN_OR_RETURN(const worker::ForeignFile file, worker::ForeignFile::open(params_file));
  worker::MemoryBudget budget(worker::ImportLimits{});
  SHOAL_ASSIGN_OR_RETURN(auto arrays, worker::parse_mxnet_params(file, budget));
  SHOAL_RETURN_IF_ERROR(worker::make_dense(file, arrays, budget));  // as a request has them
  Tensors tensors;
  for (const auto& [name, array, sparse] : arrays) {
    if (!name.starts_with(prefix)) continue;
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(array.dtype, array.shape));
    std::memcpy(tensor.view().data, array.bytes.data(), array.bytes.size());
    tensors.push_back({name.substr(prefix.size()), std::move(tensor)});
  }
  return tensors;
}

double largest_magnitude(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

::testing::AssertionResult values_close(std::span<const double> got, std::span<const double> want, double limit) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << got.size() << " elements, want " << want.size();
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double difference = std::abs(got[i] - want[i]);
    if (!std::isfinite(difference))
      return ::testing::AssertionFailure() << "element " << i << " is " << got[i] << ", want " << want[i];
    if (difference > worst) worst = difference, worst_at = i;
  }
  if (worst <= limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "element " << worst_at << " of " << got.size() << " is " << got[worst_at] << ", want "
                                       << want[worst_at] << ": off by " << worst << ", allowed " << limit;
}

::testing::AssertionResult close_to(const TensorView& got, const TensorView& want, double tolerance) {
  if (got.dtype != want.dtype || got.shape != want.shape) {
    return ::testing::AssertionFailure() << dtype_name(got.dtype) << " of shape " << got.shape.to_string() << ", want "
                                         << dtype_name(want.dtype) << " of shape " << want.shape.to_string();
  }
  const std::vector<double> expected = as_doubles(want);
  return values_close(as_doubles(got), expected, tolerance * std::max(1.0, largest_magnitude(expected)));
}

std::string test_name(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

}  // namespace shoal::testing
