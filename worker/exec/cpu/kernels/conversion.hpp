// Conversion: many elements of one type as another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/graph/types.hpp"

namespace shoal::worker::cpu {

/// Elements that are worked on together. Some blocks of 8-byte elements fit into the first cache.
inline constexpr std::int64_t kBlock = 512;
inline constexpr std::size_t kBlockBytes = kBlock * 8;

/// The type in which functions of elements of this type are computed: half types are stored only.
constexpr DType computed_type(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

/// As Cast converts.
///   Threads  immutable
class Conversion {
 public:
  Conversion(DType from, DType to);
  /// The bytes stay as they are.
  bool is_copy() const { return step_count_ == 0; }
  /// src, dst  dense, at any address that the types allow; they may be the same if the types have one size. Not for copies.
  void operator()(const std::byte* src, std::byte* dst, std::int64_t count) const;

 private:
  using Step = void (*)(const std::byte* src, std::byte* dst, std::int64_t count);
  void add(Step step, std::size_t bytes) {
    steps_[step_count_] = step;
    bytes_[step_count_++] = bytes;
  }

  Step steps_[3] = {};
  std::size_t bytes_[3] = {};  ///< of an element behind each step
  std::size_t step_count_ = 0, src_bytes_ = 0;
};

}  // namespace shoal::worker::cpu
