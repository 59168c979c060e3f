#include "fetch/digest.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal::fetch {
namespace {

constexpr std::size_t kDigestBytes = 32, kChunkBytes = 1 << 20;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

class Sha256 {
 public:
  Sha256() : context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
    SHOAL_CHECK(context_ && ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1);
  }
  void add(std::string_view bytes) { SHOAL_CHECK(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1); }
  std::string finish() {
    std::string digest(kDigestBytes, '\0');
    SHOAL_CHECK(::EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 digest;
  digest.add(text);
  return digest.finish();
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string digest(kDigestBytes, '\0');
  unsigned size = 0;
  const unsigned char* const made = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text), text.size(),
                                           reinterpret_cast<unsigned char*>(digest.data()), &size);
  SHOAL_CHECK(made && size == kDigestBytes);
  return digest;
}

Result<std::string> sha256_of_file(const std::filesystem::path& file,
                                   const std::function<Status(std::uint64_t done_bytes, std::uint64_t total_bytes)>& go_on) {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile opened, open_regular_file(file));
  std::vector<std::byte> chunk(kChunkBytes);
  Sha256 digest;
  std::uint64_t done_bytes = 0;
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(opened.fd.get(), chunk, file.string()));
    digest.add({reinterpret_cast<const char*>(chunk.data()), size});
    if (size < chunk.size()) return hex(digest.finish());
    done_bytes += size;
    SHOAL_RETURN_IF_ERROR(go_on(done_bytes, opened.size_bytes));
  }
}

}  // namespace shoal::fetch
