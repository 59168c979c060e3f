// Reads an MXNet checkpoint: prefix-symbol.json and prefix-NNNN.params become a Graph.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "shoal/result.hpp"
#include "worker/import/importer.hpp"

namespace shoal::worker {

/// Reads the files of any release (the graph, the parameters), upgrades the graph, lowers every operator, and removes labels and
/// unused branches.
///   survey   filled in, and nodes that are not supported are then no errors; null: they are
///   Errors   those of Importer::read()
///   Threads  thread-safe
///   Source   reference: the MXNet 1.9.1 formats, as docs/design.md describes them
Result<Import> import_mxnet(const ForeignModel& model, const ImportLimits& limits, Survey* survey);

struct MxnetSymbolImport : Import {
  std::set<std::string> auxiliaries;  ///< the inputs that are auxiliary states in the file
};

/// Imports the graph without parameters. Every variable except labels is an input; infer_parameters() finds their shapes.
Result<MxnetSymbolImport> import_mxnet_symbol(const std::filesystem::path& symbol_file, const ImportLimits& limits = {});
/// As above, from bytes in memory.
Result<MxnetSymbolImport> import_mxnet_symbol(const ForeignFile& symbol_file, const ImportLimits& limits = {});

}  // namespace shoal::worker
