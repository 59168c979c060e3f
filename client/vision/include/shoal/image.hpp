// Image: a decoded picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

/// A picture of 8-bit red, green, blue.
///   Threads  a value: thread-compatible
class Image {
 public:
  /// Decodes a file: JPEG, PNG, WebP, BMP, TIFF and what else OpenCV was built with. Turned as its EXIF data says; grey becomes
  /// three equal channels. Transparency is dropped, not blended with a background: MXNet's, GluonCV's and torchvision's loaders
  /// do so, and models were trained on what those gave.
  ///   Errors  kNotFound, kPermissionDenied; kInvalidArgument: no picture, or a damaged one. The file is named.
  static Result<Image> read(const std::filesystem::path& file);
  /// The same for a file's bytes; `where` names them in errors.
  static Result<Image> decode(std::span<const std::byte> bytes, std::string_view where = "picture");
  /// From height * width * 3 bytes, row by row. Errors: kInvalidArgument (sizes do not agree).
  static Result<Image> from_rgb(int height, int width, std::vector<std::uint8_t> rgb);

  int height() const { return height_; }
  int width() const { return width_; }
  /// height * width * 3 bytes, row by row.
  std::span<const std::uint8_t> rgb() const { return rgb_; }

 private:
  Image(int height, int width, std::vector<std::uint8_t> rgb) : height_(height), width_(width), rgb_(std::move(rgb)) {}

  int height_, width_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace shoal
