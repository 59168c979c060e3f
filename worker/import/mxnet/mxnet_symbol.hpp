// The graph of a -symbol.json file, before lowering.
#pragma once

#include <filesystem>
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

/// One node; op "null" is a variable.
struct MxnetNode {
  std::string op;
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<MxnetEntry> inputs;
  std::uint64_t offset = 0;     ///< in the file
  bool has_param = false;       ///< attributes are under "param": written before 0.9
  bool is_old_pooling = false;  ///< a Pooling written before 0.8, when its output size followed another rule
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

/// The nodes that these heads need. Every node comes after the nodes it reads, in the order of MXNet's list_arguments. `reads`
/// returns how many inputs of a node are followed; the others are labels.
std::vector<std::size_t> post_order(const MxnetSymbol& symbol, std::span<const MxnetEntry> heads,
                                    std::size_t (*reads)(const MxnetNode& node));

}  // namespace shoal::worker
