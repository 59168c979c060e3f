// AttentionScores, AttentionValues: attention with the vectors of a position side by side.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kAttentionScores, kAttentionValues;
}  // namespace ops

struct AttentionAttributes {
  std::int64_t heads = 1;
  bool is_self = true;
};
template <>
inline constexpr auto fields_of<AttentionAttributes> = std::tuple{
    field("heads", &AttentionAttributes::heads, "into which the last axis is divided"),
    field("is_self", &AttentionAttributes::is_self,
          "query, key and value of a head stand side by side; false: key and value do, and the queries are another tensor"),
};

/// One vector of each head and position: that of head h of sequence n at position t begins at element
/// first + (n * heads + h) * head_stride + t * position_stride.
struct HeadVectors {
  std::int64_t first = 0, count = 0, positions = 0, size = 0;  ///< count: of the heads of all sequences; size: of a vector
  std::int64_t head_stride = 0, position_stride = 0;
};
/// Where they lie in the shape of the first input of AttentionScores, of its last input, and of the first of AttentionValues.
HeadVectors queries_of(const AttentionAttributes& attention, const Shape& first);
HeadVectors keys_of(const AttentionAttributes& attention, const Shape& last);
HeadVectors values_of(const AttentionAttributes& attention, const Shape& first);

}  // namespace shoal::worker
