// NamedArray: what files of arrays hold, whatever their format.
#pragma once

#include <string>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// One array of a file. Its bytes are a view into the file if the file stores them in row-major order. They may lie at any
/// address.
struct NamedArray {
  std::string name;  ///< as stored: "arg:conv0_weight", the key of an archive; empty in a list without names
  Constant array;    ///< dtype kInvalid for a "none" array, which has no value
};

}  // namespace shoal::worker
