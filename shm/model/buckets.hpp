// Buckets: requests are padded to a few sizes, so that few programs serve many sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal {

/// A size between two of `sizes` is padded with zeros to the larger one, and the outputs are cut back. A size that is in the
/// list, or above the last one, runs unpadded.
struct Buckets {
  std::string input;                   ///< that is padded; empty: the batch, which is dimension 0 of all inputs where it is open
  int dim = 0;                         ///< not 0: the user promises that padding changes only the end of the outputs in `crop`
  std::vector<std::int64_t> sizes;     ///< ascending
  std::vector<std::string> with = {};  ///< further inputs, of places: they are padded together with `input`, with -1
  std::map<std::string, int> crop;     ///< output -> its dimension that is cut back; found automatically for the batch
  friend bool operator==(const Buckets&, const Buckets&) = default;
};

}  // namespace shoal
