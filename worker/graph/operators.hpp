// Operator: what importers, passes and devices know of one. Each has one home, a file of worker/ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A value as shape rules see it. Its sizes are numbers when a graph is compiled, apart from those that depend on data.
struct TypedValue {
  std::string_view name;  ///< for messages
  DType dtype = DType::kInvalid;
  SymbolicShape shape = SymbolicShape::any();
  DimTable* table = nullptr;  ///< of results: where rules make sizes that depend on data
};
using SourceValues = std::span<const TypedValue>;
using ResultValues = std::span<TypedValue>;

/// Fills `dst` (dtype and shape; one per output of the node, in order) from `src`; attributes come from the node. A rule refuses
/// only what it knows to be wrong (worker/graph/dim.hpp), because it also runs with sizes that are not known yet. It runs again
/// with numbers: in each compilation, and behind values whose size depends on data in each run.
///   Errors  kInvalidArgument or kUnimplemented, the node named
using InferFunction = Status (*)(const Node& node, SourceValues src, ResultValues dst);

/// Changes the types that the inputs of a node have to those in which it reads them. infer() inserts Casts for those that differ.
using PromoteFunction = void (*)(const Node& node, std::span<DType> types);

/// Sets dtype and shape of the `src` whose shape is not known yet (any(), or with a size below 1) from the others, so parameters
/// follow from the data.
using InferParametersFunction = void (*)(const Node& node, std::span<TypedValue> src);

/// Computes one node by plain loops that are easy to verify. `dst` have the shapes and dtypes of infer() and never alias `src`.
/// Hidden outputs that nobody reads have data == nullptr. Inputs may be empty, but not all results (run_oracle()).
///   Threads  thread-safe, no allocation of more than a few rows, single-threaded
using OracleKernel = Status (*)(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst);

/// Runs the bodies of a node.
///   Threads  thread-bound
class BodyRunner {
 public:
  /// Runs a body, of which `src` are the first inputs: the captures need not be given. `dst`: all its outputs. May be called
  /// again and again. `src` and `dst` do not overlap; they lie at any addresses that are aligned for their elements.
  ///   Errors  those of the body's nodes; kCancelled
  virtual Status run(std::size_t body, std::span<const TensorView> src, std::span<TensorView> dst) = 0;

 protected:
  ~BodyRunner() = default;
};

/// What the operator gives a body as its first inputs: dtype and shape of each. `src`: the inputs of the operator itself.
///   Errors  as InferFunction
using BodyInputsFunction = Result<std::vector<TypedValue>> (*)(const Node& node, SourceValues src, std::size_t body);
/// Memory that a run needs beside its outputs; `data` is not set. infer() has run for the bodies of the node.
using BodyScratchFunction = std::vector<TensorView> (*)(const Node& node, std::span<const TensorView> src);
/// Computes a node by running its bodies, which `node` does not have any more. `src`: the inputs of the operator itself. `dst`
/// and `scratch` never alias them. Of a result whose size depends on data it sets the shape.
///   Errors   those of the bodies
///   Threads  thread-safe; allocates nothing
using BodyKernel = Status (*)(const Node& node, BodyRunner& bodies, std::span<const TensorView> src, std::span<TensorView> dst,
                              std::span<TensorView> scratch);

/// Of operators that run graphs: If, Loop, Scan. Every backend on the host runs them by `run`, with bodies that it has compiled.
struct BodyRules {
  int count = 0;  ///< 0: the operator has none
  /// The inputs of the operator itself, which captures follow.
  std::size_t (*own_inputs)(const Node& node) = nullptr;
  BodyInputsFunction inputs = nullptr;
  BodyScratchFunction scratch = nullptr;  ///< null: none
  BodyKernel run = nullptr;
};

/// What infer() does with constants whose floating-point type differs from that of the data.
enum class ConstantTypes : std::uint8_t {
  kKept,        ///< keeps them
  kAsData,      ///< converts them to the type of the first input that depends on data
  kAtLeastF32,  ///< like kAsData, but to float32 if the data is narrower: scale and shift of a normalization. If no input
                ///< depends on data, the first one decides and keeps its type
};

/// The number of inputs or outputs of an operator.
struct Arity {
  static constexpr int kAny = -1;
  int least = 1, most = 1;  ///< most: kAny if there is no limit
  constexpr Arity() = default;
  constexpr Arity(int exactly) : least(exactly), most(exactly) {}  // NOLINT(google-explicit-constructor): a number is an arity
  constexpr Arity(int least, int most) : least(least), most(most) {}
  bool holds(std::size_t count) const {
    return std::cmp_greater_equal(count, least) && (most == kAny || std::cmp_less_equal(count, most));
  }
  bool is_fixed() const { return least == most; }
  std::string to_text() const;  ///< "2", "2 to 3", "1 or more"
};

/// Which inputs of a node hold the rows of a batch, one behind the other along dimension 0.
struct BatchedNode {
  const Graph& graph;
  const Node& node;
  const std::vector<bool>& has_rows;  ///< per value

  int rank() const { return graph.value(node.inputs[0]).shape.rank(); }  ///< of the first input
  bool has_rows_in(std::size_t input) const { return has_rows[static_cast<std::size_t>(node.inputs[input])]; }
  bool only_first_has_rows() const;
  /// Broadcasting aligns the last dimensions. If an input has fewer dimensions than the result, its batch would be another axis.
  bool rows_align(std::size_t input) const;
  /// Is `axis` (which may be negative) the dimension of the rows?
  bool is_of_rows(std::int64_t axis) const { return axis == 0 || axis == -rank(); }
};
/// Does row i of each output depend on row i of the inputs alone?
using RowRule = bool (*)(const BatchedNode& batched);
bool rows_of_first_input(const BatchedNode& batched);  ///< if the others, which are parameters, have no rows
bool rows_of_all_inputs(const BatchedNode& batched);   ///< each row from the same row of every input, always
bool rows_mixed(const BatchedNode& batched);           ///< nothing is promised

