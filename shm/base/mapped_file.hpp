// A file mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "shoal/result.hpp"

namespace shoal {

/// Immutable. The shared_ptr keeps the bytes mapped.
class MappedFile {
 public:
  /// Errors: those of open_regular_file() and mmap(), naming the file.
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal
