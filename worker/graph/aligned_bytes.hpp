// AlignedBytes: heap memory for tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace shoal::worker {

struct AlignedDeleter {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
/// Heap memory on a 64-byte border.
struct AlignedBytes {
  std::unique_ptr<std::byte[], AlignedDeleter> data;
  std::size_t size_bytes = 0;
  static AlignedBytes allocate(std::size_t size_bytes) {
    const std::size_t rounded = (size_bytes + 63) / 64 * 64;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded == 0 ? 64 : rounded));
    if (memory == nullptr) throw std::bad_alloc();
    return {std::unique_ptr<std::byte[], AlignedDeleter>(memory), size_bytes};
  }
  std::span<std::byte> bytes() const { return {data.get(), size_bytes}; }
};

}  // namespace shoal::worker