/// What the oracle kernel of a node does.
struct Work {
  /// Of elements, at most. Infinite if shapes do not bound them.
  double operations = 0;
  /// Of these, multiplications and additions of products, as the operator defines them. 0: they are none.
  double flops = 0;
};
/// `src`, `dst`: infer() has run; `data` is not read.
using WorkRule = Work (*)(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// A few operations for each element of the inputs and results.
Work work_of_elements(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// A few for each element of the results. The inputs are copied at most.
Work work_of_results(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// A product of the first two inputs, in which each index is in at least two of a, b and the result.
Work work_of_product(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// Each element of the result is a product with a row of the second input.
Work work_of_weights(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// Of square matrices, the first input.
Work work_of_factorization(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
/// At most each element with each: windows, boxes.
Work work_of_pairs(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
Work work_without_bound(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);
double elements_of(std::span<const TensorView> tensors);  ///< together

enum class Fact : std::uint8_t { kUnstated, kNo, kYes };

/// What bf16 does to results.
enum class Accuracy : std::uint8_t {
  kUnstated,
  kKept,  ///< each element comes from few elements, or from a sum in float32: the error is that of one rounding
  kLost,  ///< errors of the inputs may grow
};

/// What passes and devices may rely on. Every operator states each of them; a test finds one that does not.
struct Facts {
  static constexpr int kUnstated = -2, kNone = -1;

  /// Batches are joined and padded through nodes that keep rows apart, and no others.
  RowRule rows = nullptr;
  /// The first output has the elements of the first input, some or all, so a device may let it lie in that input's memory.
  Fact is_view = Fact::kUnstated;
  /// The first output has all elements of the first input in their order, so the two differ in their shapes at most.
  bool keeps_order = false;
  /// If all inputs have the shape of the output, each element depends on the elements at its position alone: a kernel may run
  /// over any layout, and over parts.
  Fact is_elementwise = Fact::kUnstated;
  /// The input whose elements are bounds or indices. Its memory may not be a client's, who may change it meanwhile.
  int index_input = kUnstated;
  /// Of this input and of those behind it only sizes and types are read, and only sizes and types of the results depend on them.
  int first_shape_input = kNone;
  WorkRule work = nullptr;
  /// Values of the first kind are stored in bf16 if that is the precision.
  Accuracy accuracy = Accuracy::kUnstated;
  bool reads_elements_of(std::size_t input) const { return first_shape_input < 0 || std::cmp_less(input, first_shape_input); }
};

inline constexpr Facts elementwise_facts(RowRule rows, Accuracy accuracy) {
  return {.rows = rows,
          .is_view = Fact::kNo,
          .is_elementwise = Fact::kYes,
          .index_input = Facts::kNone,
          .work = work_of_elements,
          .accuracy = accuracy};
}
/// It moves elements, or leaves some out.
inline constexpr Facts view_facts(RowRule rows) {
  return {.rows = rows,
          .is_view = Fact::kYes,
          .is_elementwise = Fact::kNo,
          .index_input = Facts::kNone,
          .work = work_of_results,
          .accuracy = Accuracy::kKept};
}
inline constexpr Facts reshape_facts(RowRule rows) {
  Facts facts = view_facts(rows);
  facts.keeps_order = true;
  return facts;
}
inline constexpr Facts indexed_facts(RowRule rows, int index_input, WorkRule work, Accuracy accuracy) {
  return {.rows = rows,
          .is_view = Fact::kNo,
          .is_elementwise = Fact::kNo,
          .index_input = index_input,
          .work = work,
          .accuracy = accuracy};
}
/// Neither: it computes from several elements, or makes a border.
inline constexpr Facts layer_facts(RowRule rows, WorkRule work, Accuracy accuracy) {
  return indexed_facts(rows, Facts::kNone, work, accuracy);
}
/// `facts` of an operator with inputs that only have a shape.
inline constexpr Facts with_shape_inputs(Facts facts, int first) {
  facts.first_shape_input = first;
  return facts;
}

struct OperatorDef {
  std::string_view name;
  Arity inputs = {}, outputs = {};
  const AttributeSchema* attributes = nullptr;  ///< null: none
  InferFunction infer = nullptr;
  InferParametersFunction infer_parameters = nullptr;  ///< null if the operator has no parameters
  ConstantTypes constant_types = ConstantTypes::kKept;
  PromoteFunction promote = nullptr;  ///< null: inputs are read in their own types
  /// Outputs from this one on depend on parameters alone: a BatchNorm's statistics.
  int first_constant_output = Facts::kNone;
  /// Does the node leave sizes of its result to the nodes that read it? Its rule asks for them by size_from_readers(). Null: no
  /// node does.
  bool (*leaves_sizes_open)(const Node& node) = nullptr;
  Facts facts = {};
  OracleKernel oracle = nullptr;  ///< null for operators with bodies
  BodyRules bodies = {};
  const char* formula = "";  ///< for the generated page: inputs with their shapes, and what is computed
  const char* source = "";   ///< where the formula comes from
};

/// One of Shoal's own operators. Importers produce them; no code that uses them knows MXNet or ONNX. Nodes point to it.
class Operator : public OperatorDef {
 public:
  /// Registers it; `file` is the one in which it is made. Aborts if the name is taken, or `infer`, `facts.work`, or `oracle`
  /// and `bodies.run`, are missing.
  /// Operators live as long as the process.
  explicit Operator(const OperatorDef& def, const char* file = __builtin_FILE());
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  /// The file of worker/ops that is its home, without folder and extension.
  std::string_view family() const { return family_; }

 private:
  std::string_view family_;
};

/// Of this node, as its operator says.
bool leaves_sizes_open(const Node& node);

/// Runs the oracle kernel, unless all results are empty: then there is nothing to compute.
Status run_oracle(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst);

/// The operator of that name, or null.
///   Threads  thread-safe once main() runs; operators are registered before
const Operator* find_operator(std::string_view name);
/// All of them, by name.
std::vector<const Operator*> all_operators();

}  // namespace shoal::worker
