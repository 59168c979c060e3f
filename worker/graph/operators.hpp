// The operator set: one entry per operator, found by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Fills `dst` (dtype and shape; one per output of the node, in order) from `src`; attributes come from the node.
///   Errors  kInvalidArgument or kUnimplemented, the node named
using InferFunction = Status (*)(const Node& node, std::span<const Value* const> src, std::span<Value* const> dst);

/// Sets dtype and shape of those `src` whose shape is not known yet (rank 0, or a dimension -1) from the others: how parameters
/// follow from the data.
using InferParametersFunction = void (*)(const Node& node, std::span<Value* const> src);

/// What infer() does with constants whose floating-point type is not that of the data.
enum class ConstantTypes : std::uint8_t {
  kKept,        ///< read as they are
  kAsData,      ///< converted to the type of the first input that is no constant
  kAtLeastF32,  ///< as kAsData, but float32 where the data is narrower: scale and shift of a normalisation
};

/// An operator of Shoal's own: importers lower to these, and nothing behind them knows MXNet or ONNX.
struct Operator {
  std::string name;
  int min_inputs = 1, max_inputs = 1;  ///< max -1: any number
  int output_count = 1;                ///< -1: as many as the node has
  InferFunction infer = nullptr;
  ConstantTypes constant_types = ConstantTypes::kKept;
  InferParametersFunction infer_parameters = nullptr;  ///< may be null: the operator has no parameters
  bool is_row_wise = false;  ///< of one that is registered: row i of its output is made of row i of its first input
};

/// The operator of that name, or null.
///   Threads  thread-safe once main() runs; registration happens before
const Operator* find_operator(std::string_view name);
/// All of them, by name.
std::vector<const Operator*> all_operators();
/// Adds one (test operators of shoal-worker-faulty; accelerators' custom ones). Aborts if the name is taken.
void register_operator(Operator op);

}  // namespace shoal::worker
