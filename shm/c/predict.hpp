// How the C interface submits a request and waits for it: to models, to clients, and as a step of a session.
#pragma once

#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"

namespace shoal::c {

/// Reads what the program passes, and submits it.
///   info    of the model, for inputs without a name; may be null
///   submit  called with Tensors and SubmitOptions, gives the Prediction
template <typename Submit>
Result<Prediction> submitted(const shoal_named_tensor* inputs, std::size_t input_count, const ModelInfo* info,
                             const shoal_submit_options* options, const Submit& submit) {
  SHOAL_ASSIGN_OR_RETURN(Tensors tensors, tensors_of(inputs, input_count, info));
  SHOAL_ASSIGN_OR_RETURN(const SubmitOptions read, submit_options_of(options));
  return submit(std::move(tensors), read);
}

/// Waits, and hands the outputs over.
inline Ended give_outputs(const Result<Prediction>& prediction, shoal_outputs** outputs) {
  if (!prediction.ok()) return prediction.status();
  const Outcome& outcome = prediction->outcome();
  if (!outcome.outputs.ok()) return {outcome.outputs.status(), outcome.retry_after};
  return give(Tensors(*outcome.outputs), outputs);
}

}  // namespace shoal::c
