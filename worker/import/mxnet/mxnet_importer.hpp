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
#include "worker/import/mxnet/foreign_file.hpp"

namespace shoal::worker {

struct MxnetImport {
  Graph graph;
  std::set<std::string> auxiliaries;  ///< of import_mxnet_symbol(): the inputs that are auxiliary states in the file
  /// Inputs of import_mxnet() that are parameters by all signs, and by which: "which Convolution 'conv0' reads as its weight".
  std::map<std::string, std::string> missing_parameters;
  std::vector<std::string> warnings;  ///< superfluous parameters, unknown keys: a few short lines, naming file or node
};

/// Reads files of any era, upgrades the graph, lowers every operator, prunes labels and dead branches. Constants are views into
/// the mapped parameter file wherever it stores them plainly.
///   Errors   kNotFound; kDataLoss (file, offset, field); kUnimplemented (operator and node, or a sparse array); kInvalidArgument
///            (attributes, arrays without names or values, the limits)
///   Threads  thread-safe
///   Source   reference: the MXNet 1.9.1 formats, as docs/design.md describes them
Result<MxnetImport> import_mxnet(const std::filesystem::path& symbol_file, const std::filesystem::path& params_file,
                                 const ImportLimits& limits = {});

/// Refuses a file that lacks parameters. An input that looks like one is none when it is among `data`: someone says that it is
/// given with each request.
///   Errors  kInvalidArgument naming the file, the parameter and who reads it
Status check_parameters(const MxnetImport& import, const std::set<std::string>& data, const std::filesystem::path& params_file);

/// The graph alone: every variable but the labels is an input, so infer_parameters() can tell their shapes.
Result<MxnetImport> import_mxnet_symbol(const std::filesystem::path& symbol_file, const ImportLimits& limits = {});
/// The same of bytes in memory.
Result<MxnetImport> import_mxnet_symbol(const ForeignFile& symbol_file, const ImportLimits& limits = {});

/// What a checkpoint is made of, whether or not Shoal can run it.
struct MxnetSurvey {
  struct Operator {
    std::string name;  ///< in the file
    std::size_t count = 0;
  };
  struct Unsupported {
    std::string op, node, reason;
  };
  int mxnet_version = 0;            ///< 10901 for 1.9.1; 0 when the file does not say
  MxnetImport import;               ///< as far as it goes: nothing produces the outputs of unsupported nodes
  std::vector<Operator> operators;  ///< of the nodes that the outputs need, the most frequent first
  std::vector<Unsupported>
      unsupported;  ///< every node that cannot be imported, in the order of the file; empty: import_mxnet() succeeds
};

/// As import_mxnet(), but goes on at nodes that are not supported and lists them.
///   Errors  kNotFound, kDataLoss, kUnimplemented (a sparse array), kInvalidArgument: no graph at all can be made of the files
Result<MxnetSurvey> survey_mxnet(const std::filesystem::path& symbol_file, const std::filesystem::path& params_file,
                                 const ImportLimits& limits = {});

}  // namespace shoal::worker
