// Finds the first part of a graph that runs faster image by image than for a whole batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/graph/graph.hpp"

namespace shoal::worker::cpu {

/// The graph's nodes before `cut` run for one image after the other, so that their values stay in the cache and their
/// concatenations cost nothing. The other nodes run for the whole batch, so that their weights are read once.
struct BatchSplit {
  NodeId cut = 0;           ///< 0: nothing runs image by image
  std::int64_t images = 1;  ///< the first dimension of every value that is read before the cut or passes it
};
/// The first part ends where a node mixes images, or where a convolution's weights are larger than the data that it reads and
/// writes for one image. Only one value passes the cut. Nothing is split if the whole batch fits into the `cache_bytes`
/// of a core.
BatchSplit find_batch_split(const Graph& graph, std::size_t cache_bytes);

/// The nodes before the cut for one image. Values and nodes keep their numbers; the outputs are the values that pass the cut.
Graph one_image(const Graph& graph, const BatchSplit& split);

}  // namespace shoal::worker::cpu
