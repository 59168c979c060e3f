#include "worker/import/zip_archive.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace shoal::worker {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::uint64_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndBytes = 22, kLocator64Bytes = 20;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kMaxCommentBytes = 0xffff;
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint16_t kIn64Short = 0xffff;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the number is in the Zip64 record
constexpr std::uint16_t kEncrypted = 1;      // flag
constexpr std::uint16_t kStored = 0, kDeflated = 8;
constexpr std::uint64_t kMostInflation = 1032;  // deflate turns two bits into at most 258 bytes

/// The place of the central directory.
struct Directory {
  std::uint64_t offset = 0, size_bytes = 0, count = 0;
};

class DirectoryReader {
 public:
  DirectoryReader(const ForeignFile& file, MemoryBudget& budget) : file_(file), budget_(budget), fields_(file) {}

  Result<std::vector<ZipMember>> read() {
    SHOAL_ASSIGN_OR_RETURN(const Directory directory, find_directory());
    if (directory.count > directory.size_bytes / kCentralHeaderBytes) {
      return fields_.damaged("number of members", "{} do not fit the {} bytes of the directory", directory.count,
                             directory.size_bytes);
    }
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the archive's directory", directory.count, sizeof(ZipMember)));
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the names of the archive's members", directory.size_bytes));
    std::vector<ZipMember> members(directory.count);
    fields_.seek(directory.offset);
    for (std::size_t i = 0; i < members.size(); ++i) {
      fields_.enter(format("member {}", i));
      SHOAL_RETURN_IF_ERROR(read_central_header(members[i]));
    }
    fields_.enter("");
    if (fields_.offset() != directory.offset + directory.size_bytes) {
      return fields_.damaged("central directory", "{} members do not fill its {} bytes", directory.count, directory.size_bytes);
    }
    for (ZipMember& member : members) SHOAL_RETURN_IF_ERROR(read_local_header(member, directory.offset));
    SHOAL_RETURN_IF_ERROR(check_overlap(members));
    return members;
  }

 private:
  template <typename... Args>
  Status refused(std::string_view pattern, const Args&... args) const {
    return unimplemented("{}: offset {}: {}", file_.name, fields_.offset(), format(pattern, args...));
  }

  Result<Directory> find_directory() {
    const std::uint64_t size = file_.bytes.size();
    const std::uint64_t first = size < kEndBytes + kMaxCommentBytes ? 0 : size - kEndBytes - kMaxCommentBytes;
    for (std::uint64_t at = size < kEndBytes ? 0 : size - kEndBytes + 1; at-- > first;) {
      if (word_at(at) != kEnd) continue;
      fields_.seek(at + kEndBytes - sizeof(std::uint16_t));
      SHOAL_ASSIGN_OR_RETURN(const auto comment, fields_.number<std::uint16_t>("length of the comment"));
      if (at + kEndBytes + comment == size) return read_end(at);
    }
    return fields_.damaged_at(size, "end of the archive", "there is none; the file is truncated or goes on behind it");
  }

  std::uint32_t word_at(std::uint64_t offset) const {
    std::uint32_t word = 0;
    std::memcpy(&word, file_.bytes.data() + offset, sizeof(word));
    return word;
  }

