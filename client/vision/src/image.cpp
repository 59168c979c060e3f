#include "shoal/image.hpp"

#include <algorithm>
#include <climits>
#include <exception>
#include <new>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>

#include "client/vision/src/preprocessing.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal {
namespace {

Status check_size(std::size_t size_bytes, std::string_view where) {
  if (size_bytes > static_cast<std::size_t>(INT_MAX)) return invalid_argument("{}: the file is too large for a picture", where);
  return size_bytes > 0 ? Status() : invalid_argument("{}: the file is empty", where);
}

/// A JPEG without the marker of its end. libjpeg would fill the missing part with gray, without an error. Goes from marker to
/// marker: their segments may hold thumbnails, and anything may lie behind the end.
bool is_cut_jpeg(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with("\xff\xd8")) return false;
  std::size_t at = 2;
  const auto next = [&] { return at < text.size() ? static_cast<unsigned char>(text[at++]) : -1; };
  while ((at = text.find('\xff', at)) != std::string_view::npos) {
    int marker = 0xff;
    while (marker == 0xff) marker = next();  // any number of them
    if (marker == 0xd9) return false;
    if (marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // without a segment: a byte of a scan, or a restart
    const int high = next(), low = next();
    if (low < 0) return true;
    at += static_cast<std::size_t>(std::max(high * 256 + low - 2, 0));  // the length counts itself
  }
  return true;
}

}  // namespace

Result<Image> Image::read(const std::filesystem::path& file) try {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile opened, open_regular_file(file));
  SHOAL_RETURN_IF_ERROR(check_size(opened.size_bytes, file.native()));
  std::vector<std::byte> bytes(opened.size_bytes);
  SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(opened.fd.get(), bytes, file.native()));
  return decode(std::span(bytes).first(size), file.native());
} catch (const std::bad_alloc&) {
  return out_of_memory(file.native());
}

Result<Image> Image::decode(std::span<const std::byte> bytes, std::string_view where) try {
  SHOAL_RETURN_IF_ERROR(check_size(bytes.size(), where));
  if (is_cut_jpeg(bytes)) return invalid_argument("{}: the file ends in the middle of the picture", where);
  const cv::Mat raw(1, static_cast<int>(bytes.size()), CV_8UC1, const_cast<std::byte*>(bytes.data()));
  const cv::Mat bgr = cv::imdecode(raw, cv::IMREAD_COLOR);
  if (bgr.empty()) return invalid_argument("{}: cannot be decoded: not a picture, damaged, or of an unsupported format", where);
  std::vector<std::uint8_t> rgb(bgr.total() * 3);
  cv::Mat dst(bgr.rows, bgr.cols, CV_8UC3, rgb.data());
  cv::cvtColor(bgr, dst, cv::COLOR_BGR2RGB);
  return Image(bgr.rows, bgr.cols, std::move(rgb));
} catch (const std::exception& error) {
  if (vision::is_out_of_memory(error)) return out_of_memory(where);
  return invalid_argument("{}: cannot be decoded: {}", where, error.what());
}

Result<Image> Image::from_rgb(int height, int width, std::vector<std::uint8_t> rgb) {
  if (height < 1 || width < 1 || rgb.size() != static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3) {
    return invalid_argument(
        "a picture of {} x {} cannot be made from {} bytes: both sides must be positive, with 3 bytes per pixel", height, width,
        rgb.size());
  }
  return Image(height, width, std::move(rgb));
}

}  // namespace shoal
