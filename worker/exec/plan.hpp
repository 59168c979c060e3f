// Plan: the steps and buffers that backends make of a graph of known shapes, or of a part of one. Memory is laid out later.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/program.hpp"
#include "worker/exec/weight_form.hpp"
#include "worker/graph/aligned_bytes.hpp"

namespace shoal::worker {

class Backend;
struct Progress;

using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

/// The memory that a buffer lies in, and where a step runs: kHost, or s > 0 for that of Plan::devices[s - 1].
using Space = int;
inline constexpr Space kHost = 0;

/// Memory that steps read and write. A buffer with a parent is a part of the parent (concatenation without a copy, a view).
struct Buffer {
  enum class Home : unsigned char {
    kArena,    ///< in the Context's arena; laid out by the memory plan
    kInput,    ///< input number `index` of the run
    kOutput,   ///< output number `index` of the run
    kWeights,  ///< entry number `index` of the model's WeightStore
    kPrivate,  ///< number `index` of the Plan's own constants
  };
  Space space = kHost;  ///< of devices, only kArena is used
  Home home = Home::kArena;
  int index = 0;
  std::size_t bytes = 0;
  BufferId parent = kNoBuffer;
  std::size_t offset_bytes = 0;  ///< within the parent
  /// Where the Shape of a value whose size depends on data lies in a run; the value's own bytes have room for the largest one.
  BufferId shape_slot = kNoBuffer;
  bool holds_bounds =
      false;  ///< a step takes bounds or indices from it: it may not become an output, because clients can write those
};

/// A Step with the addresses of one Context. Threads: thread-bound
class BoundStep {
 public:
  virtual ~BoundStep() = default;
  /// `operands` in the order of Step::operands(). Called before the first run, and when inputs or outputs have other addresses.
  virtual void set_addresses(std::span<std::byte* const> operands) = 0;
  /// Does the work, or gives it to a device's queue.
  virtual Status run() = 0;
  /// The descriptor that must be readable before run(), for which the caller waits; -1: none.
  virtual int start() { return -1; }
  Progress* progress = nullptr;  ///< of this run; may be null. A step that runs steps reports there and asks whether to go on
};

/// One piece of work. Immutable; all Contexts share it.
class Step {
 public:
  Step(std::string name, std::vector<BufferId> operands) : name_(std::move(name)), operands_(std::move(operands)) {}
  virtual ~Step() = default;
  const std::string& name() const { return name_; }  ///< "Convolution 'conv1'"
  const std::vector<BufferId>& operands() const {
    return operands_;
  }  ///< everything it reads and writes, scratch memory included
  /// "oracle", "copy", or oneDNN's name of the implementation.
  virtual std::string implementation() const = 0;
  /// Multiplications and additions of one run, as the operator defines them; 0 for steps that only move bytes.
  virtual double flops() const { return 0; }
  /// The steps of each of its bodies.
  virtual std::vector<std::vector<StepInfo>> body_steps() const { return {}; }
  virtual std::unique_ptr<BoundStep> bind() const = 0;
  /// Is there machine code that was generated for it?
  virtual bool has_code() const { return true; }
  /// Memory beyond what a step of its kind takes: that of programs within it.
  virtual std::size_t resident_bytes() const { return 0; }
  /// kHost, or that of the device that runs it: then it is a DeviceStep.
  Space space() const { return space_; }
  void set_space(Space space) { space_ = space; }
  /// Makes it a step of a larger plan, in which its operand `id` is new_ids[id].
  void renumber(std::span<const BufferId> new_ids) {
    for (BufferId& operand : operands_) {
      if (operand != kNoBuffer) operand = new_ids[static_cast<std::size_t>(operand)];
    }
  }

 private:
  std::string name_;
  std::vector<BufferId> operands_;
  Space space_ = kHost;
};

struct Plan {
  std::vector<TensorSpec> inputs, outputs;  ///< concrete, the model's order; a size that depends on data is -1 with a range
  std::vector<Buffer> buffers;
  std::vector<std::unique_ptr<Step>> steps;  ///< in the order of execution
  /// An output whose size depends on data. It is copied to where the caller wants it when the run ends.
  struct DynamicOutput {
    std::size_t index;
    BufferId buffer;  ///< has a slot
  };
  std::vector<DynamicOutput> dynamic_outputs;
  /// A step for which the device had several algorithms.
  struct Tunable {
    std::size_t step = 0;
    std::string key, implementation;  ///< as in Choices
  };
  std::vector<Tunable> tunables;
  /// A constant in a form that this Plan needs and the packed weights lack. Key and form as in WeightEntry.
  struct Private {
    std::string key;
    WeightForm form;
    AlignedBytes memory;
  };
  std::vector<Private> privates;
  std::vector<std::shared_ptr<const Backend>> devices;  ///< those with memory of their own that steps run on
  bool has_bodies = false;                              ///< of steps: data decides which of them run, and how often

  BufferId add_buffer(std::size_t bytes, Buffer::Home home = Buffer::Home::kArena, int index = 0) {
    buffers.push_back({.home = home, .index = index, .bytes = bytes});
    return static_cast<BufferId>(buffers.size()) - 1;
  }
  BufferId add_part(BufferId parent, std::size_t offset_bytes, std::size_t bytes) {
    buffers.push_back({.bytes = bytes, .parent = parent, .offset_bytes = offset_bytes});
    return static_cast<BufferId>(buffers.size()) - 1;
  }
  Buffer& buffer(BufferId id) { return buffers[static_cast<std::size_t>(id)]; }
  const Buffer& buffer(BufferId id) const { return buffers[static_cast<std::size_t>(id)]; }
};

}  // namespace shoal::worker
