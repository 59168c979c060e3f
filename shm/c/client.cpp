#include "shoal/client.hpp"

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/predict.hpp"

namespace shoal::c {
namespace {

const Outcome& no_prediction() {
  static const Outcome outcome{.outputs = Status(StatusCode::kInvalidArgument, "the prediction is NULL")};
  return outcome;
}

const Outcome& no_memory_to_wait() {
  static const Outcome outcome{.outputs = Status(StatusCode::kFailedPrecondition, "out of memory"), .ran = Ran::kMaybe};
  return outcome;
}

std::function<void(const Outcome&)> function_of(void (*callback)(const shoal_outcome*, void*), void* arg) {
  return [callback, arg](const Outcome& outcome) { callback(handle_of<shoal_outcome>(&outcome), arg); };
}

Result<Prediction> submit_to(const Model& model, const shoal_named_tensor* inputs, std::size_t input_count,
                             const shoal_submit_options* options) {
  const auto info = model.info();
  return submitted(inputs, input_count, info.get(), options,
                   [&](Tensors tensors, const SubmitOptions& given) { return model.submit(std::move(tensors), given); });
}

Result<Prediction> submit_to(const Client& client, const char* model, const shoal_named_tensor* inputs, std::size_t input_count,
                             const shoal_submit_options* options) {
  return submitted(inputs, input_count, nullptr, options,
                   [&](Tensors tensors, const SubmitOptions& given) { return client.submit(model, std::move(tensors), given); });
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

// ---- Clients and models ----

shoal_status* shoal_client_model(const shoal_client* client, const char* name, std::uint64_t version, shoal_model** model) {
  SHOAL_C_GIVES(model);
  SHOAL_C_NEEDS(client);
  SHOAL_C_NEEDS(name);
  return call([&] { return give(object_of(client).model(name, version), model); });
}

shoal_status* shoal_client_describe(const shoal_client* client, const char* name, std::uint64_t version,
                                    shoal_model_info** info) {
  SHOAL_C_GIVES(info);
  SHOAL_C_NEEDS(client);
  SHOAL_C_NEEDS(name);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(shoal::ModelInfo described, object_of(client).describe(name, version));
    return give(std::make_shared<const shoal::ModelInfo>(std::move(described)), info);
  });
}

const char* shoal_model_name(const shoal_model* model) { return model ? object_of(model).name().c_str() : ""; }
std::uint64_t shoal_model_version(const shoal_model* model) { return model ? object_of(model).version() : 0; }

shoal_status* shoal_model_describe(const shoal_model* model, shoal_model_info** info) {
  SHOAL_C_GIVES(info);
  SHOAL_C_NEEDS(model);
  return call([&] { return give(object_of(model).info(), info); });
}

void shoal_model_free(shoal_model* model) { free_handle(model); }

shoal_status* shoal_client_loan(const shoal_client* client, shoal_dtype dtype, const std::int64_t* dims, std::size_t rank,
                                shoal_tensor** tensor) {
  SHOAL_C_GIVES(tensor);
  SHOAL_C_NEEDS(client);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::Shape shape, shape_of(dims, rank));
    return give(object_of(client).loan(dtype_of(dtype), shape), tensor);
  });
}

shoal_status* shoal_client_loan_output(const shoal_client* client, shoal_dtype dtype, const std::int64_t* dims, std::size_t rank,
                                       shoal_tensor** tensor) {
  SHOAL_C_GIVES(tensor);
  SHOAL_C_NEEDS(client);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::Shape shape, shape_of(dims, rank));
    return give(object_of(client).loan_output(dtype_of(dtype), shape), tensor);
  });
}

void shoal_client_poll_once(const shoal_client* client) {
  if (!client) return;
  call_quietly([&] { object_of(client).poll_once(); });
}

// ---- Requests in one call ----

