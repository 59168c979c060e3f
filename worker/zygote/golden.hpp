// The golden case of a model: what a new version must answer before it serves.
#pragma once

#include "shoal/result.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/serve/job.hpp"

namespace shoal::worker {

/// Reads the file that the configuration names: an .npz with all of the model's inputs and one or more of its outputs, by their
/// names. Zeros of the smallest sizes and no outputs where it names none.
///   Errors  those of reading the file; kInvalidArgument: a name, shape or dtype that is not the model's; the file named
Result<GoldenCase> read_golden(const ModelSource& source, const LoadedModel& loaded);

}  // namespace shoal::worker
