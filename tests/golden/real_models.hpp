// Real checkpoints of the test data, with inputs and expected outputs.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/support/vectors.hpp"

namespace shoal::testing {

inline constexpr double kRealTolerance = 1e-4;  // of max|ref|: the references come from an independent float32 evaluator

struct RealModel {
  const char *folder, *prefix;
  int epoch;
  double tolerance = kRealTolerance;
  bool classifies = false;  ///< pictures
};
void PrintTo(const RealModel& model, std::ostream* out);

extern const std::vector<RealModel> kRealModels;

struct RealCase {
  std::string name;
  Tensors inputs, outputs;  ///< the outputs without names
};
/// The cases of a model; none if its folder is missing.
std::vector<RealCase> cases_of(const RealModel& real);
std::string prefix_of(const RealModel& real);

}  // namespace shoal::testing
