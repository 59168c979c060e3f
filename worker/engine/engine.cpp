#include "shoal/engine.hpp"

#include <algorithm>
#include <cfenv>
#include <deque>
#include <exception>
#include <iterator>
#include <new>
#include <system_error>
#include <thread>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fork_guard.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/completion/request_state.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"
#include "worker/engine/engine_request.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/engine/measuring_process.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/engine/thread_settings.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/import/importer.hpp"

namespace shoal {

using worker::Context;
using worker::kIdentityPath;
using worker::LoadedModel;

namespace {

Status moved_from() { return failed_precondition("this Engine was moved from: use the Engine that it was moved to"); }

std::chrono::nanoseconds since(std::uint64_t start_ns) { return std::chrono::nanoseconds(monotonic_now_ns() - start_ns); }

// Merges sets of inputs: dimensions in which they differ are open.
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

/// What the caller says counts instead of what model.toml says.
void use_options(const EngineOptions& options, ModelConfig& config) {
  config.max_batch = 1;  // nobody joins requests here
  if (!options.device.empty()) config.device = options.device.string();
  if (!options.precision.empty()) config.precision = options.precision.string();
  if (options.threads > 0) config.threads = options.threads;
  if (options.tuning_ms >= 0) config.tuning_ms = options.tuning_ms;
  if (options.shapes.empty()) return;
  config.shapes.clear();
  for (const List<TensorSpec>& set : options.shapes) config.shapes.emplace_back(set.begin(), set.end());
  config.inputs = inputs_of(config.shapes);  // instead of those of model.toml
  const auto is_open = [](const TensorSpec& input) { return input.shape.element_count() < 0; };
  if (config.shapes.size() == 1 && std::ranges::any_of(config.inputs, is_open)) config.shapes.clear();
}

}  // namespace

struct Engine::Impl final : completion::ClientCore {
  const ForkGuard fork_guard;
  LoadedModel loaded;
  ModelInfo info;

  std::size_t context_count = 0, queue_limit = 0;

  Mutex mutex;
  Condition context_freed, submitted;
  std::vector<std::unique_ptr<Context>> free_contexts SHOAL_GUARDED_BY(mutex);
  std::deque<std::shared_ptr<EngineRequest>> queue SHOAL_GUARDED_BY(mutex);
  std::vector<std::thread> threads SHOAL_GUARDED_BY(mutex);
  bool is_stopping SHOAL_GUARDED_BY(mutex) = false;
  std::chrono::nanoseconds last_compute_time SHOAL_GUARDED_BY(mutex){0};

  // A forked child leaves it alone: it has threads that are not there.
  static std::shared_ptr<Impl> make() {
    return {new Impl, [](Impl* made) {
              if (!made->fork_guard.in_child()) delete made;
            }};
  }

  /// Once the model is loaded.
  void begin(const std::string& name, const EngineOptions& options) {
    info.name = name;
    info.inputs = loaded.inputs;
    info.outputs = loaded.outputs;
    info.state = loaded.state;
    info.precision = worker::word_of(loaded.model->tuning().precision);
    context_count = static_cast<std::size_t>(std::max(options.contexts, 1));
    queue_limit = static_cast<std::size_t>(std::max(options.queue_limit, 1));
    for (std::size_t i = 0; i < context_count; ++i) give_back(std::make_unique<Context>());
  }

  // Clients may outlive the Engine, but not its memory.
  void close() {
    std::vector<std::thread> all_threads;
    {
      const MutexLock lock(mutex);
      is_stopping = true;
      submitted.notify_all();
      all_threads.swap(threads);
    }
    for (std::thread& thread : all_threads) thread.join();
    while (const auto request = first_unanswered()) request->complete({.outputs = engine_is_gone()});
    callbacks().stop();
    free_contexts_and_model();
  }
  std::shared_ptr<EngineRequest> first_unanswered() {
    const MutexLock lock(mutex);
    if (queue.empty()) return nullptr;
    auto first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  void free_contexts_and_model() {
    const MutexLock lock(mutex);
    free_contexts.clear();
    loaded.model.reset();
  }

  Status usable() override { return fork_guard.in_child() ? forked() : Status(); }
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version) override {
    SHOAL_RETURN_IF_ERROR(check_name(model, version));
    const MutexLock lock(mutex);
    return is_stopping ? Result<ModelInfo>(engine_is_gone()) : info;
  }
  std::shared_ptr<const ModelInfo> known_info(std::string_view, std::uint64_t, void*) override {
    return {shared_from_this(), &info};
  }
  Result<Tensor> loan(DType dtype, const Shape& shape) override {
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(dtype, shape));
    return mark_as_loan(std::move(tensor));
  }
  Result<Tensor> loan_output(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }
  void wait(completion::ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) override {
    list.wait(until, stop);
  }
  void wake(completion::ReadyList& list) override { list.interrupt(); }
  void poll() override {}
  void submit(completion::Submission submission, completion::HandleSlot& handle) override {
    const std::string_view model = submission.model;
    const std::uint64_t version = submission.options.version;
    handle.set(nullptr);
    const auto request = std::make_shared<EngineRequest>(std::move(submission));
    handle.set(std::make_shared<EnginePrediction>(shared_from_this(), request));
    try {
      if (Status fits = check_request(model, version, *request); !fits.ok())
        request->complete({.outputs = std::move(fits)});
      else if (std::optional<Outcome> refused = enqueue(request))
        request->complete(*std::move(refused));
    } catch (const std::bad_alloc&) {
      request->complete({.outputs = out_of_memory("a request", model)});
    }
  }

