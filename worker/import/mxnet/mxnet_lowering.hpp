// The table of MXNet operators: how each becomes Shoal operators. Others can be registered.
#pragma once

#include <functional>
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

/// One MXNet node that is being lowered.
struct MxnetLowering {
  Graph& graph;
  const MxnetNode& node;
  AttributeReader& attributes;
  MemoryBudget& budget;
  std::vector<ValueId> inputs;  ///< the inputs that the operator uses, without labels

  /// Appends a node of that operator with the MXNet node's name. `outputs` is used only for operators without a fixed
  /// number of outputs. Returns the outputs. Returns none when they are over the budget; `attributes` then has the error.
  std::vector<ValueId> add(const Operator& op, Attributes attributes, std::vector<ValueId> sources, std::size_t outputs = 1);
  /// As above, on all inputs.
  std::vector<ValueId> add(const Operator& op, Attributes attributes = {}) { return add(op, std::move(attributes), inputs); }
  /// Checks that the attribute `key`, if the file has it, is the number of inputs.
  void check_input_count(const char* key);
};

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

/// Adds `op` under each of these names. The first is its main name.
void add_aliases(std::vector<MxnetOperator>& operators, MxnetOperator op, const std::vector<std::string>& names);

}  // namespace shoal::worker