  Result<Directory> read_end(std::uint64_t end) {
    fields_.seek(end + sizeof(kEnd));
    SHOAL_ASSIGN_OR_RETURN(const auto disk, fields_.number<std::uint16_t>("number of this disk"));
    SHOAL_ASSIGN_OR_RETURN(const auto first_disk, fields_.number<std::uint16_t>("disk of the directory"));
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint16_t>("members on this disk").status());
    SHOAL_ASSIGN_OR_RETURN(const auto count, fields_.number<std::uint16_t>("number of members"));
    SHOAL_ASSIGN_OR_RETURN(const auto size, fields_.number<std::uint32_t>("size of the directory"));
    SHOAL_ASSIGN_OR_RETURN(const auto offset, fields_.number<std::uint32_t>("offset of the directory"));
    const Directory directory{offset, size, count};
    if (count == kIn64Short || size == kIn64 || offset == kIn64) {
      if (end >= kLocator64Bytes && word_at(end - kLocator64Bytes) == kLocator64) return read_end64(end - kLocator64Bytes);
    }
    if (disk != first_disk || disk != 0) return refused("the archive is split over several files");
    return checked(directory, end);
  }

  Result<Directory> read_end64(std::uint64_t locator) {
    fields_.seek(locator + sizeof(kLocator64));
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint32_t>("disk of the Zip64 end").status());
    SHOAL_ASSIGN_OR_RETURN(const auto end, fields_.number<std::uint64_t>("offset of the Zip64 end"));
    if (!fits(end, kEnd64Bytes, locator) || word_at(end) != kEnd64) {
      return fields_.damaged("offset of the Zip64 end", "{} is not where one lies", end);
    }
    constexpr std::uint64_t kVersions = 12;  // size of the record, two versions
    fields_.seek(end + sizeof(kEnd64) + kVersions);
    SHOAL_ASSIGN_OR_RETURN(const auto disk, fields_.number<std::uint32_t>("number of this disk"));
    SHOAL_ASSIGN_OR_RETURN(const auto first_disk, fields_.number<std::uint32_t>("disk of the directory"));
    if (disk != first_disk || disk != 0) return refused("the archive is split over several files");
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint64_t>("members on this disk").status());
    Directory directory;
    SHOAL_ASSIGN_OR_RETURN(directory.count, fields_.number<std::uint64_t>("number of members"));
    SHOAL_ASSIGN_OR_RETURN(directory.size_bytes, fields_.number<std::uint64_t>("size of the directory"));
    SHOAL_ASSIGN_OR_RETURN(directory.offset, fields_.number<std::uint64_t>("offset of the directory"));
    return checked(directory, end);
  }

  /// The directory ends where its end record begins.
  Result<Directory> checked(const Directory& directory, std::uint64_t end) const {
    if (!fits(directory.offset, directory.size_bytes, end) || directory.offset + directory.size_bytes != end) {
      return fields_.damaged("central directory", "{} bytes from {} on do not end at {}", directory.size_bytes, directory.offset,
                             end);
    }
    return directory;
  }

  Status read_central_header(ZipMember& member) {
    SHOAL_ASSIGN_OR_RETURN(const auto signature, fields_.number<std::uint32_t>("signature in the directory"));
    if (signature != kCentralHeader) return fields_.damaged("signature in the directory", "{} is none", signature);
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint32_t>("versions").status());
    SHOAL_ASSIGN_OR_RETURN(const auto flags, fields_.number<std::uint16_t>("flags"));
    SHOAL_ASSIGN_OR_RETURN(const auto method, fields_.number<std::uint16_t>("method"));
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint32_t>("time and date").status());  // MXNet writes 0, which is no date
    SHOAL_ASSIGN_OR_RETURN(member.crc, fields_.number<std::uint32_t>("CRC"));
    SHOAL_ASSIGN_OR_RETURN(const auto stored, fields_.number<std::uint32_t>("stored size"));
    SHOAL_ASSIGN_OR_RETURN(const auto size, fields_.number<std::uint32_t>("size"));
    SHOAL_ASSIGN_OR_RETURN(const auto name_length, fields_.number<std::uint16_t>("length of the name"));
    SHOAL_ASSIGN_OR_RETURN(const auto extra_length, fields_.number<std::uint16_t>("length of the extra fields"));
    SHOAL_ASSIGN_OR_RETURN(const auto comment_length, fields_.number<std::uint16_t>("length of the comment"));
    SHOAL_RETURN_IF_ERROR(fields_.take("disk and attributes", 8).status());
    SHOAL_ASSIGN_OR_RETURN(const auto offset, fields_.number<std::uint32_t>("offset"));
    SHOAL_ASSIGN_OR_RETURN(member.name, fields_.text("name", name_length));
    const std::uint64_t extra = fields_.offset();
    SHOAL_RETURN_IF_ERROR(fields_.take("extra fields", extra_length).status());
    SHOAL_RETURN_IF_ERROR(fields_.take("comment", comment_length).status());
    member.size_bytes = size;
    member.stored_bytes = stored;
    member.header_offset = offset;
    SHOAL_RETURN_IF_ERROR(read_zip64(member, extra, extra_length));
    if (flags & kEncrypted) return refused("member '{}' is encrypted", member.name);
    if (method != kStored && method != kDeflated) {
      return refused("member '{}' is compressed by method {}; stored (0) and deflated (8) are read", member.name, method);
    }
    member.is_deflated = method == kDeflated;
    if (!member.is_deflated && member.stored_bytes != member.size_bytes) {
      return fields_.damaged("size", "member '{}' is stored in {} bytes and has {}", member.name, member.stored_bytes,
                             member.size_bytes);
    }
    return {};
  }

  /// The extra field has, in this order, the numbers that do not fit 32 bits. In the header these are all ones.
  Status read_zip64(ZipMember& member, std::uint64_t extra, std::uint64_t extra_length) {
    const std::uint64_t after = fields_.offset(), end = extra + extra_length;
    fields_.seek(extra);
    while (end - fields_.offset() >= 2 * sizeof(std::uint16_t)) {
      SHOAL_ASSIGN_OR_RETURN(const auto kind, fields_.number<std::uint16_t>("kind of an extra field"));
      SHOAL_ASSIGN_OR_RETURN(const auto length, fields_.number<std::uint16_t>("length of an extra field"));
      const std::uint64_t next = fields_.offset() + length;
      if (next > end) return fields_.damaged("length of an extra field", "{} is more than there is", length);
      if (kind == kZip64Extra) {
        for (std::uint64_t* number : {&member.size_bytes, &member.stored_bytes, &member.header_offset}) {
          if (*number != kIn64) continue;
          if (fields_.offset() + sizeof(*number) > next) return fields_.damaged("Zip64 field", "it ends too early");
          SHOAL_ASSIGN_OR_RETURN(*number, fields_.number<std::uint64_t>("Zip64 field"));
        }
      }
      fields_.seek(next);
    }
    fields_.seek(after);
    return {};
  }

  Status read_local_header(ZipMember& member, std::uint64_t directory) {
    fields_.enter(format("member '{}'", member.name));
    if (!fits(member.header_offset, kLocalHeaderBytes, directory)) {
      return fields_.damaged("offset", "{} is not before the directory at {}", member.header_offset, directory);
    }
    fields_.seek(member.header_offset);
    SHOAL_ASSIGN_OR_RETURN(const auto signature, fields_.number<std::uint32_t>("signature"));
    if (signature != kLocalHeader) return fields_.damaged_at(member.header_offset, "signature", "{} is none", signature);
    fields_.seek(member.header_offset + kLocalHeaderBytes - 2 * sizeof(std::uint16_t));
    SHOAL_ASSIGN_OR_RETURN(const auto name_length, fields_.number<std::uint16_t>("length of the name"));
    SHOAL_ASSIGN_OR_RETURN(const auto extra_length, fields_.number<std::uint16_t>("length of the extra fields"));
    SHOAL_ASSIGN_OR_RETURN(const auto name, fields_.text("name", name_length));
    if (name != member.name) return fields_.damaged("name", "the local header says '{}'", name);
    SHOAL_RETURN_IF_ERROR(fields_.take("extra fields", extra_length).status());
    member.data_offset = fields_.offset();
    if (!fits(member.data_offset, member.stored_bytes, directory)) {
      return fields_.damaged("stored size", "{} bytes do not fit before the directory at {}", member.stored_bytes, directory);
    }
    return {};
  }

  Status check_overlap(const std::vector<ZipMember>& members) const {
    std::vector<const ZipMember*> sorted;
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the order of the archive's members", members.size(), sizeof(sorted[0])));
    for (const ZipMember& member : members) sorted.push_back(&member);
    std::ranges::sort(sorted, {}, &ZipMember::header_offset);
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const ZipMember &before = *sorted[i - 1], &member = *sorted[i];
      if (before.data_offset + before.stored_bytes > member.header_offset) {
        return fields_.damaged_at(member.header_offset, "offset", "members '{}' and '{}' overlap", before.name, member.name);
      }
    }
    return {};
  }

  const ForeignFile& file_;
  MemoryBudget& budget_;
  FieldReader fields_;
};

