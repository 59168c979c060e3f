// The golden case of a model: the inputs and expected outputs that a new version is checked with before it serves.
#pragma once

#include "shoal/result.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/serve/job.hpp"

namespace shoal::worker {

/// Reads the .npz file that the configuration names. It holds all inputs of the model and at least one output, each under its
/// name. Without such a file the inputs are zeros of the smallest sizes, and there are no expected outputs.
///   Errors  those of reading the file; kInvalidArgument: a name, shape or dtype differs from the model's; all name the file
Result<GoldenCase> read_golden(const ModelSource& source, const LoadedModel& loaded);

}  // namespace shoal::worker
