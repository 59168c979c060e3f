#include "shoal/image.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <exception>
#include <new>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <utility>

#include "client/vision/src/preprocessing.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/base/unique_fd.hpp"

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

/// The bytes of a picture in red, green, blue. conversion: one of cvtColor()'s; -1 = none.
Result<Image> converted(const cv::Mat& src, int conversion) {
  std::vector<std::uint8_t> rgb(src.total() * 3);
  cv::Mat dst(src.rows, src.cols, CV_8UC3, rgb.data());
  if (conversion < 0)
    src.copyTo(dst);
  else
    cv::cvtColor(src, dst, conversion);
  return Image::from_rgb(src.rows, src.cols, std::move(rgb));
}

}  // namespace

struct Image::Impl {
  int height = 0, width = 0;
  std::vector<std::uint8_t> rgb;
};

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
  return converted(bgr, cv::COLOR_BGR2RGB);
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
  return Image(std::make_shared<const Impl>(Impl{height, width, std::move(rgb)}));
}

Result<Image> Image::from_pixels(std::span<const std::uint8_t> pixels, int height, int width, PixelFormat format,
                                 std::size_t row_bytes) try {
  struct Kind {
    int type;
    int conversion;  // -1: none
  };
  constexpr std::array kKinds{Kind{CV_8UC3, -1}, Kind{CV_8UC3, cv::COLOR_BGR2RGB}, Kind{CV_8UC4, cv::COLOR_RGBA2RGB},
                              Kind{CV_8UC4, cv::COLOR_BGRA2RGB}, Kind{CV_8UC1, cv::COLOR_GRAY2RGB}};
  const auto place = static_cast<std::size_t>(format);
  if (place >= kKinds.size()) return invalid_argument("{} is not a format of pixels", place);
  const Kind& kind = kKinds[place];
  const std::size_t pixel_bytes = CV_ELEM_SIZE(kind.type), used = static_cast<std::size_t>(std::max(width, 0)) * pixel_bytes;
  if (row_bytes == 0) row_bytes = used;
  const std::size_t rows = static_cast<std::size_t>(std::max(height, 0));
  if (height < 1 || width < 1 || row_bytes < used || pixels.size() < used || (pixels.size() - used) / row_bytes < rows - 1) {
    return invalid_argument("a picture of {} x {} pixels of {} bytes, with {} bytes per row, cannot be made from {} bytes",
                            height, width, pixel_bytes, row_bytes, pixels.size());
  }
  return converted(cv::Mat(height, width, kind.type, const_cast<std::uint8_t*>(pixels.data()), row_bytes), kind.conversion);
} catch (const std::exception& error) {
  if (vision::is_out_of_memory(error)) return out_of_memory("a picture");
  return internal_error("make a picture of {} x {}: {}", height, width, error.what());
}

Result<std::vector<std::byte>> Image::encode(std::string_view extension) const try {
  if (!impl_) return invalid_argument("a picture without pixels cannot be encoded");
  if (!extension.starts_with('.') || !cv::haveImageWriter(std::string(extension)))
    return invalid_argument("no format of pictures is called '{}': write .png or .jpg", extension);
  const cv::Mat rgb(impl_->height, impl_->width, CV_8UC3, const_cast<std::uint8_t*>(impl_->rgb.data()));
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  std::vector<std::uint8_t> bytes;
  if (!cv::imencode(std::string(extension), bgr, bytes)) return internal_error("a picture cannot be encoded as '{}'", extension);
  const auto encoded = std::as_bytes(std::span(bytes));
  return std::vector<std::byte>(encoded.begin(), encoded.end());
} catch (const std::exception& error) {
  if (vision::is_out_of_memory(error)) return out_of_memory("encoding a picture");
  return internal_error("encode a picture as '{}': {}", extension, error.what());
}

Status Image::write(const std::filesystem::path& file) const {
  auto bytes = encode(file.extension().native());
  if (!bytes.ok()) return bytes.status().with_context(file.native());
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return status_from_errno("write", file.native(), errno);
  for (std::span<const std::byte> rest = *bytes; !rest.empty();) {
    const ssize_t size = ::write(fd.get(), rest.data(), rest.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return status_from_errno("write", file.native(), errno);
    rest = rest.subspan(static_cast<std::size_t>(size));
  }
  return {};
}

Image::Image(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

int Image::height() const { return impl_ ? impl_->height : 0; }
int Image::width() const { return impl_ ? impl_->width : 0; }

std::span<const std::uint8_t> Image::rgb() const& {
  if (!impl_) return {};
  return impl_->rgb;
}

}  // namespace shoal
