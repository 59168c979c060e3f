// Reads an MXNet checkpoint: prefix-symbol.json and prefix-NNNN.params become a Graph.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

struct MxnetImport {
  Graph graph;
  std::vector<std::string> warnings;  ///< superfluous parameters, unknown keys: one line each, naming the file
};

/// Maps the parameter file (constants are views into it), lowers every operator, prunes labels and dead branches.
///   Errors   kNotFound, kDataLoss (file, offset, field), kUnimplemented (operator and node, or the era of the file), kInvalidArgument
///   Threads  thread-safe
///   Source   reference: the MXNet 1.9.1 formats, as docs/design.md describes them
Result<MxnetImport> import_mxnet(const std::filesystem::path& symbol_file, const std::filesystem::path& params_file);

}  // namespace shoal::worker
