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

/// Sets dtype and shape of the `src` whose shape is not known yet (rank 0, or a dimension -1) from the others, so parameters
/// follow from the data.
using InferParametersFunction = void (*)(const Node& node, std::span<Value* const> src);

/// What infer() does with constants whose floating-point type differs from that of the data.
enum class ConstantTypes : std::uint8_t {
  kKept,        ///< keeps them
  kAsData,      ///< converts them to the type of the first input that depends on data
  kAtLeastF32,  ///< like kAsData, but to float32 if the data is narrower: scale and shift of a normalization. If no input
                ///< depends on data, the first one decides and keeps its type
};

/// One of Shoal's own operators. Importers produce them; no code that uses them knows MXNet or ONNX.
struct Operator {
  std::string name;
  int min_inputs = 1, max_inputs = 1;  ///< max -1: any number
  int output_count = 1;                ///< -1: as many as the node has
  InferFunction infer = nullptr;
  ConstantTypes constant_types = ConstantTypes::kKept;
  InferParametersFunction infer_parameters = nullptr;  ///< null if the operator has no parameters
  int bounds_input = -1;                               ///< the input whose elements are used as bounds or indices; -1: none
  bool is_row_wise =
      false;  ///< row i of the output depends only on row i of the first input; set by add-on operators (built-ins: padding.cpp)
};

/// The operator of that name, or null.
///   Threads  thread-safe once main() runs; operators are registered before
const Operator* find_operator(std::string_view name);
/// All of them, by name.
std::vector<const Operator*> all_operators();
/// Adds an operator (tests' operators of shoal-worker-faulty, custom ones of accelerators). Aborts if the name is taken.
void register_operator(Operator op);

}  // namespace shoal::worker
