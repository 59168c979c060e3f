// Measuring algorithms for a program that has threads: such a process must not fork, so a shoal-worker does it.
#pragma once

#include <chrono>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "worker/exec/model.hpp"

namespace shoal::worker {

/// Starts a shoal-worker as a zygote and has it load the model. It measures as each load does, and leaves the record where
/// this process reads it. It is ended and reaped before this returns or throws.
///   progress  as in ModelOptions; may throw
///   Errors    kNotFound: no shoal-worker beside this library or program, nor in ../libexec/shoal; kDeadlineExceeded: not over
///             after three budgets and 30 s, or after `load_timeout_s`; kUnavailable: it died; those of loading
Status measure_elsewhere(const ServedModel& model, const TuningProgress& progress);

}  // namespace shoal::worker
