// Device: what turns a graph of known shapes into a Plan. One implementation per word that `device` may say.
#pragma once

#include <memory>
#include <string>

#include "worker/exec/choices.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Threads: thread-safe
class Device {
 public:
  virtual ~Device() = default;
  /// What packed weights and results depend on: library, version, instruction set, width.
  virtual std::string identity() const = 0;
  /// The Plan for this graph, whose shapes are inferred. Constants are taken from, or (before it is sealed) added to, `weights`;
  /// the fills refer to `graph`'s constants by shared ownership, not to `graph`.
  ///   Errors  kUnimplemented, kInvalidArgument: operator and node named
  virtual Result<Plan> compile(const Graph& graph, WeightStore& weights, const Choices& choices) const = 0;
  /// What is worth measuring, the one taken without measuring first; those of one layout by falling preference.
  virtual std::vector<Choices> variants() const { return {}; }
  virtual int threads() const { return 1; }  ///< the width
  /// Sets the calling thread's width. Once per thread that compiles or runs.
  virtual void enter_thread() const = 0;
};

struct DeviceOptions {
  int threads = 1;
  bool fuse = true;
  bool winograd = false;  ///< algorithms that round differently from direct ones are among the variants
};

/// `options` as ModelOptions says.
///   Errors  kInvalidArgument: names the devices there are
Result<std::unique_ptr<Device>> make_device(const std::string& name, const DeviceOptions& options);
/// Every node by its reference kernel, in plain layout, in every dtype.
std::unique_ptr<Device> make_reference_device();

}  // namespace shoal::worker
