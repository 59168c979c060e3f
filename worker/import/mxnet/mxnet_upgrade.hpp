// What MXNet 1.9.1 changes in graphs that older releases wrote, as far as inference sees it.
#pragma once

#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

/// Applies what the symbol's version asks for (a file without one is of 0.8):
///   before 0.8    Pooling computed its output's size by another rule: such nodes are marked. Their writers stored every
///                 attribute, so those that lack `pooling_convention`, and only that, are theirs. Of that age only the size is
///                 kept: values at the border are those of today's Pooling. (MXNet 1.x itself does neither.)
///   before 0.9    auxiliary states, and other inputs that were made when the graph was bound, stood outside the graph: inputs
///                 that a node lacks become variables named <node>_<input>
///   before 0.9.5  axis -1 of argmax and argmin meant all elements: it is taken away
/// Hints of the trainer ("weight_lr_mult") are left; AttributeReader knows them. Source: reference, the upgrade passes.
void upgrade(MxnetSymbol& symbol);

}  // namespace shoal::worker
