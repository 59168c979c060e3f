// Pooling, AdaptiveAvgPooling.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kPooling, kAdaptiveAvgPooling;
}  // namespace ops

enum class PoolingKind { kMax, kAvg, kSum, kLp };
template <>
inline constexpr std::array kWords<PoolingKind>{"max", "avg", "sum", "lp"};
enum class PoolingConvention {
  kValid,  ///< windows that lie within the padded data
  kFull,   ///< like kValid, and one window that overhangs
  kSame,
  kOld,  ///< as kFull, but every window begins within the padded data: MXNet before 0.8
};
template <>
inline constexpr std::array kWords<PoolingConvention>{"valid", "full", "same", "old"};
struct PoolingAttributes {
  PoolingKind kind = PoolingKind::kMax;
  PoolingConvention convention = PoolingConvention::kValid;
  bool global = false;
  Dims kernel, stride, pad;
  std::int64_t p_value = 2;
  bool count_include_pad = true;
  bool channels_last = false;
  bool legacy = false;
};
template <>
inline constexpr auto fields_of<PoolingAttributes> = std::tuple{
    field("kind", &PoolingAttributes::kind, ""),
    field("convention", &PoolingAttributes::convention,
          "windows within the padded data; full: and one that overhangs; old: which begins within it (MXNet before 0.8)"),
    field("global", &PoolingAttributes::global, "one window covers everything"),
    field("kernel", &PoolingAttributes::kernel, "one entry per spatial axis, as the next two; empty when global"),
    field("stride", &PoolingAttributes::stride, ""),
    field("pad", &PoolingAttributes::pad, "before and behind"),
    field("p_value", &PoolingAttributes::p_value, "of lp: 1, 2 or 3"),
    field("count_include_pad", &PoolingAttributes::count_include_pad, "a mean divides by the whole window, padding included"),
    field("channels_last", &PoolingAttributes::channels_last, "the data is (N, spatial, C)"),
    field("legacy", &PoolingAttributes::legacy, "Pooling_v1: zeros in the border for max too, avg divides by the whole kernel"),
};

struct AdaptivePoolingAttributes {
  std::int64_t height = 1, width = 1;
};
template <>
inline constexpr auto fields_of<AdaptivePoolingAttributes> = std::tuple{
    field("height", &AdaptivePoolingAttributes::height, "of the output"),
    field("width", &AdaptivePoolingAttributes::width, "of the output"),
};

}  // namespace shoal::worker
