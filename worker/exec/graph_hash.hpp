// hash_graph: 64 bits of a model's structure and constants.
#pragma once

#include <cstdint>

namespace shoal::worker {

struct Graph;

/// Hashes operators, names, attributes, edges and the bytes of every constant that is read. Not secure against forgery.
std::uint64_t hash_graph(const Graph& graph);

}  // namespace shoal::worker
