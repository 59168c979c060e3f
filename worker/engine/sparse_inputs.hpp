// Sparse inputs: requests bring their parts as ordinary tensors.
#pragma once

#include <string>

#include "shm/model/model_config.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Replaces each input that `sparse` of model.toml names by its parts, in `graph` and in `config`:
///
///   csr         NAME.values (n), NAME.indptr (rows + 1) and NAME.indices (n)
///   row_sparse  NAME.values (n, ...) and NAME.indices (n)
///
/// The indices are int64, unless `inputs` gives NAME.indptr or NAME.indices another type. A run checks them. Values and indices
/// of csr are padded to the next of a few sizes, so that few programs serve all numbers of values.
///   where   names the model in errors
///   Errors  kInvalidArgument: an input that the model does not have, or whose shape is not known, or fits no such storage
Status take_sparse_inputs(ModelConfig& config, Graph& graph, const std::string& where);

/// A note on an input that the graph has sparse, and requests dense.
std::string describe_dense_input(const std::string& name, const std::string& storage);

}  // namespace shoal::worker
