// Graphs and parameters that MXNet or Shoal must refuse, and the words that the message must contain.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "shoal/status.hpp"
#include "shoal/tensor.hpp"

namespace shoal::testing {

struct Refusal {
  std::string name, why;
  std::vector<std::string> must_name;
  std::vector<TensorSpec> inputs;
};
void PrintTo(const Refusal& refusal, std::ostream* out);

/// Listed as refusals, and run since MXNet runs them.
inline constexpr const char* kRunNow[] = {"unsupported_contrib_quantize_v2"};

std::filesystem::path refusals_folder();
/// The entries of "cases.json" or "malformed.json" but those of kRunNow; empty without data.
std::vector<Refusal> read_refusals(const char* index);

/// The test fails unless the message of `status` has the words that the case wants.
void expect_refused(const Refusal& refusal, const Status& status);

}  // namespace shoal::testing
