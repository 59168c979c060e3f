#include "worker/graph/content_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace shoal::worker {
namespace {

static_assert(kDigestSecretBytes >= XXH3_SECRET_SIZE_MIN);

ContentDigest to_digest(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

// Each piece is hashed with the hash so far as its seed. So the borders between pieces count, and no state of XXH3 is kept.
void ContentHash::add(std::span<const std::byte> bytes) { hash_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash_); }

ContentDigest digest_of(std::span<const std::byte> bytes) { return to_digest(XXH3_128bits(bytes.data(), bytes.size())); }

ContentDigest digest_of(std::span<const std::byte> bytes, std::span<const std::byte, kDigestSecretBytes> secret) {
  return to_digest(XXH3_128bits_withSecret(bytes.data(), bytes.size(), secret.data(), secret.size()));
}

}  // namespace shoal::worker