shoal_status* shoal_model_predict(const shoal_model* model, const shoal_named_tensor* inputs, std::size_t input_count,
                                  const shoal_submit_options* options, shoal_outputs** outputs) {
  SHOAL_C_GIVES(outputs);
  SHOAL_C_NEEDS(model);
  return call([&] { return give_outputs(submit_to(object_of(model), inputs, input_count, options), outputs); });
}

shoal_status* shoal_client_predict(const shoal_client* client, const char* model, const shoal_named_tensor* inputs,
                                   std::size_t input_count, const shoal_submit_options* options, shoal_outputs** outputs) {
  SHOAL_C_GIVES(outputs);
  SHOAL_C_NEEDS(client);
  SHOAL_C_NEEDS(model);
  return call([&] { return give_outputs(submit_to(object_of(client), model, inputs, input_count, options), outputs); });
}

shoal_status* shoal_model_submit(const shoal_model* model, const shoal_named_tensor* inputs, std::size_t input_count,
                                 const shoal_submit_options* options, shoal_prediction** prediction) {
  SHOAL_C_GIVES(prediction);
  SHOAL_C_NEEDS(model);
  return call([&] { return give(submit_to(object_of(model), inputs, input_count, options), prediction); });
}

shoal_status* shoal_client_submit(const shoal_client* client, const char* model, const shoal_named_tensor* inputs,
                                  std::size_t input_count, const shoal_submit_options* options, shoal_prediction** prediction) {
  SHOAL_C_GIVES(prediction);
  SHOAL_C_NEEDS(client);
  SHOAL_C_NEEDS(model);
  return call([&] { return give(submit_to(object_of(client), model, inputs, input_count, options), prediction); });
}

// ---- Predictions ----

bool shoal_prediction_ready(const shoal_prediction* prediction) { return shoal_prediction_wait(prediction, 0); }

bool shoal_prediction_wait(const shoal_prediction* prediction, std::int64_t timeout_ns) {
  if (!prediction) return true;
  bool is_ready = false;
  call_quietly([&] {
    const shoal::Prediction& pending = object_of(prediction);
    is_ready = timeout_ns > 0 ? pending.wait_for(std::chrono::nanoseconds(timeout_ns)) : pending.ready();
  });
  return is_ready;
}

const shoal_outcome* shoal_prediction_outcome(const shoal_prediction* prediction) {
  const shoal::Outcome* outcome = prediction ? &no_memory_to_wait() : &no_prediction();
  if (prediction) {
    call_quietly([&] { outcome = &object_of(prediction).outcome(); });
  }
  return handle_of<shoal_outcome>(outcome);
}

void shoal_prediction_cancel(const shoal_prediction* prediction) {
  if (!prediction) return;
  call_quietly([&] { object_of(prediction).cancel(); });
}

shoal_status* shoal_prediction_then(const shoal_prediction* prediction, void (*callback)(const shoal_outcome*, void*),
                                    void* arg) {
  SHOAL_C_NEEDS(prediction);
  SHOAL_C_NEEDS(callback);
  return call([&] { return object_of(prediction).then(function_of(callback, arg)); });
}

shoal_status* shoal_prediction_then_on(const shoal_prediction* prediction, void (*executor)(shoal_task*, void*),
                                       void* executor_arg, void (*callback)(const shoal_outcome*, void*), void* arg) {
  SHOAL_C_NEEDS(prediction);
  SHOAL_C_NEEDS(executor);
  SHOAL_C_NEEDS(callback);
  return call([&] {
    const auto task = std::make_shared<Task>();  // now: there is nobody to tell later that there is no memory
    return object_of(prediction).then(function_of(callback, arg), [executor, executor_arg, task](std::function<void()> run) {
      task->run = std::move(run);
      task->self = task;
      executor(handle_of<shoal_task>(task.get()), executor_arg);
    });
  });
}

void shoal_task_run(shoal_task* task) {
  if (!task) return;
  const std::shared_ptr<Task> self = std::exchange(object_of(task).self, nullptr);
  self->run();
}

void shoal_prediction_free(shoal_prediction* prediction) { free_handle(prediction); }
