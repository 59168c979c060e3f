// The fingerprint of a symbol: do two files hold the same graph?
#pragma once

#include <string>

#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

/// "mxnet1:" and 32 digits. Equal for graphs that do the same by the same names, however their files are written: operators,
/// names, attributes, inputs, subgraphs and outputs count. What orders or surrounds them does not: the order of keys and of
/// nodes, nodes that no output needs, hidden attributes (`__lr_mult__`, `__shape__`) and hints for the trainer, the version.
/// Another release that computes it otherwise writes another number before the colon.
std::string fingerprint(const MxnetSymbol& symbol);

}  // namespace shoal::worker
