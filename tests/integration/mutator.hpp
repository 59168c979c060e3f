// Makes slightly wrong messages from correct ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace shoal::test {

using Bytes = std::vector<std::byte>;

/// Changes bits, bytes and numbers, cuts or extends the end, and inserts pieces of other messages.
class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, unsigned seed) : seeds_(std::move(seeds)), random_(seed) {}
  std::size_t below(std::size_t count) { return random_() % count; }
  const Bytes& seed() { return seeds_[below(seeds_.size())]; }
  Bytes next() {
    Bytes bytes = seed();
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  void change(Bytes& bytes) {
    constexpr std::uint64_t kTelling[] = {0,
                                          1,
                                          63,
                                          64,
                                          4095,
                                          4096,
                                          4097,
                                          1 << 16,
                                          1ull << 31,
                                          1ull << 32,
                                          1ull << 40,
                                          1ull << 63,
                                          (1ull << 63) - 1,
                                          ~0ull,
                                          ~63ull,
                                          1 << 30,
                                          1ull << 62,
                                          255,
                                          256,
                                          257};
    if (bytes.empty()) return;
    const std::size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] ^= std::byte{1} << below(8);
        return;
      case 1:
        bytes[at] = static_cast<std::byte>(random_());
        return;
      case 2: {
        const std::uint64_t value = kTelling[below(std::size(kTelling))];
        const std::size_t start = at & ~std::size_t{7};
        std::memcpy(bytes.data() + start, &value, std::min(std::size_t{1} << below(4), bytes.size() - start));
        return;
      }
      case 3:
        bytes.resize(at);
        return;
      case 4:
        bytes.resize(bytes.size() + below(200), static_cast<std::byte>(random_()));
        return;
      default: {
        const Bytes& other = seed();
        const std::size_t size = std::min({other.size(), bytes.size() - at, 1 + below(32)});
        if (size > 0) std::memcpy(bytes.data() + at, other.data() + below(other.size() - size + 1), size);
      }
    }
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};

}  // namespace shoal::test
