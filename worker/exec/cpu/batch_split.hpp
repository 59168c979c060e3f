// Which first part of a graph is better run image by image than for a whole batch at once.
#pragma once

#include <cstdint>

#include "worker/graph/graph.hpp"

namespace shoal::worker::cpu {

/// The graph's nodes before `cut` are run for one image after the other, so that what passes between them stays in the cache and
/// their concatenations cost nothing; the others are run for the whole batch, so that their weights are read once.
struct BatchSplit {
  NodeId cut = 0;           ///< 0: nothing is to be run image by image
  std::int64_t images = 1;  ///< the first dimension of every value before the cut
};
/// Nodes are taken while images do not mix and a convolution's weights are smaller than what it reads and writes of one image.
/// The cut is where a single value passes. Nothing is split where the batch fits into the cache anyway.
BatchSplit find_batch_split(const Graph& graph);

/// The nodes before the cut for one image. Values and nodes keep their numbers; the outputs are the values that pass the cut.
Graph one_image(const Graph& graph, const BatchSplit& split);

}  // namespace shoal::worker::cpu
