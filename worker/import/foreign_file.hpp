// The bytes of a file from outside, a reader that checks every number in them, and a limit of the memory that reading may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal::worker {

/// Bytes, and the name that errors use for them. Immutable; a copy shares the bytes.
struct ForeignFile {
  std::string name;  ///< a path, or "path: member 'name'"
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive; null: the caller keeps them alive

  /// Maps the file. Errors: kNotFound, kPermissionDenied, kInvalidArgument (a directory).
  static Result<ForeignFile> open(const std::filesystem::path& path);
};

/// How much memory reading a checkpoint may take.
struct ImportLimits {
  /// For everything made from all files of the checkpoint together: the index of the arrays, the graph, inflated and transposed
  /// arrays. An array that is used as it is stored takes nothing: it stays in the mapped file.
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;

  static ImportLimits of_mb(int import_mb) { return {.memory_bytes = static_cast<std::uint64_t>(import_mb) << 20}; }
};

/// Counts memory before it is allocated, and what attributes ask for. One import uses one budget. Thread-compatible.
class MemoryBudget {
 public:
  explicit MemoryBudget(const ImportLimits& limits) : limit_bytes_(limits.memory_bytes) {}

  /// Errors: kInvalidArgument naming purpose, limit and, if given, `file`.
  Status take(std::string_view purpose, std::uint64_t count, std::uint64_t bytes_each = 1);
  Status take(const ForeignFile& file, std::string_view purpose, std::uint64_t count, std::uint64_t bytes_each = 1) {
    return take(purpose, count, bytes_each).with_context(file.name);
  }
  /// Counts what a few bytes of a file ask for by a number: the outputs of a split, the numbers of a window function. All
  /// nodes together may ask for kMostAsked.
  ///   Errors  kInvalidArgument naming purpose and limit
  Status take_asked(std::string_view purpose, std::uint64_t count);

  static constexpr std::uint64_t kMostAsked = std::uint64_t{1} << 20;

 private:
  const std::uint64_t limit_bytes_;
  std::uint64_t taken_bytes_ = 0, asked_ = 0;
};

/// Reads the little-endian fields of a file in order. Errors: kDataLoss naming file, offset and field.
///   Threads  thread-compatible
class FieldReader {
 public:
  explicit FieldReader(const ForeignFile& file, std::uint64_t offset = 0) : file_(file), offset_(offset) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return file_.bytes.size() - offset_; }
  void seek(std::uint64_t offset) { offset_ = offset; }  ///< at most the file's size
  /// Names the item that the next fields belong to, "array 3". Errors contain it.
  void enter(std::string item) { item_ = std::move(item); }

  template <typename T>
  Result<T> number(std::string_view field) {
    SHOAL_ASSIGN_OR_RETURN(const auto bytes, take(field, sizeof(T)));
    T value{};
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  Result<std::span<const std::byte>> take(std::string_view field, std::uint64_t size_bytes);
  Result<std::string_view> text(std::string_view field, std::uint64_t size_bytes);

  /// An error at the cursor, or at `offset`.
  template <typename... Args>
  Status damaged(std::string_view field, std::string_view pattern, const Args&... args) const {
    return damaged_at(offset_, field, pattern, args...);
  }
  template <typename... Args>
  Status damaged_at(std::uint64_t offset, std::string_view field, std::string_view pattern, const Args&... args) const {
    return data_loss("{}: offset {}, {}{}{}: {}", file_.name, offset, item_, item_.empty() ? "" : ", ", field,
                     format(pattern, args...));
  }

 private:
  const ForeignFile& file_;
  std::uint64_t offset_;
  std::string item_;
};

/// True when `text` is well-formed UTF-8 without NUL bytes.
bool is_utf8(std::string_view text);

}  // namespace shoal::worker
