// The table of MXNet operators: how each becomes Shoal operators. Others can be registered.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/graph/graph.hpp"
#include "worker/import/mxnet/attribute_reader.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

inline constexpr ValueId kNoValue = -1;  ///< an output that MXNet has and Shoal does not compute

/// Memory of one value that is named after a node: the value (three times, because vectors grow by copying), its name,
/// references.
constexpr std::uint64_t value_bytes(std::string_view node_name) { return 3 * sizeof(Value) + 64 + node_name.size(); }

/// Takes a warning.
using MxnetWarn = std::function<void(std::string_view text)>;

/// One MXNet node that is being lowered.
struct MxnetLowering {
  Graph& graph;
  const MxnetNode& node;
  AttributeReader& attributes;
  MemoryBudget& budget;
  std::vector<ValueId> inputs;  ///< the inputs that the operator uses, without labels
  MxnetWarn warn = {};          ///< for the nodes of subgraphs; empty: nobody listens

  /// Appends a node of that operator with the MXNet node's name. `outputs` is used only for operators without a fixed
  /// number of outputs. Returns the outputs. Returns none when they are over the budget; `attributes` then has the error.
  std::vector<ValueId> add(const Operator& op, Attributes attributes, std::vector<ValueId> sources, std::size_t outputs = 1);
  /// As above, on all inputs.
  std::vector<ValueId> add(const Operator& op, Attributes attributes = {}) { return add(op, std::move(attributes), inputs); }
  /// Checks that the attribute `key`, if the file has it, is the number of inputs.
  void check_input_count(const char* key);
  /// Lowers what the heads of subgraph number `index` need into `into`, which may be `graph`, and returns them. `arguments`:
  /// values of `into` for the variables of the subgraph, in the order of list_inputs.
  ///   Errors  those of its nodes; kInvalidArgument: it has another number of variables or heads
  Result<std::vector<ValueId>> lower_subgraph(std::size_t index, std::span<const ValueId> arguments, std::size_t heads,
                                              Graph& into);
};

/// A value with the shape of `id` that is made earlier: functions of one tensor keep its shape. For operators that read a shape
/// only, so that nothing is computed for it: exporters write slice_like(anchors, x * 0).
ValueId shape_source(const Graph& graph, ValueId id);

/// An operator of MXNet, or another name of one.
struct MxnetOperator {
  std::string name;
  int min_inputs = 1, max_inputs = 1;  ///< in the file; max -1: any number
  int used_inputs = -1;                ///< the number of inputs that are read, from the first on (labels are not); -1: all
  /// Reads every attribute through `lowering.attributes`, which also takes errors. Returns all outputs of the MXNet operator.
  std::function<std::vector<ValueId>(MxnetLowering& lowering)> lower;
  int first_auxiliary = -1;               ///< this input and those after it are auxiliary states; -1: none
  std::vector<std::string> output_names;  ///< as in list_outputs; empty: "output", or "output0", "output1", ...
  std::vector<std::string> parameters;    ///< the roles of the inputs from 1 on, if they are parameters: "weight", "bias"
  std::string alias_of;                   ///< the operator's main name; empty: this is the main name
};

/// How many inputs of the node are read.
std::size_t used_inputs(const MxnetNode& node);
/// The value of an entry. `reader` is the node that reads it, for errors; `outputs` are those of all nodes.
///   Errors  kDataLoss: there is no such output; kUnimplemented: it is not computed
Result<ValueId> value_of(const MxnetSymbol& symbol, const std::vector<std::vector<ValueId>>& outputs, const MxnetEntry& entry,
                         std::string_view reader);
/// The node's operator, which takes as many inputs as the node has.
Result<const MxnetOperator*> operator_of(const MxnetNode& node);
/// Lowers a node and returns its outputs. `inputs`: those that are read.
Result<std::vector<ValueId>> lower_node(const MxnetOperator& op, const MxnetNode& node, std::vector<ValueId> inputs, Graph& graph,
                                        MemoryBudget& budget, const MxnetWarn& warn);

/// The operator of that name or alias, or null.
const MxnetOperator* find_mxnet_operator(std::string_view name);
/// All of them, aliases included, by name.
std::vector<const MxnetOperator*> all_mxnet_operators();
/// Adds an operator. Aborts if the name exists. Call it before main() starts threads.
void register_mxnet_operator(MxnetOperator op);

// The built-in operators, by file.
std::vector<MxnetOperator> layer_operators();
std::vector<MxnetOperator> elementwise_operators();
std::vector<MxnetOperator> movement_operators();
std::vector<MxnetOperator> reduction_operators();
std::vector<MxnetOperator> math_operators();
std::vector<MxnetOperator> attention_operators();
std::vector<MxnetOperator> numpy_operators();
std::vector<MxnetOperator> numpy_shape_operators();
std::vector<MxnetOperator> numpy_linalg_operators();
std::vector<MxnetOperator> quantized_operators();
std::vector<MxnetOperator> creation_operators();
std::vector<MxnetOperator> indexing_operators();
std::vector<MxnetOperator> shape_operators();
std::vector<MxnetOperator> sequence_operators();
std::vector<MxnetOperator> control_flow_operators();
std::vector<MxnetOperator> vision_operators();
std::vector<MxnetOperator> sparse_operators();

/// The names that MXNet also has with "_sparse_" before them, for the same operator.
std::span<const std::string_view> sparse_aliases();

/// Adds `op` under each of these names. The first is its main name.
void add_aliases(std::vector<MxnetOperator>& operators, MxnetOperator op, const std::vector<std::string>& names);

}  // namespace shoal::worker
