// How each MXNet operator becomes Shoal operators: the table, and the hook to add to it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/graph/graph.hpp"
#include "worker/import/mxnet/attribute_reader.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

inline constexpr ValueId kNoValue = -1;  ///< an output that exists in MXNet and is not computed

/// Memory that values named after a node take, each: old and new when their vector grows, the name, who refers to it.
constexpr std::uint64_t value_bytes(std::string_view node_name) { return 3 * sizeof(Value) + 64 + node_name.size(); }

/// One node on its way into the graph.
struct MxnetLowering {
  Graph& graph;
  const MxnetNode& node;
  AttributeReader& attributes;
  MemoryBudget& budget;
  std::vector<ValueId> inputs;  ///< those that the operator uses; labels are not among them

  /// Appends a node of that Shoal operator, named as the MXNet node. `outputs` counts only where the operator leaves it open.
  /// Returns its outputs; none when the budget does not allow them, which `attributes` then says.
  std::vector<ValueId> add(std::string_view shoal_operator, Attributes attributes, std::vector<ValueId> sources,
                           std::size_t outputs = 1);
  /// As above, on all inputs.
  std::vector<ValueId> add(std::string_view shoal_operator, Attributes attributes = {}) {
    return add(shoal_operator, std::move(attributes), inputs);
  }
};

/// An operator of MXNet, or another name of one.
struct MxnetOperator {
  std::string name;
  int min_inputs = 1, max_inputs = 1;  ///< in the file; max -1: any number
  int used_inputs = -1;                ///< only the first so many are read (a label is not); -1: all
  /// Reads every attribute through `lowering.attributes` (errors go there too) and returns all outputs of the MXNet operator.
  std::function<std::vector<ValueId>(MxnetLowering& lowering)> lower;
  int first_auxiliary = -1;               ///< inputs from here on are auxiliary states; -1: none
  std::vector<std::string> output_names;  ///< as list_outputs has them; empty: "output", or "output0", "output1", ...
  std::vector<std::string> parameters;    ///< what the inputs from 1 on are, where they are parameters: "weight", "bias"
  std::string alias_of;                   ///< the operator that this is another name of; empty: a name of its own
};

/// The operator of that name or alias, or null.
const MxnetOperator* find_mxnet_operator(std::string_view name);
/// All of them, aliases included, by name.
std::vector<const MxnetOperator*> all_mxnet_operators();
/// Adds one. Aborts if the name is taken. Before main() starts threads.
void register_mxnet_operator(MxnetOperator op);

// The built-in operators, by file.
std::vector<MxnetOperator> layer_operators();
std::vector<MxnetOperator> elementwise_operators();
std::vector<MxnetOperator> movement_operators();
std::vector<MxnetOperator> reduction_operators();

/// `op` under each of these names; the others are aliases of the first.
void add_aliases(std::vector<MxnetOperator>& operators, MxnetOperator op, const std::vector<std::string>& names);

}  // namespace shoal::worker
