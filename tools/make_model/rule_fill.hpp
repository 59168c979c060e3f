// Numbers computed from a name, with the same bits on every machine: weights and inputs of test networks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shoal/tensor.hpp"

namespace shoal::make_model {

/// The 64-bit FNV-1a hash of the bytes.
std::uint64_t fnv1a(std::string_view text);
/// The upper 24 bits of output `index` of splitmix64 seeded with fnv1a.
std::uint32_t bits24(std::uint64_t seed, std::uint64_t index);
/// bits24 in [-1, 1), exact in float32.
float unit(std::uint64_t seed, std::uint64_t index);

/// Element i = offset + scale * unit(name, first + i), rounded after each operation.
void fill(std::string_view name, float offset, float scale, std::uint64_t first, std::span<float> out);
/// Element i = floor(bits24(name, i) * count / 2^24).
void fill_ids(std::string_view name, std::uint64_t count, std::span<float> out);
/// Pictures (n, c, h, w): noise on squares of `blocks` pixels, offset + scale * (unit(name, i) + unit(name + "/blocks", square)).
void fill_picture(std::string_view name, float offset, float scale, std::int64_t blocks, const Shape& shape,
                  std::span<float> out);

}  // namespace shoal::make_model
