// Engine: a model run in this process, by the same code that runs in the pool's workers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/runner.hpp"

namespace shoal {

struct EngineOptions {
  std::string device;     ///< "cpu" or "cpu-reference"; empty = as model.toml says
  std::string precision;  ///< "f32" or "f32-fast"; empty = as model.toml says
  int threads = 0;        ///< cores per run; 0 = as model.toml says
  int contexts = 1;       ///< runs at the same time, each with its own activation arena
  int tuning_ms = -1;     ///< how long load() may measure algorithms; 0 = not at all, -1 = as model.toml says, 10 s by default
  /// Input sets to compile at load; empty = as model.toml says. The first decides the weight layouts.
  std::vector<std::vector<TensorSpec>> shapes;
  /// Called about ten times a second, by load(), while it measures which algorithms are fastest on this machine: the first load
  /// of a model does, for at most `budget` (model.toml's tuning_ms).
  std::function<void(std::chrono::milliseconds spent, std::chrono::milliseconds budget)> on_measuring = {};
};

/// One model in this process: one copy of its weights, `contexts` runs at a time over one program. Outputs are bit-equal to the
/// pool's for the same shapes and choices of algorithms. Let its threads sleep between runs: shoal/passive_openmp.hpp.
///   Threads  thread-safe
class Engine final : public Runner {
 public:
  /// `path` as everywhere: prefix, prefix@epoch, a directory, or "builtin:identity". The first load of a model on a machine
  /// measures which algorithms are fastest: `tuning_ms` long as a rule, three times as long at most, in a forked child that this
  /// call waits for (and reaps). The result is written under $SHOAL_CACHE_DIR, else $XDG_CACHE_HOME/shoal, else ~/.cache/shoal,
  /// and read by every later load, the pool's too; where none of these can be written nothing is measured.
  ///   Errors  kNotFound, kInvalidArgument, kUnimplemented, kDataLoss: file, node or key named
  static Result<Engine> load(const std::string& path, EngineOptions options = {});

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine() override;  ///< waits for what runs; what waits ends as kCancelled

  /// Runs on the calling thread, as soon as one of the contexts is free.
  ///   inputs   one per model input, any order; labels are ignored
  ///   Errors   kInvalidArgument: names the input
  Result<Tensors> run(const Tensors& inputs);
  /// Runs on one of the engine's own threads, which the first call starts. `model` is this model's name, or empty.
  ///   Errors   kNotFound (another name or version), kDeadlineExceeded (before it began), kCancelled, and those of run()
  Prediction submit(std::string_view model, Tensors inputs, SubmitOptions options = {}) override;
  Result<ModelInfo> describe(std::string_view model = {}, std::uint64_t version = 0) override;

  /// What loading had to say: superfluous parameters and the like.
  const std::vector<std::string>& warnings() const;
  std::uint64_t packed_bytes() const;  ///< weights, shared by all contexts
  std::uint64_t arena_bytes() const;   ///< activations of one context

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal
