// ModelKind: how the files of one format are named, which is all that finding a model needs to know of the format.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace shoal {

/// A model is PREFIX and the endings of one kind. The reader of a format registers its kind (worker/import/importer.hpp).
struct ModelKind {
  std::string_view name;          ///< "mxnet"
  std::string_view title;         ///< "MXNet": for users
  std::string_view graph_suffix;  ///< PREFIX and this are the file with the graph: "-symbol.json"
  /// PREFIX-NNNN and this are files with the parameters, ".params". NNNN, with at least four digits, is the epoch after which
  /// they were saved, and `PREFIX@N` names one of them. Empty: the graph's file holds the parameters, and there are no epochs.
  std::string_view weights_suffix = {};
  /// PREFIX and these are further files that belong to the model if they exist: ".onnx.data".
  std::vector<std::string_view> data_suffixes = {};
};

/// `kind` lives as long as the process. Aborts if another one has its name or its graph_suffix. Call it before main() starts
/// threads.
void register_model_kind(const ModelKind& kind);
/// All of them, by name.
std::vector<const ModelKind*> model_kinds();
/// The kind of which a file of that name is the graph: of several, the one with the longest graph_suffix. Null if there is none.
const ModelKind* kind_of(std::string_view graph_file);
/// Is there a file with the graph of a model of this prefix, of any kind?
bool is_model_prefix(const std::filesystem::path& prefix);

}  // namespace shoal
