// The elements of a type as they are computed, block by block: half types become float.
#pragma once

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {

/// Reads and writes blocks of at most kBlock elements. `room` has room for a block.
///   Threads  immutable
template <typename T>
class BlockElements {
 public:
  using X = Compute<T>;

  /// The elements, in `room` or in the tensor itself.
  const X* read(const T* src, std::int64_t count, X* room) const {
    if constexpr (std::is_same_v<X, T>) {
      return src;
    } else {
      widen_(reinterpret_cast<const std::byte*>(src), reinterpret_cast<std::byte*>(room), count);
      return room;
    }
  }
  /// Where to compute a block of a result: in the tensor itself, or in `room`, from which finish() takes it.
  X* place(T* dst, X* room) const {
    if constexpr (std::is_same_v<X, T>)
      return dst;
    else
      return room;
  }
  void finish(const X* room, T* dst, std::int64_t count) const {
    if constexpr (!std::is_same_v<X, T>)
      narrow_(reinterpret_cast<const std::byte*>(room), reinterpret_cast<std::byte*>(dst), count);
  }

 private:
  Conversion widen_{kDTypeOf<T>, kDTypeOf<X>}, narrow_{kDTypeOf<X>, kDTypeOf<T>};
};

}  // namespace shoal::worker::cpu