  Status check_request(std::string_view model, std::uint64_t version, EngineRequest& request) {
    SHOAL_RETURN_IF_ERROR(check_name(model, version));
    if (request.deadline_ns == request.submitted_ns)
      return deadline_exceeded("model '{}': the timeout was over when the request was submitted", info.name);
    return request.copy_inputs().with_context(format("model '{}'", info.name));
  }

  Status check_name(std::string_view model, std::uint64_t version) {
    SHOAL_RETURN_IF_ERROR(usable());
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

  /// A context for a scope.
  class ContextLoan {
   public:
    explicit ContextLoan(Impl& impl) : impl_(impl), context_(impl.take_context()) {}
    ~ContextLoan() { impl_.give_back(std::move(context_)); }
    ContextLoan(const ContextLoan&) = delete;
    ContextLoan& operator=(const ContextLoan&) = delete;
    Context& operator*() const { return *context_; }

   private:
    Impl& impl_;
    std::unique_ptr<Context> context_;
  };

  // For the states that `given` leaves out.
  Result<Tensors> zero_states(const Tensors& given) const {
    Tensors zeros;
    std::vector<TensorSpec> specs;
    for (const StatePair& pair : info.state) {
      if (std::ranges::count(given, pair.in, &NamedTensor::name) > 0) continue;
      if (specs.empty()) {
        for (const auto& [name, tensor] : given) specs.push_back({name, tensor.dtype(), tensor.shape()});
      }
      const auto spec = zero_state(info.inputs, info.state, pair, specs);
      if (!spec.ok()) return spec.status().with_context(format("model '{}'", info.name));
      SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(spec->dtype, spec->shape));
      zeros.push_back({pair.in, std::move(tensor)});
    }
    return zeros;
  }

  // The tensors in the model's order, and their specs.
  Status order_inputs(const Tensors& given, const Tensors& zeros, std::vector<TensorSpec>& specs,
                      std::vector<TensorView>& src) const {
    for (const TensorSpec& spec : info.inputs) {
      const Tensors& from = std::ranges::count(zeros, spec.name, &NamedTensor::name) > 0 ? zeros : given;
      const auto count = std::ranges::count(from, spec.name, &NamedTensor::name);
      if (count != 1)
        return invalid_argument("model '{}': input '{}' is {}", info.name, spec.name, count == 0 ? "missing" : "given twice");
      const Tensor& tensor = std::ranges::find(from, spec.name, &NamedTensor::name)->tensor;
      if (const Status matches = check_matches(spec, tensor.dtype(), tensor.shape()); !matches.ok())
        return matches.with_context(format("model '{}'", info.name));
      if (tensor.size_bytes() > 0 && !tensor.view().data)
        return invalid_argument("model '{}': input '{}': its tensor has no bytes", info.name, spec.name);
      specs.push_back({spec.name, tensor.dtype(), tensor.shape()});
      src.push_back(tensor.view());
    }
    return {};
  }

  // On a thread with the settings of a run. `ran`: kNo until the program is run, and kMaybe if memory lacks, as in a worker.
  Result<Tensors> run(const Tensors& inputs, Context& context, Ran& ran) {
    Result<Tensors> outputs = no_memory_at_all();
    try {
      outputs = try_to_run(inputs, context, ran);
    } catch (const std::bad_alloc&) {  // not even for the text of a failure
    }
    if (outputs.status().code() == StatusCode::kFailedPrecondition) ran = Ran::kMaybe;
    return outputs;
  }

