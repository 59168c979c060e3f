// Partition: divides the nodes of a graph into parts, each of which one backend runs as a whole.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// What a backend says of each node of a graph.
struct Claims {
  std::vector<std::string> why_not;  ///< per node: empty if the backend takes it, else the reason

  static Claims of_all(const Graph& graph) { return {std::vector<std::string>(graph.nodes.size())}; }
  bool takes(NodeId id) const { return why_not[static_cast<std::size_t>(id)].empty(); }
};

/// Nodes that one backend runs as a whole. They need not be connected.
struct Part {
  std::size_t backend = 0;    ///< an index into the claims
  std::vector<NodeId> nodes;  ///< ascending, which is a topological order
};

/// Each node is in one part. A part reads only values of earlier parts, so the graph of the parts (the quotient) has no cycle.
using Partition = std::vector<Part>;

/// Gives each node to the first backend that takes it, and makes few parts: with one or two backends the fewest that there are,
/// with n at most 1 + (n - 1) * (fewest - 1). Takes time in proportion to n times the nodes and their inputs, and gives the same
/// parts for equal graphs.
///   claims  one per backend, the most preferred first
///   Errors  kUnimplemented: nobody takes a node; names it and each backend's reason
Result<Partition> make_partition(const Graph& graph, std::span<const Claims> claims);

/// Gives a whole part to another backend, and joins it with its neighbors of that backend. The quotient stays acyclic, because
/// the order of the parts stays. To move a single node instead, make a new partition: the order may not hold without it.
void dissolve(Partition& partition, std::size_t part, std::size_t backend);

/// Makes a part's own graph.
///   Threads  immutable
class PartGraphs {
 public:
  /// Both outlive this.
  PartGraphs(const Graph& graph, const Partition& partition);
  /// The nodes of the part over values that have their numbers of the whole graph (those of other parts are empty). Its inputs
  /// are what it reads of other parts and of the graph's inputs, its outputs what others or the graph's outputs read of it; both
  /// ascend.
  Graph of(std::size_t part) const;

 private:
  const Graph& graph_;
  const Partition& partition_;
  std::vector<bool> leaves_part_;  ///< per value: another part than the one that makes it, or an output of the graph, reads it
};

}  // namespace shoal::worker
