// Splits the bytes of one fuzzer input into packets. Each packet is a 16-bit little-endian length, followed by that many bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shoal::fuzz {

/// The packets of `data`. A length beyond the end means all remaining bytes.
inline std::vector<std::span<const std::byte>> split_packets(std::span<const std::byte> data) {
  std::vector<std::span<const std::byte>> packets;
  while (data.size() >= 2) {
    const auto announced = std::to_integer<std::size_t>(data[0]) | std::to_integer<std::size_t>(data[1]) << 8;
    const std::size_t size = std::min(announced, data.size() - 2);
    packets.push_back(data.subspan(2, size));
    data = data.subspan(2 + size);
  }
  return packets;
}

/// Appends one packet of at most 65535 bytes.
inline void append_packet(std::vector<std::byte>& data, std::span<const std::byte> packet) {
  data.push_back(static_cast<std::byte>(packet.size() & 0xff));
  data.push_back(static_cast<std::byte>(packet.size() >> 8));
  data.insert(data.end(), packet.begin(), packet.end());
}

}  // namespace shoal::fuzz