  Result<Tensors> try_to_run(const Tensors& inputs, Context& context, Ran& ran) try {
    std::vector<TensorSpec> specs;
    std::vector<TensorView> src;
    for (const NamedTensor& input : inputs)
      SHOAL_RETURN_IF_ERROR(check_input_name(info.name, info.inputs, loaded.model->ignored_inputs(), input.name));
    SHOAL_ASSIGN_OR_RETURN(const Tensors zeros, zero_states(inputs));
    SHOAL_RETURN_IF_ERROR(order_inputs(inputs, zeros, specs, src));
    loaded.model->enter_thread();
    auto program = loaded.model->program(specs);
    if (!program.ok()) return program.status().with_context(format("model '{}'", info.name));
    SHOAL_ASSIGN_OR_RETURN(worker::OwnedOutputs outputs, worker::OwnedOutputs::make((*program)->outputs()));
    context.sink = &outputs;
    ran = Ran::kMaybe;
    if (const Status status = (*program)->run(context, src, outputs.views()); !status.ok())
      return status.with_context(format("model '{}'", info.name));
    ran = Ran::kYes;
    return std::move(outputs).take();
  } catch (const std::bad_alloc&) {
    return out_of_memory("the request", info.name);
  } catch (const std::exception& error) {  // an exception must not leave a thread or lose a context
    return internal_error("model '{}': {}", info.name, error.what());
  }

  void serve() {
    std::fesetenv(FE_DFL_ENV);  // and not that of the application's thread that made this one; OpenMP's helpers inherit it
    while (const auto request = next_request()) answer(*request);
  }

  // Null if the engine is being destroyed.
  std::shared_ptr<EngineRequest> next_request() {
    const MutexLock lock(mutex);
    while (!is_stopping && queue.empty()) submitted.wait(mutex);
    if (is_stopping) return nullptr;
    auto request = std::move(queue.front());
    queue.pop_front();
    return request;
  }

  void answer(EngineRequest& request) {
    if (!request.is_done()) request.complete(outcome_of(request));  // else cancelled
  }

  Outcome outcome_of(EngineRequest& request) {
    const ContextLoan context(*this);  // the callers of Engine::run() may have all of them for long
    const std::uint64_t start_ns = monotonic_now_ns();
    Outcome outcome{.outputs = no_memory_at_all(), .model_version = info.version, .queue_time = since(request.submitted_ns)};
    if (request.deadline_ns != 0 && start_ns >= request.deadline_ns) {
      try {
        outcome.outputs = Status(deadline_exceeded("model '{}': the time given ran out before the run began", info.name));
      } catch (const std::bad_alloc&) {
        outcome.outputs = Status(StatusCode::kDeadlineExceeded, "");
      }
    } else if (request.begin()) {  // else cancelled: it has its outcome
      outcome.outputs = run(request.inputs, *context, outcome.ran);
      outcome.compute_time = since(start_ns);
      outcome.attempts = 1;
      const MutexLock lock(mutex);
      last_compute_time = outcome.compute_time;
    }
    return outcome;
  }

  // Queues the request, or returns why that is not possible. What is told of an outcome may need the lock.
  std::optional<Outcome> enqueue(const std::shared_ptr<EngineRequest>& request) {
    std::vector<std::shared_ptr<EngineRequest>> given_up;  // destroyed after the lock is released
    const MutexLock lock(mutex);
    if (is_stopping) return Outcome{.outputs = engine_is_gone()};
    if (queue.size() >= queue_limit) {
      const auto first =
          std::stable_partition(queue.begin(), queue.end(), [](const auto& waiting) { return !waiting->is_done(); });
      given_up.assign(std::move_iterator(first), std::move_iterator(queue.end()));
      queue.erase(first, queue.end());
    }
    if (queue.size() >= queue_limit) {
      return Outcome{.outputs = Status(overloaded("model '{}': {} requests wait, which is the engine's limit "
                                                  "(EngineOptions::queue_limit)",
                                                  info.name, queue_limit)),
                     .retry_after = last_compute_time};
    }
    try {
      const BlockedSignals signals;
      if (threads.size() < context_count) threads.emplace_back([this] { serve(); });
    } catch (const std::system_error& error) {
      if (threads.empty())
        return Outcome{.outputs = Status(internal_error("model '{}': start a thread to run it: {}", info.name, error.what()))};
    }
    queue.push_back(request);
    submitted.notify_one();
    return std::nullopt;
  }
};

