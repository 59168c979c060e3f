#include "shoal/outcome.hpp"

#include "shm/c/call.hpp"

namespace shoal::c {
namespace {

const Outcome& outcome_object(const shoal_outcome* outcome) {
  static const Outcome none{.outputs = Status(StatusCode::kInvalidArgument, "the outcome is NULL")};
  return outcome ? object_of(outcome) : none;
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

shoal_code shoal_outcome_code(const shoal_outcome* outcome) {
  return static_cast<shoal_code>(outcome_object(outcome).outputs.status().code());
}
const char* shoal_outcome_message(const shoal_outcome* outcome) {
  return outcome_object(outcome).outputs.status().message().c_str();
}
const shoal_outputs* shoal_outcome_outputs(const shoal_outcome* outcome) {
  const auto& outputs = outcome_object(outcome).outputs;
  return outputs.ok() ? handle_of<shoal_outputs>(&*outputs) : nullptr;
}
shoal_status* shoal_outcome_status(const shoal_outcome* outcome) {
  return call([&] { return Ended(outcome_object(outcome).outputs.status(), outcome_object(outcome).retry_after); });
}
shoal_ran shoal_outcome_ran(const shoal_outcome* outcome) { return static_cast<shoal_ran>(outcome_object(outcome).ran); }
std::uint32_t shoal_outcome_attempts(const shoal_outcome* outcome) { return outcome_object(outcome).attempts; }
std::uint32_t shoal_outcome_batch(const shoal_outcome* outcome) { return outcome_object(outcome).batch; }
std::uint64_t shoal_outcome_model_version(const shoal_outcome* outcome) { return outcome_object(outcome).model_version; }
std::int64_t shoal_outcome_queue_time_ns(const shoal_outcome* outcome) { return outcome_object(outcome).queue_time.count(); }
std::int64_t shoal_outcome_compute_time_ns(const shoal_outcome* outcome) { return outcome_object(outcome).compute_time.count(); }
std::int64_t shoal_outcome_retry_after_ns(const shoal_outcome* outcome) { return outcome_object(outcome).retry_after.count(); }
