// The changes that MXNet 1.9.1 makes to graphs of older releases, as far as they matter for inference.
#pragma once

#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

/// Applies the changes that the symbol's version needs. A file without a version counts as 0.8.
///   before 0.8    Pooling computed the size of its output by another rule. Such nodes are marked. Releases before 0.8 stored
///                 every attribute, so a node that has all of them except `pooling_convention` is one of theirs. Only the size
///                 follows the old rule; values at the border are those of today's Pooling. (MXNet 1.x itself does neither.)
///   before 0.9    The graph did not contain auxiliary states and other inputs that were created when the graph was bound. The
///                 missing inputs of a node become variables named <node>_<input>.
///   before 0.9.5  axis -1 of argmax and argmin meant all elements. The attribute is removed.
/// Hints for the trainer ("weight_lr_mult") stay; AttributeReader ignores them. Source: reference, the upgrade passes.
void upgrade(MxnetSymbol& symbol);

}  // namespace shoal::worker
