// Image: a decoded picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

/// A picture with 8-bit red, green and blue. One that was moved from has 0 x 0 pixels.
///   Threads  a value: thread-compatible
class Image {
 public:
  /// Decodes a file: JPEG, PNG, WebP, BMP, TIFF, and the other formats of the installed OpenCV. Rotates it as its EXIF data says.
  /// Gray becomes three equal channels. Transparency is dropped, not blended with a background, because the loaders of MXNet,
  /// GluonCV and torchvision, with which models were trained, do so.
  ///   Errors  kNotFound, kPermissionDenied, kInvalidArgument (not a regular file, larger than 2 GiB, not a picture, or
  ///           damaged), kFailedPrecondition (out of memory). The message names the file.
  static Result<Image> read(const std::filesystem::path& file);
  /// Decodes the bytes of a file. `where` names them in errors.
  static Result<Image> decode(std::span<const std::byte> bytes, std::string_view where = "picture");
  /// Makes a picture from height * width * 3 bytes, row by row. Errors: kInvalidArgument (another number of bytes).
  static Result<Image> from_rgb(int height, int width, std::vector<std::uint8_t> rgb);

  Image(const Image&) = default;
  Image& operator=(const Image&) = default;
  Image(Image&& other) noexcept
      : height_(std::exchange(other.height_, 0)), width_(std::exchange(other.width_, 0)), rgb_(std::exchange(other.rgb_, {})) {}
  Image& operator=(Image&& other) noexcept {
    height_ = std::exchange(other.height_, 0);
    width_ = std::exchange(other.width_, 0);
    rgb_ = std::exchange(other.rgb_, {});
    return *this;
  }
  ~Image() = default;

  int height() const { return height_; }
  int width() const { return width_; }
  /// height * width * 3 bytes, row by row.
  std::span<const std::uint8_t> rgb() const& { return rgb_; }
  std::span<const std::uint8_t> rgb() && = delete;  ///< of a temporary, whose bytes end with it: keep the Image

 private:
  Image(int height, int width, std::vector<std::uint8_t> rgb) : height_(height), width_(width), rgb_(std::move(rgb)) {}

  int height_, width_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace shoal
