// How the C interface waits for a request: by shoal_model_predict(), and by steps of sessions.
#pragma once

#include "shm/c/call.hpp"

namespace shoal::c {

/// Waits, and hands the outputs over.
inline Ended give_outputs(const Prediction& prediction, shoal_outputs** outputs) {
  const Outcome& outcome = prediction.outcome();
  if (!outcome.outputs.ok()) return {outcome.outputs.status(), outcome.retry_after};
  return give(Tensors(*outcome.outputs), outputs);
}

}  // namespace shoal::c
