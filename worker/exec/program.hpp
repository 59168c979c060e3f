// Program: a model compiled for one set of input shapes and one width. Context: the memory that one thread runs it in.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

/// The running thread asks before each step of a run.
class StopCondition {
 public:
  virtual bool should_stop() = 0;

 protected:
  ~StopCondition() = default;
};

/// A run reports here how far it is, and asks whether to go on. A signal handler or another process may read both atomic words.
struct Progress {
  std::atomic<std::uint64_t>* step_counter = nullptr;  ///< incremented before each step
  std::atomic<const char*> step_name{nullptr};  ///< "Convolution 'conv1'" while that step runs; valid as long as the Program
  StopCondition* stop = nullptr;                ///< borrowed; null: a run is never stopped
  std::atomic<std::uint64_t>* waits_for_device = nullptr;  ///< not 0 while the run waits for a device
  /// Called when a device has failed and the CPU does its work instead; may be empty.
  std::function<void(const Status& why)> on_fallback;

  /// Called before each step. False: the run ends here with kCancelled.
  bool enter_step(const char* name) {
    if (stop != nullptr && stop->should_stop()) return false;
    step_name.store(name, std::memory_order_relaxed);
    if (step_counter != nullptr) step_counter->fetch_add(1, std::memory_order_relaxed);
    return true;
  }
};

/// One step of a Program, for profiles.
struct StepInfo {
  std::string name, implementation;                ///< "Convolution 'conv1'"; "jit:avx512_core", "oracle", "copy"
  double flops = 0;                                ///< as the operator defines it: the same for every algorithm
  double bytes = 0;                                ///< read and written, each byte once, without scratch memory
  bool on_device = false;                          ///< in memory of the model's device, not on the host
  std::vector<std::vector<StepInfo>> bodies = {};  ///< the steps of each body that it runs
};

/// Gives memory for outputs whose sizes are known only when they have been computed.
class OutputSink {
 public:
  /// The memory for output `index`, of the size that dtype and shape say; null only if that is 0. A run asks once for each such
  /// output, after its last step.
  ///   Errors  end the run with this Status. Throws std::bad_alloc
  virtual Result<std::byte*> place(std::size_t index, DType dtype, const Shape& shape) = 0;

 protected:
  ~OutputSink() = default;
};

/// Does its size depend on data?
inline bool is_dynamic(const TensorSpec& output) { return output.shape.element_count() < 0; }

class Program;

/// One thread's activation arena and bindings. Runs any Program of any Model, on one thread at a time.
///   Threads  thread-bound
class Context {
 public:
  Context();
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  void release_memory();                ///< gives all memory back; allocates nothing
  Progress* progress = nullptr;         ///< borrowed; may be null
  OutputSink* sink = nullptr;           ///< borrowed; null: programs with dynamic outputs cannot run
  std::span<std::uint64_t> step_times;  ///< borrowed; one per step, each run adds its nanoseconds; empty: steps are not timed

  struct State;
  std::unique_ptr<State> state;  ///< used by the devices only
};

/// Immutable; any number of threads run one Program, each with its own Context.
class Program {
 public:
  virtual ~Program() = default;
  const std::vector<TensorSpec>& inputs() const { return inputs_; }  ///< concrete shapes, the model's order
  /// A size that depends on data is -1, with a range from 0 to the most that it may be.
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  std::size_t arena_bytes() const { return arena_bytes_; }  ///< activations and scratchpad of one Context
  std::size_t step_count() const { return step_count_; }
  bool time_varies() const {
    return time_varies_;
  }  ///< data decides how often its bodies run: one run may take far longer than another
  virtual std::vector<StepInfo> steps() const { return {}; }  ///< in the order of execution; may be empty
  /// Was machine code generated for its shapes? Otherwise it only says where tensors lie, and is made in a few milliseconds.
  virtual bool has_code() const { return true; }
  /// An estimate of its memory, without the model's packed weights.
  virtual std::size_t resident_bytes() const { return 0; }

  /// Runs once. After the Context's first run of this Program, it takes no lock and makes no allocation of ours.
  ///   src, dst  as inputs() and outputs() say, row-major; copied unless 64-byte aligned. An output whose size depends on
  ///             data has no memory in dst; context.sink gives it, and the run sets its shape and data in dst
  ///   Errors    kInvalidArgument (number, dtype, shape); kCancelled (context.progress->stop ended the run between two steps, or
  ///             while it waited for a device; the content of dst is undefined); what a device says. Throws std::bad_alloc; the
  ///             Context can still be used.
  virtual Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const = 0;
  /// Makes its devices ready to run it in this Context, so that the first run need not.
  ///   Errors  what a device says, if the CPU may not do its work
  virtual Status activate(Context&) const { return {}; }

 protected:
  ///   Errors  kInvalidArgument: names the tensor and the expected dtype and shape
  static Status check(const char* what, std::span<const TensorSpec> specs, std::span<const TensorView> views);

  std::vector<TensorSpec> inputs_, outputs_;
  std::size_t arena_bytes_ = 0, step_count_ = 0;
  bool time_varies_ = false;
};

}  // namespace shoal::worker
