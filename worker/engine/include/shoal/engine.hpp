// Engine: runs a model in this process, with the same code as the pool's workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/client.hpp"

namespace shoal {

struct EngineOptions {
  StructSize<EngineOptions> struct_size{};
  Text device;             ///< "cpu" or "cpu-reference"; empty = as model.toml says
  Text precision;          ///< "f32", "f32-fast", "bf16" or "auto"; empty = as model.toml says
  int threads = 0;         ///< cores per run; 0 = as model.toml says
  int contexts = 1;        ///< runs at the same time, each with its own activation arena
  int queue_limit = 1024;  ///< submitted requests that may wait; submit() answers one more with kOverloaded at once. At least 1
  int tuning_ms = -1;      ///< how long load() may measure algorithms; 0 = not at all, -1 = as model.toml says, 10 s by default
  /// Input sets to compile at load; empty = as model.toml says. The first decides the weight layouts. If there is only one, it
  /// may have open sizes (-1), as `inputs` in model.toml.
  List<List<TensorSpec>> shapes;
};

/// Called about ten times a second, by Engine::load(), while it measures which algorithms are fastest on this machine: the first
/// load of a model does, for at most `budget` (model.toml's tuning_ms). If it throws, measuring ends, and load() returns
/// kInternal with the exception's text.
using OnMeasuring = std::function<void(std::chrono::milliseconds spent, std::chrono::milliseconds budget)>;

/// One model in this process: one copy of its weights, `contexts` runs at a time over one program. Outputs are bit-equal to the
/// pool's for the same shapes and choices of algorithms. Let its threads sleep between runs: shoal/passive_openmp.hpp. load() and
/// run() leave the calling thread as it was: its OpenMP width, its floating-point environment. While they run, it has the
/// floating-point environment that a program starts with. The same holds for the calling thread's OpenMP threads, of which run()
/// uses as many as EngineOptions::threads says. GNU OpenMP ends those beyond that number, and starts new ones with the settings
/// of the thread that next needs them. The engine's own threads have the environment that a program starts with, and block all
/// signals that are not their own faults. load(), and a run() of a new shape, empty oneDNN's cache of primitives, which a process
/// has only one of, and restore its capacity. An application that uses oneDNN 2 itself keeps its primitive objects, but the next
/// ones that it makes are compiled anew. An Engine that was moved from answers kFailedPrecondition, and so does one of the parent
/// in a forked child, which has none of its threads: load the model again there.
///   Threads  thread-safe
class Engine {
 public:
  /// `path` is a prefix, prefix@epoch, a directory, or "builtin:identity". The first load of a model on a machine measures which
  /// algorithms are fastest, in a child that this call waits for and reaps. The child is a fork of this process. A process with
  /// threads must not fork: there it is the program shoal-worker, which loads the model as well, and lies beside this library's
  /// package in libexec/shoal. Measuring usually takes `tuning_ms`, at most three times as long, and in a shoal-worker 30 s more
  /// to load, but at most `load_timeout_s`. The result is written under $SHOAL_CACHE_DIR, else $XDG_CACHE_HOME/shoal, else
  /// ~/.cache/shoal, and every later load reads it, also in the pool. If none of these can be written, nothing is measured.
  ///   Errors  kNotFound, kInvalidArgument, kUnimplemented, kDataLoss: file, node or key named; kFailedPrecondition: out of
  ///           memory; kInternal: on_measuring threw
  static Result<Engine> load(const std::string& path, const EngineOptions& options = {}, const OnMeasuring& on_measuring = {});
  /// The same for a model in memory. There is no model.toml, so `options.shapes` says which shapes the inputs have. Algorithms
  /// are not measured.
  ///   name        of the model, for messages and describe()
  ///   graph       the text of NAME-symbol.json
  ///   parameters  the bytes of NAME-0000.params
  static Result<Engine> load_bytes(std::string_view name, std::string_view graph, std::span<const std::byte> parameters,
                                   const EngineOptions& options = {});

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();  ///< waits for requests that run; requests that wait end with kCancelled

  /// Runs on the calling thread once a context is free.
  ///   inputs   one per model input, any order; labels are ignored. A state that is left out is zeros
  ///   Errors   kInvalidArgument: names the input; kFailedPrecondition: out of memory
  Result<Tensors> run(const Tensors& inputs);
  /// Runs on one of the engine's own threads; each call starts one until there are `contexts`. `model` is this model's name, or
  /// empty. Inputs are copied unless they are loans (Client::loan()); run() reads them where they lie.
  ///   Errors   kNotFound (another name or version), kOverloaded (`queue_limit` requests wait; Outcome::retry_after says when to
  ///            try again), kDeadlineExceeded (before it began), kCancelled, kInternal (no thread can be started), and those of
  ///            run()
  Prediction submit(std::string_view model, Tensors inputs, const SubmitOptions& options = {});
  /// Submits one request and waits for its outputs.
  Result<Tensors> predict(std::string_view model, Tensors inputs, const SubmitOptions& options = {}) {
    return submit(model, std::move(inputs), options).get();
  }
  Result<ModelInfo> describe(std::string_view model = {}, std::uint64_t version = 0) { return client().describe(model, version); }

  /// This engine for code that takes any Client: handles of models, completion queues, coroutines.
  Client client() const;
  operator Client() const { return client(); }  // NOLINT(google-explicit-constructor): an Engine is one

  /// Warnings of load(), such as unused parameters.
  const std::vector<std::string>& warnings() const&;
  std::vector<std::string> warnings() && { return std::as_const(*this).warnings(); }
  /// Inputs that a request may bring, and that have no effect: the labels of training.
  std::vector<std::string> ignored_inputs() const;
  std::uint64_t packed_bytes() const;  ///< weights, shared by all contexts
  std::uint64_t arena_bytes() const;   ///< activations of one context

 private:
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace shoal
