// The graph of a -symbol.json file, as it stands there.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/import/mxnet/foreign_file.hpp"

namespace shoal::worker {

/// One use of an output: of node `node`, output `output` in its full list, hidden ones included.
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
  bool has_param = false;       ///< written before 0.9: operator attributes stood under "param"
  bool is_old_pooling = false;  ///< a Pooling written before 0.8, which had another rule for the size of its output
  bool is_variable() const { return op == "null"; }
};

/// All references lie within `nodes` and no node depends on itself.
struct MxnetSymbol {
  std::vector<MxnetNode> nodes;  ///< in the file's order, which need not be topological
  std::vector<MxnetEntry> heads;
  std::uint64_t heads_offset = 0;  ///< in the file
  int version = 0;                 ///< 10901 for 1.9.1; 0 when the file does not say
  bool np_shape = false;           ///< in `__shape__` 0 is a size and -1 unknown; without, both are unknown
};

/// Reads JSON of any era, with node attributes under "attrs", "attr" or "param", and upgrades it as MXNet 1.9.1 does
/// (mxnet_upgrade.hpp).
///   Errors  kNotFound; kDataLoss naming file, offset, node and field (no JSON, no graph, a reference beyond the nodes, a cycle);
///           kInvalidArgument: over the limits
Result<MxnetSymbol> read_mxnet_symbol(const std::filesystem::path& path, const ImportLimits& limits = {});
/// The same of bytes in memory, as part of an import.
Result<MxnetSymbol> parse_mxnet_symbol(const ForeignFile& file, MemoryBudget& budget);

/// The nodes that the heads need, every node behind those it reads: MXNet's order of list_arguments. `reads` says how many inputs
/// of a node count; the rest (labels) are not followed.
std::vector<std::size_t> post_order(const MxnetSymbol& symbol, std::size_t (*reads)(const MxnetNode& node));

}  // namespace shoal::worker