Result<Engine> Engine::load(const std::string& path, const EngineOptions& given, const OnMeasuring& on_measuring) {
  const EngineOptions options = whole(given);
  const worker::RunSettings settings;
  worker::ModelSource source{.name = path, .path = path};
  const std::shared_ptr<Impl> impl = Impl::make();
  ModelFiles files;
  if (path != kIdentityPath) {
    SHOAL_ASSIGN_OR_RETURN(files, find_model(path));
    SHOAL_ASSIGN_OR_RETURN(source.config, read_model_config(files));
    SHOAL_ASSIGN_OR_RETURN(impl->info.labels, read_labels(files, source.config));
    source.name = files.prefix;
    source.files = files.files;
    if (!source.config.golden_file.empty()) source.config.golden_file = files.directory / source.config.golden_file;
    impl->info.version = files.version;
    if (source.config.preprocess) impl->info.preprocess = *source.config.preprocess;
  }
  if (on_measuring) {
    source.tuning_progress = [callback = on_measuring, &settings](auto spent, auto budget) {
      const auto own = worker::ThreadSettings::of_this_thread();
      settings.callers().apply();
      callback(spent, budget);
      own.apply();
    };
  }
  use_options(options, source.config);
  SHOAL_ASSIGN_OR_RETURN(const int threads, worker::count_threads());
  if (threads > 1) {
    source.measure_elsewhere = [&source, &files] {
      ServedModel model{.name = source.name, .path = source.path, .files = files, .config = source.config, .labels = {}};
      model.files.directory.clear();  // the golden file has it already
      return worker::measure_elsewhere(model, source.tuning_progress);
    };
  }
  SHOAL_ASSIGN_OR_RETURN(impl->loaded, worker::load_model(source));
  impl->begin(source.name, options);
  return Engine(impl);
}

Result<Engine> Engine::load_bytes(std::string_view name, std::string_view graph, std::span<const std::byte> parameters,
                                  const EngineOptions& given) try {
  const EngineOptions options = whole(given);
  const worker::RunSettings settings;
  worker::ModelSource source{.name = std::string(name), .path = "in memory"};
  use_options(options, source.config);
  source.config.tuning_ms = 0;  // the record of a measurement belongs to files
  const worker::ForeignModel files{{{"symbol_json", std::as_bytes(std::span(graph)), nullptr}, {"params", parameters, nullptr}}};
  SHOAL_ASSIGN_OR_RETURN(worker::Import import,
                         worker::Importer::read(files, worker::ImportLimits::of_mb(source.config.import_mb)));
  const std::shared_ptr<Impl> impl = Impl::make();
  SHOAL_ASSIGN_OR_RETURN(impl->loaded, worker::load_model(source, std::move(import)));
  impl->begin(source.name, options);
  return Engine(impl);
} catch (const std::bad_alloc&) {
  return out_of_memory("loading it", name);
}

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept {
  Engine(std::move(other)).impl_.swap(impl_);
  return *this;
}
// In a forked child the threads are not there, and nobody can wait for them.
Engine::~Engine() {
  if (impl_ && !impl_->fork_guard.in_child()) impl_->close();
}

Result<Tensors> Engine::run(const Tensors& inputs) {
  if (!impl_) return moved_from();
  SHOAL_RETURN_IF_ERROR(impl_->usable());
  const Impl::ContextLoan context(*impl_);
  const worker::RunSettings settings(impl_->loaded.model->threads());
  Ran ran = Ran::kNo;
  return impl_->run(inputs, *context, ran);
}

Client Engine::client() const { return Client(impl_); }

Prediction Engine::submit(std::string_view model, Tensors inputs, const SubmitOptions& options) {
  return impl_ ? client().submit(model, std::move(inputs), options) : completion::failed(moved_from());
}

const std::vector<std::string>& Engine::warnings() const& {
  static const std::vector<std::string> none;
  return impl_ ? impl_->loaded.warnings : none;
}
std::vector<std::string> Engine::ignored_inputs() const {
  return impl_ ? impl_->loaded.model->ignored_inputs() : std::vector<std::string>();
}
std::uint64_t Engine::packed_bytes() const { return impl_ ? impl_->loaded.model->packed_bytes() : 0; }
std::uint64_t Engine::arena_bytes() const { return impl_ ? impl_->loaded.arena_bytes : 0; }

}  // namespace shoal
