// The operator set: one entry per operator, found by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Fills `dst` (dtype and shape; one per output of the node, in order) from `src`; attributes come from the node.
///   Errors  kInvalidArgument or kUnimplemented, the node named
using InferFunction = Status (*)(const Node& node, std::span<const Value* const> src, std::span<Value* const> dst);

/// An operator of Shoal's own: importers lower to these, and nothing behind them knows MXNet or ONNX.
struct Operator {
  std::string name;
  int min_inputs = 1, max_inputs = 1;  ///< max -1: any number
  int output_count = 1;                ///< -1: as many as the node has
  InferFunction infer = nullptr;
};

/// The operator of that name, or null.
///   Threads  thread-safe once main() runs; registration happens before
const Operator* find_operator(std::string_view name);
/// All of them, by name.
std::vector<const Operator*> all_operators();
/// Adds one (test operators of shoal-worker-faulty; accelerators' custom ones). Aborts if the name is taken.
void register_operator(Operator op);

}  // namespace shoal::worker
