// Image: a decoded picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

/// The bytes of a pixel, in their order. The fourth one, transparency, is dropped.
enum class PixelFormat : std::uint8_t { kRgb, kBgr, kRgba, kBgra, kGray };

/// A picture with 8-bit red, green and blue. One that was moved from has 0 x 0 pixels. Copies share the pixels. cv::Mat becomes
/// one by shoal/image_opencv.hpp.
///   Threads  immutable
class Image {
 public:
  Image() = default;  ///< of 0 x 0 pixels
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

  /// Makes a picture from pixels in memory, which are copied.
  ///   row_bytes  from one row to the next; 0 = rows follow each other
  ///   Errors     kInvalidArgument (sides that are not positive, or fewer bytes than the rows need)
  static Result<Image> from_pixels(std::span<const std::uint8_t> pixels, int height, int width, PixelFormat format,
                                   std::size_t row_bytes = 0);

  /// The bytes of a file: ".png", ".jpg", ".webp", ... as `extension` says.
  ///   Errors  kInvalidArgument (an unknown extension, or a picture of 0 x 0), kFailedPrecondition (out of memory)
  Result<std::vector<std::byte>> encode(std::string_view extension) const;
  /// Writes a file in the format that its extension names. Replaces an existing one.
  ///   Errors  those of encode(); kNotFound, kPermissionDenied, kFailedPrecondition (disk full). The message names the file
  Status write(const std::filesystem::path& file) const;

  int height() const;
  int width() const;
  /// height * width * 3 bytes, row by row.
  std::span<const std::uint8_t> rgb() const&;
  std::span<const std::uint8_t> rgb() && = delete;  ///< of a temporary, whose bytes end with it: keep the Image

 private:
  struct Impl;
  explicit Image(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace shoal
