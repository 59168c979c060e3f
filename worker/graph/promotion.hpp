// The type in which operands of different types meet, by the rule of MXNet's NumPy interface.
#pragma once

#include <array>
#include <span>

#include "worker/graph/attribute_fields.hpp"

namespace shoal::worker {

/// What the inputs of a node become before it reads them.
enum class Promotion {
  kNone,     ///< nothing
  kCommon,   ///< their common type
  kNumbers,  ///< their common type, and bools become int64
  kReals,    ///< their common type, and integers and bools become float32
  kWidest,   ///< int64 or float64, by their common type
};
template <>
inline constexpr std::array kWords<Promotion>{"none", "common", "numbers", "reals", "widest"};

/// The type of them all: a float wins over an integer, anything over a bool, and else the wider type. kInvalid if there is none,
/// as for int8 and uint8.
DType common_type(std::span<const DType> types);
/// As above, by one of these rules.
DType promoted_type(Promotion promotion, std::span<const DType> types);
/// Sets all to their promoted type, if there is one and the promotion is not kNone. For OperatorDef::promote.
void promote_all(Promotion promotion, std::span<DType> types);

}  // namespace shoal::worker
