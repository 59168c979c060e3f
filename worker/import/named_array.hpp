// NamedArray: what files of arrays hold, whatever their format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// How an array is stored. The numbers are those of MXNet's files.
enum class Storage : std::int32_t { kDense = 0, kRowSparse = 1, kCsr = 2 };
std::string_view storage_name(Storage storage);  ///< "csr", "row_sparse", "default"

/// The stored part of an array; the rest are zeros. worker/ops/sparse.hpp says what the parts mean.
struct SparseParts {
  Storage storage = Storage::kCsr;
  Constant values;
  Constant indptr;   ///< of csr: int64 and aligned once make_sparse() has checked it
  Constant indices;  ///< likewise: the columns of csr, the rows of row_sparse
};

/// One array of a file. Its bytes are a view into the file if the file stores them in row-major order. They may lie at any
/// address.
struct NamedArray {
  std::string name;  ///< as stored: "arg:conv0_weight", the key of an archive; empty in a list without names
  Constant array;    ///< dtype kInvalid for a "none" array, which has no value. Of a sparse array: type and shape, without bytes
  std::shared_ptr<SparseParts> sparse = {};  ///< null: the array is dense
};

}  // namespace shoal::worker
