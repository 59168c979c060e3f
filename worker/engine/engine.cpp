#include "shoal/engine.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <new>
#include <thread>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/mutex.hpp"
#include "shm/tensor/spec.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/engine/model_loader.hpp"

namespace shoal {

using worker::Context;
using worker::kIdentityPath;
using worker::LoadedModel;

namespace {

std::chrono::nanoseconds since(std::uint64_t start_ns) { return std::chrono::nanoseconds(monotonic_now_ns() - start_ns); }

// What sets of inputs have in common: dimensions in which they differ are open.
std::vector<TensorSpec> inputs_of(const std::vector<std::vector<TensorSpec>>& sets) {
  std::vector<TensorSpec> inputs = sets.front();
  for (const std::vector<TensorSpec>& set : sets) {
    for (TensorSpec& input : inputs) {
      const auto other = std::ranges::find(set, input.name, &TensorSpec::name);
      if (other == set.end() || other->shape.rank() != input.shape.rank()) continue;  // the plan refuses it by name
      for (int axis = 0; axis < input.shape.rank(); ++axis) {
        if (other->shape[axis] != input.shape[axis]) input.shape[axis] = -1;
      }
    }
  }
  return inputs;
}

/// One submitted run.
///   Threads  thread-safe
class EngineRequest final : public PendingOutcome {
 public:
  EngineRequest(Tensors tensors, SubmitOptions options) : inputs(std::move(tensors)), submitted_ns(monotonic_now_ns()) {
    if (options.timeout.count() != 0)
      deadline_ns = submitted_ns + static_cast<std::uint64_t>(std::max<std::int64_t>(options.timeout.count(), 0));
  }

  bool ready() override {
    const MutexLock lock(mutex_);
    return is_done_;
  }
  bool wait_for(std::chrono::nanoseconds limit) override {
    const auto now = std::chrono::steady_clock::now(), last = now.max();
    const auto until = limit < last - now ? now + limit : last;
    const MutexLock lock(mutex_);
    while (!is_done_ && done_.wait_until(mutex_, until)) {
    }
    return is_done_;
  }
  const Outcome& outcome() override {
    const MutexLock lock(mutex_);
    while (!is_done_) done_.wait(mutex_);
    return outcome_;  // never changes again
  }
  void cancel() override { complete({.outputs = Status(cancelled("the caller gave the request up"))}); }

  void complete(Outcome outcome) {
    const MutexLock lock(mutex_);
    if (is_done_) return;
    outcome_ = std::move(outcome);
    is_done_ = true;
    done_.notify_all();
  }

  const Tensors inputs;
  const std::uint64_t submitted_ns;
  std::uint64_t deadline_ns = 0;

 private:
  Mutex mutex_;
  Condition done_;
  bool is_done_ SHOAL_GUARDED_BY(mutex_) = false;
  Outcome outcome_ SHOAL_GUARDED_BY(mutex_);
};

/// The caller's end: letting go of it gives the request up.
class EnginePrediction final : public PendingOutcome {
 public:
  explicit EnginePrediction(std::shared_ptr<EngineRequest> request) : request_(std::move(request)) {}
  ~EnginePrediction() override { request_->cancel(); }
  bool ready() override { return request_->ready(); }
  bool wait_for(std::chrono::nanoseconds limit) override { return request_->wait_for(limit); }
  const Outcome& outcome() override { return request_->outcome(); }
  void cancel() override { request_->cancel(); }

 private:
  std::shared_ptr<EngineRequest> request_;
};

}  // namespace

struct Engine::Impl {
  LoadedModel loaded;
  ModelInfo info;

  std::size_t context_count = 0;

  Mutex mutex;
  Condition context_freed, submitted;
  std::vector<std::unique_ptr<Context>> free_contexts SHOAL_GUARDED_BY(mutex);
  std::deque<std::shared_ptr<EngineRequest>> queue SHOAL_GUARDED_BY(mutex);
  std::vector<std::thread> threads SHOAL_GUARDED_BY(mutex);
  bool is_stopping SHOAL_GUARDED_BY(mutex) = false;

  ~Impl() {
    {
      const MutexLock lock(mutex);
      is_stopping = true;
      submitted.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& request : queue)
      request->complete({.outputs = Status(cancelled("the engine was destroyed before the request ran"))});
  }

  Status check_name(std::string_view model, std::uint64_t version) const {
    if (!model.empty() && model != info.name) return not_found("this engine runs model '{}', not '{}'", info.name, model);
    if (version != 0 && version != info.version)
      return not_found("this engine runs version {} of model '{}', not {}", info.version, info.name, version);
    return {};
  }

  std::unique_ptr<Context> take_context() {
    const MutexLock lock(mutex);
    while (free_contexts.empty()) context_freed.wait(mutex);
    auto context = std::move(free_contexts.back());
    free_contexts.pop_back();
    return context;
  }

  void give_back(std::unique_ptr<Context> context) {
    const MutexLock lock(mutex);
    free_contexts.push_back(std::move(context));
    context_freed.notify_one();
  }

  // The tensors in the model's order, and their specs.
  Status order_inputs(const Tensors& given, std::vector<TensorSpec>& specs, std::vector<TensorView>& src) const {
    for (const NamedTensor& input : given) {
      const bool is_known = std::ranges::count(info.inputs, input.name, &TensorSpec::name) > 0;
      if (is_known || std::ranges::count(loaded.model->ignored_inputs(), input.name) > 0) continue;
      return invalid_argument("model '{}' has no input '{}'", info.name, input.name);
    }
    for (const TensorSpec& spec : info.inputs) {
      const auto count = std::ranges::count(given, spec.name, &NamedTensor::name);
      if (count != 1)
        return invalid_argument("model '{}': input '{}' is {}", info.name, spec.name, count == 0 ? "missing" : "given twice");
      const Tensor& tensor = std::ranges::find(given, spec.name, &NamedTensor::name)->tensor;
      if (const Status matches = check_matches(spec, tensor.dtype(), tensor.shape()); !matches.ok())
        return matches.with_context(format("model '{}'", info.name));
      specs.push_back({spec.name, tensor.dtype(), tensor.shape()});
      src.push_back(tensor.view());
    }
    return {};
  }

