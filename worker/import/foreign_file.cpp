#include "worker/import/foreign_file.hpp"

#include "shm/base/mapped_file.hpp"

namespace shoal::worker {

Result<ForeignFile> ForeignFile::open(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(auto mapping, MappedFile::open(path));
  const std::span<const std::byte> bytes = mapping->bytes();
  return ForeignFile{path.string(), bytes, std::move(mapping)};
}

Status MemoryBudget::take(std::string_view purpose, std::uint64_t count, std::uint64_t bytes_each) {
  const auto bytes = checked_multiply(count, bytes_each);
  if (!bytes || !fits(taken_bytes_, *bytes, limit_bytes_)) {
    return invalid_argument(
        "{} would take {} times {} bytes of memory; {} of the {} bytes that an import may take (import_mb) are left", purpose,
        count, bytes_each, limit_bytes_ - taken_bytes_, limit_bytes_);
  }
  taken_bytes_ += *bytes;
  return {};
}

Status MemoryBudget::take_asked(std::string_view purpose, std::uint64_t count) {
  if (!fits(asked_, count, kMostAsked)) {
    return invalid_argument(
        "{} would be {}, and attributes of the nodes before ask for {}; those of all nodes may ask for {} outputs and numbers",
        purpose, count, asked_, kMostAsked);
  }
  asked_ += count;
  return {};
}

Result<std::span<const std::byte>> FieldReader::take(std::string_view field, std::uint64_t size_bytes) {
  if (!fits(offset_, size_bytes, file_.bytes.size())) {
    return damaged(field, "{} bytes do not fit the {} that are left; the file is truncated or damaged", size_bytes, left());
  }
  const auto bytes = file_.bytes.subspan(offset_, size_bytes);
  offset_ += size_bytes;
  return bytes;
}

Result<std::string_view> FieldReader::text(std::string_view field, std::uint64_t size_bytes) {
  const std::uint64_t start = offset_;
  SHOAL_ASSIGN_OR_RETURN(const auto bytes, take(field, size_bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!is_utf8(text)) return damaged_at(start, field, "is not UTF-8");
  return text;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF5 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (length == 0 || lead == 0 || length > text.size() - i) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    const auto second = static_cast<unsigned char>(length > 1 ? text[i + 1] : 0);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool surrogate_or_beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
    if (overlong || surrogate_or_beyond) return false;
    i += length;
  }
  return true;
}

}  // namespace shoal::worker
