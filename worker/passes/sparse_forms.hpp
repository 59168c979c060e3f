// Sparse tensors are computed with as they are stored, where that is possible.
#pragma once

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A graph has a sparse tensor as the result of a CsrToDense or RowsToDense, so every operator can read it. This pass gives those
/// operators that can use them the stored parts instead:
/// - Dot with one csr matrix becomes SparseDot or DotSparse; the other matrix may be row_sparse;
/// - Take along axis 0 of a row_sparse tensor becomes TakeRows;
/// - a function of one number with f(0) = 0, a sum, mean or norm over the axes behind the first of a row_sparse tensor, and
///   RetainRows are computed of the stored values alone, and their result is sparse, too.
/// Whoever else reads the tensor reads it dense: a constant is then made dense by fold_constants(), an input in each run. Runs
/// before infer(), and for bodies, too.
void use_sparse_forms(Graph& graph);

/// What is made dense all the same, a line for each: "csr tensor 'data' (4x1000) is made dense, 16000 bytes". infer() must have
/// run.
std::vector<std::string> describe_dense_forms(const Graph& graph);

}  // namespace shoal::worker
