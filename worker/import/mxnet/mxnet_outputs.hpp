// The names of values, as MXNet's get_internals lists them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

/// "conv1_output", "split_output2", "bn_var"; a variable's is its own.
///   count  how many outputs the node has
std::string mxnet_output_name(const MxnetNode& node, std::size_t output, std::size_t count);

/// The value that may have this name: whether a node has one output or several is known only when it has been lowered. The
/// heads come first, then what they need.
std::optional<MxnetEntry> find_mxnet_output(const MxnetSymbol& symbol, std::string_view name);

/// The names of what the heads need, as far as the file tells them.
std::vector<std::string> mxnet_internals(const MxnetSymbol& symbol);

}  // namespace shoal::worker
