// The nodes of a model, each with what runs it: for shoal inspect.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/exec/program.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::tool {

struct ListedNode {
  std::string name, op;  ///< as in the model's file
  std::string device;    ///< "cpu"; empty if nothing runs it by itself
  /// "oracle", "kernel", "jit:avx512_core"; "constant": computed at load; "fused": within another node's step; empty: not known,
  /// because the model cannot be loaded.
  std::string by;
  std::string types;    ///< "float32, int64 -> float32"
  std::string missing;  ///< why it cannot be run; empty if it can
};

/// The nodes of `graph`, whose types are inferred, in its order. The nodes of bodies follow the one that runs them:
/// "foreach0/dot1".
///   steps   of its program; null: there is none
///   device  of steps in memory of its own; `host` of the others
std::vector<ListedNode> list_nodes(const worker::Graph& graph, const std::vector<worker::StepInfo>* steps,
                                   std::string_view device, std::string_view host);
/// Says what is missing of those that are listed, and lists the others.
void add_refused(std::span<const worker::RefusedNode> refused, std::vector<ListedNode>& nodes);

}  // namespace shoal::tool
