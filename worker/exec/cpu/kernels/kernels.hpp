// What the device cpu runs in production beside oneDNN: typed loops over blocks of elements, on all threads of a lane, tested
// against the oracle kernels. docs/operators/types.md shows for which types there are some.
#pragma once

#include <span>

#include "worker/exec/cpu/kernels/loop_step.hpp"
#include "worker/graph/operators.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker::cpu {

/// An input or output of a node. It is dense, and its address comes with each run.
struct TensorType {
  DType dtype = DType::kInvalid;
  Shape shape;
};
using TensorTypes = std::span<const TensorType>;

/// A kernel of an operator.
struct Kernel {
  const Operator* op;
  TypeSet types;  ///< of all inputs and outputs; the operator's rule says which go together
  /// The loop of a node, whose operands are its inputs and then its outputs; an output that nobody reads has no address, and
  /// neither has an input of which only the shape is read. It keeps nothing of `node`. Empty: the node has attributes that the
  /// kernel does not know.
  Loop (*make)(const Node& node, TensorTypes src, TensorTypes dst);
  /// An output may lie in the memory of an input that has its type and shape.
  bool overwrites = false;
  /// Bytes of memory that the loop needs during a run: one operand more, the last one. Null: none.
  std::size_t (*scratch_bytes)(const Node& node, TensorTypes src, TensorTypes dst) = nullptr;
  /// What the elements of the inputs must satisfy, asked before the loop runs: an error ends the run. Null: nothing. It allocates
  /// nothing, and the loop does not rely on it: a client may change its memory meanwhile.
  Status (*check)(const Node& node, TensorTypes src, std::span<std::byte* const> operands) = nullptr;
};

/// The kernel of the operator, or null.
const Kernel* find_kernel(const Operator* op);
std::span<const Kernel> all_kernels();

}  // namespace shoal::worker::cpu
