// ProgramBuilder: compiles graphs of known shapes into programs for a model's backends: partition, prepare, link.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/exec/backend.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/planned_program.hpp"

namespace shoal::worker {

///   Threads  thread-safe
class ProgramBuilder {
 public:
  ///   backends  as make_backends() gives them
  ProgramBuilder(Backends backends, Fallback fallback) : backends_(std::move(backends)), fallback_(fallback) {}

  const Backend& host() const { return *backends_.back(); }
  bool has_devices() const { return backends_.size() > 1; }
  std::string identity() const;  ///< of all backends
  void enter_thread() const;

  /// The nodes that the host will run, as a graph: what is worth measuring. infer() has run.
  ///   Errors  those of make_partition()
  Result<Graph> host_graph(const Graph& graph) const;

  /// Partitions the graph, for which infer() has run, and prepares each part. If the host runs the whole graph, the program is
  /// its plan as it is. Otherwise, with Fallback::kCpu, the program also has a plan for the host alone.
  ///   notes   gets a line for each part that a device refused and the host runs instead
  ///   Errors  those of make_partition(), Backend::prepare() and link_parts(). Then nothing is added to `weights`
  Result<std::shared_ptr<const PlannedProgram>> build(const Graph& graph, const std::shared_ptr<WeightStore>& weights,
                                                      const Choices& choices, std::vector<std::string>& notes) const;

 private:
  Result<Partition> partition(const Graph& graph) const;
  Result<Plan> prepare(const Graph& graph, WeightStore& weights, const Choices& choices, std::vector<std::string>& notes) const;
  std::size_t host_index() const { return backends_.size() - 1; }

  Backends backends_;
  Fallback fallback_;
};

}  // namespace shoal::worker
