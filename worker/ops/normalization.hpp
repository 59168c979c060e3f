// BatchNorm, LayerNorm, GroupNorm, LRN, L2Normalization.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kBatchNorm, kLayerNorm, kGroupNorm, kLrn, kL2Normalization;
}  // namespace ops

struct BatchNormAttributes {
  double eps = 1e-3;
  bool fix_gamma = true;
  std::int64_t axis = 1;
};
template <>
inline constexpr auto fields_of<BatchNormAttributes> = std::tuple{
    field("eps", &BatchNormAttributes::eps, "added to the variance"),
    field("fix_gamma", &BatchNormAttributes::fix_gamma, "gamma counts as 1, whatever its value"),
    field("axis", &BatchNormAttributes::axis, "of the channels"),
};

struct LayerNormAttributes {
  std::int64_t axis = -1;
  double eps = 1e-5;
};
template <>
inline constexpr auto fields_of<LayerNormAttributes> = std::tuple{
    field("axis", &LayerNormAttributes::axis, "along which mean and variance are taken"),
    field("eps", &LayerNormAttributes::eps, "added to the variance"),
};

struct GroupNormAttributes {
  std::int64_t groups = 1;
  double eps = 1e-5;
  bool gives_variance = false;
};
template <>
inline constexpr auto fields_of<GroupNormAttributes> = std::tuple{
    field("groups", &GroupNormAttributes::groups, "into which the channels are divided; 0: each channel is one (InstanceNorm)"),
    field("eps", &GroupNormAttributes::eps, "added to the variance"),
    field("gives_variance", &GroupNormAttributes::gives_variance, "the third output is the variance, without eps, not its root"),
};

struct LrnAttributes {
  double alpha = 1e-4, beta = 0.75, knorm = 2;
  std::int64_t nsize = 5;
};
template <>
inline constexpr auto fields_of<LrnAttributes> = std::tuple{
    field("alpha", &LrnAttributes::alpha, "factor of the mean of squares"),
    field("beta", &LrnAttributes::beta, "exponent"),
    field("knorm", &LrnAttributes::knorm, "added to it"),
    field("nsize", &LrnAttributes::nsize, "channels in a window"),
};

enum class L2NormalizationMode { kInstance, kChannel, kSpatial };
template <>
inline constexpr std::array kWords<L2NormalizationMode>{"instance", "channel", "spatial"};
struct L2NormalizationAttributes {
  double eps = 1e-10;
  L2NormalizationMode mode = L2NormalizationMode::kInstance;
};
template <>
inline constexpr auto fields_of<L2NormalizationAttributes> = std::tuple{
    field("eps", &L2NormalizationAttributes::eps, "added to the sum"),
    field("mode", &L2NormalizationAttributes::mode,
          "the sum runs over everything but the batch, over axis 1, or over the axes behind it"),
};

}  // namespace shoal::worker
