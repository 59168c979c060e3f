// Softmax.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kSoftmax;
}  // namespace ops

enum class SoftmaxKind { kSoftmax, kLogSoftmax, kSoftmin };
template <>
inline constexpr std::array kWords<SoftmaxKind>{"softmax", "log_softmax", "softmin"};
struct SoftmaxAttributes {
  SoftmaxKind kind = SoftmaxKind::kSoftmax;
  std::int64_t axis = -1;
  bool flatten_rest = false;
  int least_rank = 1;
  double temperature = 1;
  bool use_length = false;
  std::optional<DType> dtype;
};
template <>
inline constexpr auto fields_of<SoftmaxAttributes> = std::tuple{
    field("kind", &SoftmaxAttributes::kind, ""),
    field("axis", &SoftmaxAttributes::axis, "over which each sum is 1"),
    field("flatten_rest", &SoftmaxAttributes::flatten_rest,
          "runs over all axes after the first together (SoftmaxOutput's default)"),
    field("least_rank", &SoftmaxAttributes::least_rank, "of the data"),
    field("temperature", &SoftmaxAttributes::temperature, "divides the data"),
    field("use_length", &SoftmaxAttributes::use_length, "the second input has lengths: its shape is the data's without `axis`"),
    field("dtype", &SoftmaxAttributes::dtype, "of the output; none: the data's"),
};

}  // namespace shoal::worker
