// The graph of a -symbol.json file, before lowering.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/import/foreign_file.hpp"

namespace shoal::worker {

/// A reference to output number `output` of node `node`; hidden outputs count.
struct MxnetEntry {
  std::size_t node = 0;
  std::size_t output = 0;
};

struct MxnetSymbol;

/// One node; op "null" is a variable.
struct MxnetNode {
  std::string op;
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<MxnetEntry> inputs;
  std::vector<MxnetSymbol> subgraphs;  ///< of control flow; each has variables of its own
  std::uint64_t offset = 0;            ///< in the file; of nodes in a subgraph, that of the outermost node
  bool has_param = false;              ///< attributes are under "param": written before 0.9
  bool is_old_pooling = false;         ///< a Pooling written before 0.8, when its output size followed another rule
  bool np_shape = false;               ///< as of the symbol
  bool is_variable() const { return op == "null"; }
};

/// All references are to existing nodes, and there are no cycles.
struct MxnetSymbol {
  std::vector<MxnetNode> nodes;  ///< in the file's order, which need not be topological
  std::vector<MxnetEntry> heads;
  std::uint64_t heads_offset = 0;  ///< in the file
  int version = 0;                 ///< 10901 for 1.9.1; 0 when the file does not say
  bool np_shape = false;           ///< true: in `__shape__`, 0 is a size and -1 is unknown; false: both are unknown
};

/// Reads the JSON of any release, with node attributes under "attrs", "attr" or "param", and upgrades the graph as MXNet 1.9.1
/// does (mxnet_upgrade.hpp).
///   Errors  kNotFound; kDataLoss naming file, offset, node and field (not JSON, not a graph, a reference to a node that does not
///           exist, a cycle); kInvalidArgument: over the limits
Result<MxnetSymbol> read_mxnet_symbol(const std::filesystem::path& path, const ImportLimits& limits = {});
/// As above, from bytes in memory and within the budget of an import.
Result<MxnetSymbol> parse_mxnet_symbol(const ForeignFile& file, MemoryBudget& budget);

/// How many inputs of a node are followed.
using MxnetReads = std::size_t (*)(const MxnetNode& node);
std::size_t all_inputs(const MxnetNode& node);

/// The nodes that these heads need. Every node comes after the nodes it reads, in the order of MXNet's list_arguments. Inputs
/// that are not followed are labels.
std::vector<std::size_t> post_order(const MxnetSymbol& symbol, std::span<const MxnetEntry> heads, MxnetReads reads);
/// The variables of a symbol, in the order of MXNet's list_inputs.
std::vector<std::size_t> list_variables(const MxnetSymbol& symbol);
/// Calls f(node) for these nodes of the symbol, and for those that the heads of their subgraphs need.
void for_each_node(const MxnetSymbol& symbol, std::span<const std::size_t> nodes, MxnetReads reads,
                   const std::function<void(const MxnetNode&)>& f);

}  // namespace shoal::worker
