// Many requests of one thread, which waits for a descriptor: what they cost the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct CompletionOptions {
  std::string model;  ///< of the daemon in $SHOAL_DIR
  std::size_t in_flight = 10'000;
  std::uint64_t requests = 20'000;
};

/// Keeps `in_flight` reusable requests with loaned inputs under way until `requests` are answered. Prints JSON: requests a
/// second, the share of a core that this process took, how long the model ran, threads, tensor bytes that were copied, and by how
/// much this process's memory grew per request after the first tenth.
///   Errors  the first request that fails
Status bench_completions(const CompletionOptions& options);

}  // namespace shoal::bench
