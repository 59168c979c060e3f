// Activation, LeakyReLU, HardSigmoid.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kActivation, kLeakyRelu, kHardSigmoid;
}  // namespace ops

enum class ActivationKind { kRelu, kSigmoid, kTanh, kSoftRelu, kSoftSign };
template <>
inline constexpr std::array kWords<ActivationKind>{"relu", "sigmoid", "tanh", "softrelu", "softsign"};
struct ActivationAttributes {
  ActivationKind kind = ActivationKind::kRelu;
};
template <>
inline constexpr auto fields_of<ActivationAttributes> = std::tuple{
    field("kind", &ActivationAttributes::kind, ""),
};

enum class LeakyKind { kLeaky, kPrelu, kElu, kSelu, kGelu };
template <>
inline constexpr std::array kWords<LeakyKind>{"leaky", "prelu", "elu", "selu", "gelu"};
struct LeakyAttributes {
  LeakyKind kind = LeakyKind::kLeaky;
  double slope = 0.25;
};
template <>
inline constexpr auto fields_of<LeakyAttributes> = std::tuple{
    field("kind", &LeakyAttributes::kind, ""),
    field("slope", &LeakyAttributes::slope, "of leaky and elu"),
};

struct HardSigmoidAttributes {
  double alpha = 0.2, beta = 0.5;
};
template <>
inline constexpr auto fields_of<HardSigmoidAttributes> = std::tuple{
    field("alpha", &HardSigmoidAttributes::alpha, "slope"),
    field("beta", &HardSigmoidAttributes::beta, "value at 0"),
};

/// The shape of a PReLU's slopes with the axes of the data: the extents on axes 0 and 1, and 1 on the others. As in MXNet, the
/// last extent belongs to axis 1 if it is as long as that axis (or 1), otherwise to axis 0. Empty when the slopes do not fit.
std::optional<SymbolicShape> slopes_along(const SymbolicShape& slopes, const SymbolicShape& data);

}  // namespace shoal::worker
