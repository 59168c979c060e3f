// Hashes of data: a model's structure and constants, inputs, records. The home of xxHash.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shoal::worker {

/// XXH3 of pieces of data, 64 bits. Order and borders matter: add(a), add(b) differs from add(b), add(a) and from add(ab). Not
/// secure against forgery.
///   Threads  a value
class ContentHash {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// 128 bits: two pieces of data with equal ones are taken for equal.
struct ContentDigest {
  std::uint64_t high = 0, low = 0;
  friend auto operator<=>(const ContentDigest&, const ContentDigest&) = default;
};

inline constexpr std::size_t kDigestSecretBytes = 192;

/// XXH3. Everybody gets the same for the same bytes. Not secure against forgery.
ContentDigest digest_of(std::span<const std::byte> bytes);
/// The same with a secret: random bytes, without which nobody can look for data that is taken for other data.
ContentDigest digest_of(std::span<const std::byte> bytes, std::span<const std::byte, kDigestSecretBytes> secret);

}  // namespace shoal::worker
