#include "shoal/engine.hpp"

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"
#include "shoal/passive_openmp.hpp"
#include "worker/c/engine_handles.hpp"

namespace shoal::c {
namespace {

Result<std::vector<std::vector<TensorSpec>>> shape_sets_of(const shoal_shape_set* sets, std::size_t count) {
  SHOAL_RETURN_IF_ERROR(check_array(sets, count, "shape_sets"));
  std::vector<std::vector<TensorSpec>> all;
  for (std::size_t i = 0; i < count; ++i) {
    SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> set,
                           descriptors_of(sets[i].shapes, sets[i].count, format("shape_sets[{}].shapes", i)));
    all.push_back(std::move(set));
  }
  return all;
}

Result<EngineOptions> engine_options_of(const shoal_engine_options& read) {
  EngineOptions options{.device = text_or_empty(read.device), .precision = text_or_empty(read.precision)};
  SHOAL_ASSIGN_OR_RETURN(options.threads, number_of("threads", read.threads, options.threads, 1));
  SHOAL_ASSIGN_OR_RETURN(options.contexts, number_of("contexts", read.contexts, options.contexts, 1));
  SHOAL_ASSIGN_OR_RETURN(options.queue_limit, number_of("queue_limit", read.queue_limit, options.queue_limit, 1));
  SHOAL_ASSIGN_OR_RETURN(options.tuning_ms, number_of("tuning_ms", read.tuning_ms < 0 ? 0 : read.tuning_ms,
                                                      read.tuning_ms < 0 ? 0 : options.tuning_ms, 1));
  SHOAL_ASSIGN_OR_RETURN(options.shapes, shape_sets_of(read.shape_sets, read.shape_set_count));
  return options;
}

OnMeasuring on_measuring_of(const shoal_engine_options& read) {
  if (!read.on_measuring) return {};
  return [call = read.on_measuring, arg = read.on_measuring_arg](
             std::chrono::nanoseconds spent, std::chrono::nanoseconds budget) { call(spent.count(), budget.count(), arg); };
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

void shoal_ensure_passive_openmp(char** argv) {
  if (argv) call_quietly([&] { shoal::ensure_passive_openmp(argv); });
}

shoal_status* shoal_engine_load(const char* path, const shoal_engine_options* options, shoal_engine** engine) {
  SHOAL_C_GIVES(engine);
  SHOAL_C_NEEDS(path);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal_engine_options read, read_struct(options, "SHOAL_ENGINE_OPTIONS_INIT"));
    SHOAL_ASSIGN_OR_RETURN(const shoal::EngineOptions given, engine_options_of(read));
    SHOAL_ASSIGN_OR_RETURN(shoal::Engine loaded, shoal::Engine::load(path, given, on_measuring_of(read)));
    SHOAL_ASSIGN_OR_RETURN(shoal::ModelInfo info, loaded.describe());
    return give(EngineHandle(std::move(loaded), std::move(info)), engine);
  });
}

void shoal_engine_close(shoal_engine* engine) { free_handle(engine); }
const shoal_client* shoal_engine_client(const shoal_engine* engine) {
  return engine ? handle_of<shoal_client>(&object_of(engine).client) : nullptr;
}

shoal_status* shoal_engine_describe(const shoal_engine* engine, shoal_model_info** info) {
  SHOAL_C_GIVES(info);
  SHOAL_C_NEEDS(engine);
  return shoal_client_describe(shoal_engine_client(engine), "", 0, info);
}

shoal_status* shoal_engine_run(shoal_engine* engine, const shoal_named_tensor* inputs, std::size_t input_count,
                               shoal_outputs** outputs) {
  SHOAL_C_GIVES(outputs);
  SHOAL_C_NEEDS(engine);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::Tensors tensors, tensors_of(inputs, input_count, object_of(engine).info.get()));
    return give(object_of(engine).engine.run(tensors), outputs);
  });
}

std::size_t shoal_engine_warning_count(const shoal_engine* engine) {
  return engine ? object_of(engine).engine.warnings().size() : 0;
}
const char* shoal_engine_warning(const shoal_engine* engine, std::size_t index) {
  return index < shoal_engine_warning_count(engine) ? object_of(engine).engine.warnings()[index].c_str() : "";
}
std::uint64_t shoal_engine_packed_bytes(const shoal_engine* engine) {
  return engine ? object_of(engine).engine.packed_bytes() : 0;
}
std::uint64_t shoal_engine_arena_bytes(const shoal_engine* engine) { return engine ? object_of(engine).engine.arena_bytes() : 0; }
