#include "tools/make_model/rule_fill.hpp"

#include <string>

namespace shoal::make_model {

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

std::uint32_t bits24(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 40);
}

float unit(std::uint64_t seed, std::uint64_t index) { return static_cast<float>(bits24(seed, index)) * 0x1p-23f - 1; }

void fill(std::string_view name, float offset, float scale, std::uint64_t first, std::span<float> out) {
  const std::uint64_t seed = fnv1a(name);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = offset + scale * unit(seed, first + i);
}

void fill_ids(std::string_view name, std::uint64_t count, std::span<float> out) {
  const std::uint64_t seed = fnv1a(name);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(bits24(seed, i) * count >> 24);
}

void fill_picture(std::string_view name, float offset, float scale, std::int64_t blocks, const Shape& shape,
                  std::span<float> out) {
  const std::uint64_t fine = fnv1a(name), coarse = fnv1a(std::string(name) + "/blocks");
  const std::int64_t height = shape[2], width = shape[3], rows = (height + blocks - 1) / blocks,
                     columns = (width + blocks - 1) / blocks;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t plane = at / (height * width), y = at / width % height, x = at % width;
    const std::int64_t square = (plane * rows + y / blocks) * columns + x / blocks;
    out[i] = offset + scale * (unit(fine, i) + unit(coarse, static_cast<std::uint64_t>(square)));
  }
}

}  // namespace shoal::make_model
