// Reads an MXNet checkpoint: prefix-symbol.json and prefix-NNNN.params become a Graph.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"
#include "worker/import/foreign_file.hpp"

namespace shoal::worker {

struct MxnetImport {
  Graph graph;
  std::set<std::string> auxiliaries;  ///< import_mxnet_symbol(): the inputs that are auxiliary states in the file
  /// import_mxnet(): inputs that look like missing parameters, each with the reason: "which Convolution 'conv0' reads as its
  /// weight".
  std::map<std::string, std::string> missing_parameters;
  std::vector<std::string> warnings;  ///< superfluous parameters, unknown attributes: a few short lines naming file or node
};

/// Reads the files of any release, upgrades the graph, lowers every operator, and removes labels and unused branches. Constants
/// are views into the mapped parameter file where it stores them uncompressed and in row-major order.
///   Errors   kNotFound; kDataLoss (names file, offset, field); kUnimplemented (names operator and node, or a sparse array);
///            kInvalidArgument (attributes, arrays without names or values, the limits)
///   Threads  thread-safe
///   Source   reference: the MXNet 1.9.1 formats, as docs/design.md describes them
Result<MxnetImport> import_mxnet(const std::filesystem::path& symbol_file, const std::filesystem::path& params_file,
                                 const ImportLimits& limits = {});

/// Refuses a parameter file that lacks parameters. The names in `data` are inputs that each request brings, so they are not
/// missing.
///   Errors  kInvalidArgument naming the file, the parameter and the node that reads it
Status check_parameters(const MxnetImport& import, const std::set<std::string>& data, const std::filesystem::path& params_file);

/// Imports the graph without parameters. Every variable except labels is an input; infer_parameters() finds their shapes.
Result<MxnetImport> import_mxnet_symbol(const std::filesystem::path& symbol_file, const ImportLimits& limits = {});
/// As above, from bytes in memory.
Result<MxnetImport> import_mxnet_symbol(const ForeignFile& symbol_file, const ImportLimits& limits = {});

/// The contents of a checkpoint, whether or not Shoal can run it.
struct MxnetSurvey {
  struct Operator {
    std::string name;  ///< in the file
    std::size_t count = 0;
  };
  struct Unsupported {
    std::string op, node, reason;
  };
  int mxnet_version = 0;            ///< 10901 for 1.9.1; 0 when the file does not say
  MxnetImport import;               ///< the supported part: no node produces the outputs of unsupported nodes
  std::vector<Operator> operators;  ///< of the nodes that the outputs need; most frequent first
  std::vector<Unsupported>
      unsupported;  ///< the nodes that cannot be imported, in the file's order; empty if import_mxnet() succeeds
};

/// As import_mxnet(), but lists unsupported nodes instead of failing.
///   Errors  kNotFound, kDataLoss, kUnimplemented (a sparse array), kInvalidArgument: the files are not a graph with parameters
Result<MxnetSurvey> survey_mxnet(const std::filesystem::path& symbol_file, const std::filesystem::path& params_file,
                                 const ImportLimits& limits = {});

}  // namespace shoal::worker
