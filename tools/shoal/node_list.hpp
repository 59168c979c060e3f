// The nodes of a model, each with what runs it: for shoal inspect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/exec/program.hpp"
#include "worker/graph/graph.hpp"
#include "worker/import/importer.hpp"

namespace shoal::tool {

struct ListedNode {
  std::string name, op;  ///< as in the model's file
  std::string device;    ///< "cpu"; empty if nothing runs it by itself
  /// "oracle", "kernel", "jit:avx512_core"; "constant": computed at load; "fused": within another node's step; empty: not known,
  /// because the model cannot be loaded.
  std::string by;
  std::string types;    ///< "float32, int64 -> float32"
  std::string missing;  ///< why it cannot be imported; empty if it can
};

/// The nodes of `graph`, whose types are inferred, in its order, then the unsupported ones. Nodes of bodies are not listed.
///   steps   of its program; empty: there is none
///   device  of steps in memory of its own; `host` of the others
std::vector<ListedNode> list_nodes(const worker::Graph& graph, const std::vector<worker::StepInfo>& steps,
                                   std::string_view device, std::string_view host,
                                   const std::vector<worker::Survey::Unsupported>& unsupported);

}  // namespace shoal::tool
