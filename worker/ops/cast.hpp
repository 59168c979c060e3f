// Cast, AmpMulticast.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kCast, kAmpMulticast;
}  // namespace ops

struct CastAttributes {
  DType dtype = DType::kFloat32;
  bool floats_only = false;
};
template <>
inline constexpr auto fields_of<CastAttributes> = std::tuple{
    field("dtype", &CastAttributes::dtype, "of the output"),
    field("floats_only", &CastAttributes::floats_only, "amp_cast: other types pass through"),
};

struct MulticastAttributes {
  bool narrow = false;
};
template <>
inline constexpr auto fields_of<MulticastAttributes> = std::tuple{
    field("narrow", &MulticastAttributes::narrow, "to the narrowest of the types, not the widest"),
};

}  // namespace shoal::worker