  Result<Tensors> run(const Tensors& inputs, Context& context) try {
    std::vector<TensorSpec> specs;
    std::vector<TensorView> src, dst;
    SHOAL_RETURN_IF_ERROR(order_inputs(inputs, specs, src));
    loaded.model->enter_thread();
    auto program = loaded.model->program(specs);
    if (!program.ok()) return program.status().with_context(format("model '{}'", info.name));
    Tensors outputs;
    for (const TensorSpec& output : (*program)->outputs()) {
      SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(output.dtype, output.shape));
      dst.push_back(tensor.view());
      outputs.push_back({output.name, std::move(tensor)});
    }
    if (const Status ran = (*program)->run(context, src, dst); !ran.ok())
      return ran.with_context(format("model '{}'", info.name));
    return outputs;
  } catch (const std::bad_alloc&) {
    return internal_error("model '{}': out of memory", info.name);
  } catch (const std::exception& error) {  // no exception leaves a thread, and none costs a context
    return internal_error("model '{}': {}", info.name, error.what());
  }

  void serve() {
    while (const auto request = next_request()) answer(*request);
  }

  // Null when the engine is being destroyed.
  std::shared_ptr<EngineRequest> next_request() {
    const MutexLock lock(mutex);
    while (!is_stopping && queue.empty()) submitted.wait(mutex);
    if (is_stopping) return nullptr;
    auto request = std::move(queue.front());
    queue.pop_front();
    return request;
  }

  void answer(EngineRequest& request) {
    if (request.ready()) return;  // cancelled
    Outcome outcome{.model_version = info.version, .queue_time = since(request.submitted_ns)};
    if (request.deadline_ns != 0 && monotonic_now_ns() >= request.deadline_ns) {
      outcome.outputs = Status(deadline_exceeded("model '{}': the time given ran out before the run began", info.name));
    } else {
      auto context = take_context();
      const std::uint64_t start_ns = monotonic_now_ns();
      outcome.outputs = run(request.inputs, *context);
      outcome.compute_time = since(start_ns);
      outcome.ran = outcome.outputs.ok() ? Ran::kYes : Ran::kNo;
      outcome.attempts = 1;
      give_back(std::move(context));
    }
    request.complete(std::move(outcome));
  }
};

Result<Engine> Engine::load(const std::string& path, EngineOptions options) {
  worker::ModelSource source{.name = path, .path = path};
  auto impl = std::make_unique<Impl>();
  if (path != kIdentityPath) {
    SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(path));
    SHOAL_ASSIGN_OR_RETURN(source.config, read_model_config(files));
    SHOAL_ASSIGN_OR_RETURN(impl->info.labels, read_labels(files, source.config));
    source.name = files.prefix;
    source.symbol_file = files.symbol_file;
    source.params_file = files.params_file;
    impl->info.version = files.version;
    impl->info.preprocess = source.config.preprocess;
  }
  source.config.max_batch = 1;  // nobody joins requests here
  source.tuning_progress = std::move(options.on_measuring);
  if (!options.device.empty()) source.config.device = options.device;
  if (!options.precision.empty()) source.config.precision = options.precision;
  if (options.threads > 0) source.config.threads = options.threads;
  if (options.tuning_ms >= 0) source.config.tuning_ms = options.tuning_ms;
  if (!options.shapes.empty()) {  // the caller knows better than model.toml, its `inputs` included
    source.config.inputs = inputs_of(options.shapes);
    source.config.shapes = std::move(options.shapes);
  }
  SHOAL_ASSIGN_OR_RETURN(impl->loaded, worker::load_model(source));
  impl->info.name = source.name;
  impl->info.inputs = impl->loaded.inputs;
  impl->info.outputs = impl->loaded.outputs;
  impl->context_count = static_cast<std::size_t>(std::max(options.contexts, 1));
  for (std::size_t i = 0; i < impl->context_count; ++i) impl->give_back(std::make_unique<Context>());
  return Engine(std::move(impl));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Tensors> Engine::run(const Tensors& inputs) {
  auto context = impl_->take_context();
  auto outputs = impl_->run(inputs, *context);
  impl_->give_back(std::move(context));
  return outputs;
}

Prediction Engine::submit(std::string_view model, Tensors inputs, SubmitOptions options) {
  const auto request = std::make_shared<EngineRequest>(std::move(inputs), options);
  if (Status known = impl_->check_name(model, options.version); !known.ok()) {
    request->complete({.outputs = std::move(known)});
  } else {
    const MutexLock lock(impl_->mutex);
    impl_->queue.push_back(request);
    if (impl_->threads.size() < impl_->context_count) impl_->threads.emplace_back([impl = impl_.get()] { impl->serve(); });
    impl_->submitted.notify_one();
  }
  return Prediction(std::make_shared<EnginePrediction>(request));
}

Result<ModelInfo> Engine::describe(std::string_view model, std::uint64_t version) {
  SHOAL_RETURN_IF_ERROR(impl_->check_name(model, version));
  return impl_->info;
}

const std::vector<std::string>& Engine::warnings() const { return impl_->loaded.warnings; }
std::uint64_t Engine::packed_bytes() const { return impl_->loaded.model->packed_bytes(); }
std::uint64_t Engine::arena_bytes() const { return impl_->loaded.arena_bytes; }

}  // namespace shoal