/// Owns a zlib stream.
class Inflater {
 public:
  Inflater() { is_ready_ = inflateInit2(&stream_, -MAX_WBITS) == Z_OK; }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// True when `src` is one whole deflate stream that fills `dst`.
  bool inflate_all(std::span<const std::byte> src, std::span<std::byte> dst) {
    int result = is_ready_ ? Z_OK : Z_MEM_ERROR;
    while (result == Z_OK) {
      const std::size_t given = offer(src.size()), room = offer(dst.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(src.data()));
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef*>(dst.data());
      stream_.avail_out = static_cast<uInt>(room);
      result = ::inflate(&stream_, Z_NO_FLUSH);
      src = src.subspan(given - stream_.avail_in);
      dst = dst.subspan(room - stream_.avail_out);
    }
    return result == Z_STREAM_END && src.empty() && dst.empty();
  }

 private:
  /// The part that zlib can take at once; it counts in 32 bits.
  static std::size_t offer(std::size_t size) { return std::min<std::size_t>(size, std::numeric_limits<uInt>::max()); }

  z_stream stream_{};
  bool is_ready_ = false;
};

}  // namespace

Result<std::vector<ZipMember>> read_zip_directory(const ForeignFile& file, MemoryBudget& budget) {
  return DirectoryReader(file, budget).read();
}

Result<ForeignFile> read_zip_member(const ForeignFile& file, const ZipMember& member, MemoryBudget& budget) {
  ForeignFile contents{format("{}: member '{}' (offset {})", file.name, member.name, member.header_offset),
                       file.bytes.subspan(member.data_offset, member.stored_bytes), file.owner};
  if (member.is_deflated) {
    if (member.size_bytes / kMostInflation > member.stored_bytes) {
      return data_loss("{}: size: {} bytes do not come of {} deflated ones", contents.name, member.size_bytes,
                       member.stored_bytes);
    }
    SHOAL_RETURN_IF_ERROR(budget.take(contents, "inflating", member.size_bytes));
    const std::shared_ptr<std::byte[]> inflated(new std::byte[member.size_bytes]);
    const std::span<std::byte> room(inflated.get(), member.size_bytes);
    if (!Inflater().inflate_all(contents.bytes, room)) {
      return data_loss("{}: deflated data: it is damaged, or not {} bytes", contents.name, member.size_bytes);
    }
    contents.bytes = room;
    contents.owner = inflated;
  }
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(contents.bytes.data()), contents.bytes.size());
  if (crc != member.crc) return data_loss("{}: CRC: {} is stored and {} found", contents.name, member.crc, crc);
  return contents;
}

}  // namespace shoal::worker
