// Buckets: sizes to which requests are padded, so that few programs serve many sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal {

/// A size between two of `sizes` is padded with zeros up to the next one, and the outputs are cut back; one that is in the list,
/// or above its last, runs as it is.
struct Buckets {
  std::string input;                ///< whose dimension it is; empty: dimension 0 of all inputs where it is open, the batch
  int dim = 0;                      ///< not 0: the user's word that padding changes nothing but the end of `crop`
  std::vector<std::int64_t> sizes;  ///< ascending
  std::map<std::string, int> crop;  ///< output to the dimension of it that follows this one; found by itself for the batch
  friend bool operator==(const Buckets&, const Buckets&) = default;
};

}  // namespace shoal
