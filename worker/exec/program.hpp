// Program: a model compiled for one set of input shapes and one width; Context: what one thread needs to run it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

/// Asked before each step of a run, by the thread that runs.
class StopCondition {
 public:
  virtual bool should_stop() = 0;

 protected:
  ~StopCondition() = default;
};

/// Where a run tells the outside how far it is, and asks whether to go on. Both atomic words may be read by a signal handler or
/// another process.
struct Progress {
  std::atomic<std::uint64_t>* step_counter = nullptr;  ///< incremented before each step
  std::atomic<const char*> step_name{nullptr};         ///< "Convolution 'conv1'" while it runs; static for the Program's life
  StopCondition* stop = nullptr;                       ///< borrowed; null: nobody stops a run

  /// Before each step. False: the run ends here, with kCancelled.
  bool enter_step(const char* name) {
    if (stop != nullptr && stop->should_stop()) return false;
    step_name.store(name, std::memory_order_relaxed);
    if (step_counter != nullptr) step_counter->fetch_add(1, std::memory_order_relaxed);
    return true;
  }
};

/// One step of a Program, for profiles.
struct StepInfo {
  std::string name, implementation;  ///< "Convolution 'conv1'"; "jit:avx512_core", "reference", "copy"
  double flops = 0;                  ///< as the operator defines them: the same for every algorithm
  double bytes = 0;                  ///< of what it reads and writes, each once, without scratch memory
};

class Program;

/// One thread's activation arena and bindings; used with any Program of any Model, by one thread at a time.
///   Threads  thread-bound
class Context {
 public:
  Context();
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  Progress* progress = nullptr;         ///< borrowed; may be null
  std::span<std::uint64_t> step_times;  ///< borrowed; one per step: each run adds its nanoseconds. Empty: nothing is timed

  struct State;
  std::unique_ptr<State> state;  ///< the backends' own
};

/// Immutable; any number of threads run one Program, each with its own Context.
class Program {
 public:
  virtual ~Program() = default;
  const std::vector<TensorSpec>& inputs() const { return inputs_; }  ///< concrete shapes, the model's order
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  std::size_t arena_bytes() const { return arena_bytes_; }  ///< activations and scratchpad of one Context
  std::size_t step_count() const { return step_count_; }
  virtual std::vector<StepInfo> steps() const { return {}; }  ///< in the order they run; empty where there is nothing to tell
  /// What it holds in memory beside the model's packed weights, as far as can be told.
  virtual std::size_t resident_bytes() const { return 0; }

  /// Runs once. No lock and no allocation of ours after the Context's first run of this Program.
  ///   src, dst  as inputs() and outputs() say, row-major, 64-byte aligned for zero copy, else copied
  ///   Errors    kInvalidArgument (number, dtype, shape); kCancelled (context.progress->stop said so between two steps: dst holds
  ///             anything). Throws std::bad_alloc; the Context is good for other runs then.
  virtual Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const = 0;

 protected:
  ///   Errors  kInvalidArgument: the tensor, and what it should be
  static Status check(const char* what, std::span<const TensorSpec> specs, std::span<const TensorView> views);

  std::vector<TensorSpec> inputs_, outputs_;
  std::size_t arena_bytes_ = 0, step_count_ = 0;
};

}  // namespace shoal::worker
