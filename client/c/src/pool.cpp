#include "shoal/pool.hpp"

#include "client/c/src/pool_handles.hpp"
#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/predict.hpp"
#include "shoal/data_desc.hpp"

namespace shoal::c {
namespace {

std::chrono::nanoseconds duration_or(std::int64_t given_ns, std::chrono::nanoseconds missing) {
  return given_ns == 0 ? missing : std::chrono::nanoseconds(given_ns);
}

Result<PoolOptions> pool_options_of(const shoal_pool_options* given) {
  SHOAL_ASSIGN_OR_RETURN(const shoal_pool_options read, read_struct(given, "SHOAL_POOL_OPTIONS_INIT"));
  PoolOptions options;
  if (read.directory) options.directory = read.directory;
  if (read.arena_limit_bytes > 0) options.arena_limit_bytes = read.arena_limit_bytes;
  if (read.no_arenas != 0) options.arena_limit_bytes = 0;
  options.connect_timeout = duration_or(read.connect_timeout_ns, options.connect_timeout);
  options.reconnect_timeout = duration_or(read.reconnect_timeout_ns, options.reconnect_timeout);
  options.control_timeout = duration_or(read.control_timeout_ns, options.control_timeout);
  if (read.in_flight_limit > 0) options.in_flight_limit = read.in_flight_limit;
  if (read.session_limit > 0) options.session_limit = read.session_limit;
  options.session_idle =
      read.session_idle_ns < 0 ? std::chrono::nanoseconds(0) : duration_or(read.session_idle_ns, options.session_idle);
  return options;
}

shoal_arena_usage usage_of(const ArenaUsage& usage) {
  return {usage.reserved_bytes, usage.allocated_bytes, usage.used_bytes, usage.copied, usage.copied_bytes};
}

Result<Prediction> submit_step(Session& session, const shoal_named_tensor* inputs, std::size_t input_count,
                               const shoal_submit_options* options) {
  return submitted(inputs, input_count, nullptr, options,
                   [&](Tensors tensors, const SubmitOptions& given) { return session.submit(std::move(tensors), given); });
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

shoal_status* shoal_pool_connect(const shoal_pool_options* options, shoal_pool** pool) {
  SHOAL_C_GIVES(pool);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(shoal::PoolOptions given, pool_options_of(options));
    SHOAL_ASSIGN_OR_RETURN(shoal::Pool connected, shoal::Pool::connect(std::move(given)));
    return give(PoolHandle(std::move(connected)), pool);
  });
}

void shoal_pool_close(shoal_pool* pool) { free_handle(pool); }
const shoal_client* shoal_pool_client(const shoal_pool* pool) {
  return pool ? handle_of<shoal_client>(&object_of(pool).client) : nullptr;
}

shoal_status* shoal_pool_usage(const shoal_pool* pool, shoal_usage* usage) {
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(usage);
  return call([&] {
    const shoal::PoolUsage now = object_of(pool).pool.usage();
    return write_struct({.inputs = usage_of(now.inputs), .outputs = usage_of(now.outputs)}, usage, "SHOAL_USAGE_INIT");
  });
}

// ---- Descriptors ----

shoal_status* shoal_model_info_expect(const shoal_model_info* info, const shoal_data_desc* inputs, std::size_t input_count,
                                      const shoal_data_desc* outputs, std::size_t output_count) {
  SHOAL_C_NEEDS(info);
  return call([&]() -> shoal::Status {
    const shoal::ModelInfo& model = *object_of(info);
    const std::string where = shoal::format("model '{}'", model.name);
    SHOAL_ASSIGN_OR_RETURN(const std::vector<shoal::TensorSpec> given, descriptors_of(inputs, input_count, "inputs"));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<shoal::TensorSpec> wanted, descriptors_of(outputs, output_count, "outputs"));
    SHOAL_RETURN_IF_ERROR(shoal::match_descriptors(where, "input", model.inputs, given).status());
    return shoal::match_descriptors(where, "output", model.outputs, wanted).status();
  });
}

// ---- Sessions ----

shoal_status* shoal_pool_open_session(shoal_pool* pool, const char* model, shoal_session** session) {
  SHOAL_C_GIVES(session);
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(model);
  return call([&] { return give(object_of(pool).pool.open_session(model), session); });
}

shoal_status* shoal_session_predict(shoal_session* session, const shoal_named_tensor* inputs, std::size_t input_count,
                                    const shoal_submit_options* options, shoal_outputs** outputs) {
  SHOAL_C_GIVES(outputs);
  SHOAL_C_NEEDS(session);
  return call([&] { return give_outputs(submit_step(object_of(session), inputs, input_count, options), outputs); });
}

shoal_status* shoal_session_submit(shoal_session* session, const shoal_named_tensor* inputs, std::size_t input_count,
                                   const shoal_submit_options* options, shoal_prediction** prediction) {
  SHOAL_C_GIVES(prediction);
  SHOAL_C_NEEDS(session);
  return call([&] { return give(submit_step(object_of(session), inputs, input_count, options), prediction); });
}

shoal_status* shoal_session_reset(shoal_session* session) {
  SHOAL_C_NEEDS(session);
  return call([&] { return object_of(session).reset(); });
}

void shoal_session_close(shoal_session* session) { free_handle(session); }
