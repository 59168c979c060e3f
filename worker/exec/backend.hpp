// Backend: what runs parts of a graph. One implementation per value of the key `device`, registered by its own file.
//
// It works in two phases. Before the fork, in the zygote, it claims nodes and prepares parts; no driver of any device is touched
// there. After the fork, in a worker, each lane opens a queue to the device, and activates the prepared parts on it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/exec/choices.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/types.hpp"
#include "worker/partition/partition.hpp"

namespace shoal::worker {

struct ModelOptions;

/// One lane's way to a device with memory of its own. What it is given runs in order, while the lane goes on. Made after the
/// fork. The destructor ends what still runs.
///   Threads  thread-bound
class Queue {
 public:
  virtual ~Queue() = default;
  /// Makes the device's memory for activations at least that large; content and addresses may change. Called while nothing runs.
  /// The host may not touch what it returns.
  ///   Errors  kFailedPrecondition: no memory; then the memory stays as it was
  virtual Result<std::byte*> reserve(std::size_t bytes) = 0;
  /// Begins a copy to or from the device. The host's memory stays valid and untouched until finish().
  virtual Status copy_in(std::byte* device, std::span<const std::byte> host) = 0;
  virtual Status copy_out(std::span<std::byte> host, const std::byte* device) = 0;
  /// Returns a descriptor (borrowed) that becomes readable when all that the queue was given has ended. finish() comes next.
  virtual int start() = 0;
  /// Once that descriptor is readable. Returns the first error since the last finish().
  virtual Status finish() = 0;
  /// What has not begun need not run any more: nobody wants the results.
  virtual void cancel() = 0;
};

/// A step that runs on a device with memory of its own.
class DeviceStep : public Step {
 public:
  using Step::Step;
  /// Makes it ready to run, after the fork, on a lane's queue. `queue` and `weights`, which are sealed, outlive the result.
  ///   Errors  why the device cannot run it
  virtual Result<std::unique_ptr<BoundStep>> activate(Queue& queue, const WeightStore& weights) const = 0;
  std::unique_ptr<BoundStep> bind() const final;  ///< of steps on the host; aborts
};

/// What a process that uses a device may do beyond running on the CPU.
struct SandboxProfile {
  std::vector<std::string> device_nodes;  ///< files that it opens for reading and writing: "/dev/nvidia0"
  std::vector<unsigned> ioctls;           ///< commands
};

/// The types for which a backend has something faster than the oracle kernel of an operator.
struct TypeSupport {
  const Operator* op = nullptr;
  std::string by;               ///< "oneDNN", "kernel", "view"
  TypeSet types;                ///< of all inputs and outputs
  TypeSet widened = Types<>();  ///< computed in float32 between casts
};

/// Threads: thread-safe
class Backend {
 public:
  virtual ~Backend() = default;
  /// Everything of the backend that packed weights and results depend on: library, version, instruction set, width.
  virtual std::string identity() const = 0;
  /// Which nodes it takes, with these shapes and types, and why not the others. infer() has run.
  virtual Claims claim(const Graph& graph) const = 0;
  /// Makes the steps of a part, all nodes of which it claims. Before the fork, and in a worker when a new shape comes. Constants
  /// are read from `weights`, or added to it before it is sealed. The store keeps the constants that it needs alive; it does not
  /// refer to `part`.
  ///   part     a whole graph, or one of PartGraphs: node numbers may differ from those of the graph, value numbers do not
  ///   Errors   kUnimplemented, kInvalidArgument: operator and node named; kFailedPrecondition: an entry of `weights` has another
  ///            size than the part's constant. Throws std::bad_alloc. Then nothing is added to `weights`
  virtual Result<Plan> prepare(const Graph& part, WeightStore& weights, const Choices& choices) const = 0;

  /// Does it compute in memory that the host cannot touch? Then its plans have only steps that are a DeviceStep.
  virtual bool has_own_memory() const { return false; }
  /// For a backend with memory of its own, after the fork.
  ///   Errors  why the device cannot be used
  virtual Result<std::unique_ptr<Queue>> open_queue() const;

  /// The choices that are worth measuring. The first is the one taken without measuring; those of one layout are ordered by
  /// preference, best first.
  virtual std::vector<Choices> variants() const { return {}; }
  /// For each operator, in the order in which they are tried. A node with attributes or shapes that all decline runs by its
  /// oracle kernel nevertheless.
  virtual std::vector<TypeSupport> type_table() const { return {}; }
  /// In which plans with these choices are computed; never kAuto. A backend that lacks a precision takes a better one.
  virtual Precision precision_of(const Choices&) const { return Precision::kF32; }
  virtual int threads() const { return 1; }  ///< the threads of this process that one run uses
  /// Sets what its runs need in the calling thread. Called by each thread before it compiles or runs.
  virtual void enter_thread() const {}
};

using Backends = std::vector<std::shared_ptr<const Backend>>;
using MakeBackend = Result<std::shared_ptr<const Backend>> (*)(const ModelOptions& options);

/// Registers a backend: a static object in the file that implements it.
struct BackendRegistration {
  /// Aborts if the name is taken.
  BackendRegistration(std::string_view name, MakeBackend make, SandboxProfile sandbox = {});
};

/// The backends of a model on `options.device`, the most preferred first. The last one is on the host and takes every node: the
/// device itself, or `cpu`, which runs what a device with memory of its own does not take.
///   Errors  kInvalidArgument: names the known devices
Result<Backends> make_backends(const ModelOptions& options);
/// "cpu, cpu-reference": the devices that this program knows.
std::string known_devices();
/// What the backend of that name may do. Empty for an unknown one.
SandboxProfile sandbox_profile(std::string_view device);
/// The device nodes of all backends that this program knows.
std::vector<std::string> all_device_nodes();

}  // namespace shoal::worker
