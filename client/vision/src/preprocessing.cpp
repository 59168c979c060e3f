#include "client/vision/src/preprocessing.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <opencv2/imgproc.hpp>

#include "shm/base/errors.hpp"

namespace shoal::vision {
namespace {

constexpr std::int64_t kMaxSide = 1 << 15;
constexpr double kMaxResizedPixels = 1 << 28;

Result<cv::Size> resized_size(const Image& image, const Preprocess& preprocess) {
  const auto crop_height = static_cast<int>(preprocess.crop_height), crop_width = static_cast<int>(preprocess.crop_width);
  if (preprocess.resize == 0) return cv::Size(crop_width, crop_height);
  const double height = image.height(), width = image.width();
  const double factor =
      std::max({static_cast<double>(preprocess.resize) / std::min(height, width), crop_height / height, crop_width / width});
  const double resized_height = std::round(height * factor), resized_width = std::round(width * factor);
  if (std::max(resized_height, resized_width) > kMaxSide || resized_height * resized_width > kMaxResizedPixels) {
    return invalid_argument(
        "a picture of {} x {} would be resized to {} x {}: a side may have at most {} pixels, and the whole picture {}: crop the "
        "picture first, or use a smaller resize or no resize",
        image.height(), image.width(), static_cast<std::int64_t>(resized_height), static_cast<std::int64_t>(resized_width),
        kMaxSide, static_cast<std::int64_t>(kMaxResizedPixels));
  }
  return cv::Size(std::max(crop_width, static_cast<int>(resized_width)), std::max(crop_height, static_cast<int>(resized_height)));
}

cv::Mat resize(const cv::Mat& src, cv::Size size) {
  if (src.size() == size) return src;
  const bool shrinks = size.width <= src.cols && size.height <= src.rows;
  cv::Mat dst;
  cv::resize(src, dst, size, 0, 0, shrinks ? cv::INTER_AREA : cv::INTER_LINEAR);
  return dst;
}

/// The byte of a pixel that is the model's channel c.
int source_channel(const Preprocess& preprocess, int c) { return preprocess.order == "BGR" ? 2 - c : c; }

void fill_plane(const cv::Mat& crop, int channel, float mean, float scale, float* dst) {
  const int step = crop.channels();
  for (int y = 0; y < crop.rows; ++y) {
    const std::uint8_t* row = crop.ptr<std::uint8_t>(y) + channel;
    for (int x = 0; x < crop.cols; ++x) *dst++ = (static_cast<float>(row[x * step]) - mean) * scale;
  }
}

}  // namespace

int channels_of(const Preprocess& preprocess) { return preprocess.order == "GRAY" ? 1 : 3; }

Status check_preprocess(const Preprocess& preprocess) {
  if (preprocess.order != "RGB" && preprocess.order != "BGR" && preprocess.order != "GRAY") {
    return invalid_argument("preprocess: order is '{}'; it must be RGB, BGR or GRAY", preprocess.order);
  }
  const auto channels = static_cast<std::size_t>(channels_of(preprocess));
  if (preprocess.mean.size() != channels || preprocess.scale.size() != channels) {
    return invalid_argument("preprocess: mean has {} numbers and scale {}, but {} has {} channels", preprocess.mean.size(),
                            preprocess.scale.size(), preprocess.order, channels);
  }
  if (preprocess.resize < 0 || preprocess.resize > kMaxSide)
    return invalid_argument("preprocess: resize is {}; it must be 0 to {}", preprocess.resize, kMaxSide);
  for (const std::int64_t side : {preprocess.crop_height, preprocess.crop_width}) {
    if (side < 1 || side > kMaxSide)
      return invalid_argument("preprocess: a side of the crop is {}; it must be 1 to {}", side, kMaxSide);
  }
  return {};
}

bool is_out_of_memory(const std::exception& error) {
  const auto* opencv = dynamic_cast<const cv::Exception*>(&error);
  return opencv ? opencv->code == cv::Error::StsNoMem : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

Status fill_planes(const Image& image, const Preprocess& preprocess, std::span<float> dst) try {
  if (image.rgb().empty()) return invalid_argument("the picture has no pixels: it was moved from");
  SHOAL_ASSIGN_OR_RETURN(const cv::Size size, resized_size(image, preprocess));
  cv::Mat picture(image.height(), image.width(), CV_8UC3, const_cast<std::uint8_t*>(image.rgb().data()));
  if (channels_of(preprocess) == 1) {
    cv::Mat gray;
    cv::cvtColor(picture, gray, cv::COLOR_RGB2GRAY);
    picture = gray;
  }
  const cv::Mat resized = resize(picture, size);
  const auto height = static_cast<int>(preprocess.crop_height), width = static_cast<int>(preprocess.crop_width);
  const cv::Mat crop = resized(cv::Rect((resized.cols - width) / 2, (resized.rows - height) / 2, width, height));
  const std::size_t plane = dst.size() / static_cast<std::size_t>(channels_of(preprocess));
  for (int c = 0; c < channels_of(preprocess); ++c) {
    const auto i = static_cast<std::size_t>(c);
    fill_plane(crop, source_channel(preprocess, c), preprocess.mean[i], preprocess.scale[i], dst.data() + i * plane);
  }
  return {};
} catch (const std::exception& error) {
  if (is_out_of_memory(error)) return out_of_memory("preparing a picture");
  return internal_error("prepare a picture of {} x {}: {}", image.height(), image.width(), error.what());
}

}  // namespace shoal::vision
