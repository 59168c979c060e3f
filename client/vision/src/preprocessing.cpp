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

cv::Mat resize(const cv::Mat& src, cv::Size size) {
  if (src.size() == size) return src;
  const bool shrinks = size.width <= src.cols && size.height <= src.rows;
  cv::Mat dst;
  cv::resize(src, dst, size, 0, 0, shrinks ? cv::INTER_AREA : cv::INTER_LINEAR);
  return dst;
}

/// The byte of a pixel that is the model's channel c.
int source_channel(const Preprocess& preprocess, int c) { return preprocess.order == "BGR" ? 2 - c : c; }

/// Writes every `dst_step`-th element.
void fill_channel(const cv::Mat& crop, int channel, float mean, float scale, float* dst, std::ptrdiff_t dst_step) {
  const int step = crop.channels();
  for (int y = 0; y < crop.rows; ++y) {
    const std::uint8_t* row = crop.ptr<std::uint8_t>(y) + channel;
    for (int x = 0; x < crop.cols; ++x, dst += dst_step) *dst = (static_cast<float>(row[x * step]) - mean) * scale;
  }
}

/// The part of a resized picture that the input shows, or the picture with a border.
cv::Mat in_its_place(const cv::Mat& resized, const Placement& placement, int height, int width, std::uint8_t border) {
  const cv::Rect shown(std::max(-placement.left, 0), std::max(-placement.top, 0), std::min(width, placement.width),
                       std::min(height, placement.height));
  if (shown.height == height && shown.width == width) return resized(shown);
  cv::Mat whole;
  const int top = std::max(placement.top, 0), left = std::max(placement.left, 0);
  cv::copyMakeBorder(resized(shown), whole, top, height - top - shown.height, left, width - left - shown.width,
                     cv::BORDER_CONSTANT | cv::BORDER_ISOLATED, cv::Scalar::all(border));
  return whole;
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
  for (const float number : preprocess.mean) {
    if (!std::isfinite(number)) return invalid_argument("preprocess: mean has {}; it must be numbers", number);
  }
  for (const float number : preprocess.scale) {
    if (!std::isfinite(number) || number == 0)
      return invalid_argument("preprocess: scale has {}; it must be numbers other than 0, which would make all pictures alike",
                              number);
  }
  if (preprocess.resize < 0 || preprocess.resize > kMaxSide)
    return invalid_argument("preprocess: resize is {}; it must be 0 to {}", preprocess.resize, kMaxSide);
  if (preprocess.letterbox && preprocess.resize != 0)
    return invalid_argument("preprocess: resize is {}; with a letterbox it must be 0", preprocess.resize);
  for (const std::int64_t side : {preprocess.crop_height, preprocess.crop_width}) {
    if (side < 1 || side > kMaxSide)
      return invalid_argument("preprocess: a side of crop is {}; it must be 1 to {}", side, kMaxSide);
  }
  return {};
}

bool is_out_of_memory(const std::exception& error) {
  const auto* opencv = dynamic_cast<const cv::Exception*>(&error);
  return opencv ? opencv->code == cv::Error::StsNoMem : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

Result<Placement> place(int height, int width, const Preprocess& preprocess) {
  if (height < 1 || width < 1) return invalid_argument("the picture has no pixels: it was moved from");
  const auto crop_height = static_cast<int>(preprocess.crop_height), crop_width = static_cast<int>(preprocess.crop_width);
  const double tall = height, wide = width;
  Placement placement{crop_height, crop_width};
  if (preprocess.letterbox) {
    const double factor = std::min(crop_height / tall, crop_width / wide);
    placement.height = std::clamp(static_cast<int>(std::round(tall * factor)), 1, crop_height);
    placement.width = std::clamp(static_cast<int>(std::round(wide * factor)), 1, crop_width);
  } else if (preprocess.resize > 0) {
    const double factor =
        std::max({static_cast<double>(preprocess.resize) / std::min(tall, wide), crop_height / tall, crop_width / wide});
    const double resized_height = std::round(tall * factor), resized_width = std::round(wide * factor);
    if (std::max(resized_height, resized_width) > kMaxSide || resized_height * resized_width > kMaxResizedPixels) {
      return invalid_argument(
          "a picture of {} x {} would be resized to {} x {}: a side may have at most {} pixels, and the whole picture {}: "
          "crop the picture first, or use a smaller resize or no resize",
          height, width, static_cast<std::int64_t>(resized_height), static_cast<std::int64_t>(resized_width), kMaxSide,
          static_cast<std::int64_t>(kMaxResizedPixels));
    }
    placement.height = std::max(crop_height, static_cast<int>(resized_height));
    placement.width = std::max(crop_width, static_cast<int>(resized_width));
  }
  placement.top = (crop_height - placement.height) / 2;
  placement.left = (crop_width - placement.width) / 2;
  return placement;
}

Status prepare(const Image& image, const Preprocess& preprocess, Input dst) try {
  SHOAL_ASSIGN_OR_RETURN(const Placement placement, place(image.height(), image.width(), preprocess));
  cv::Mat picture(image.height(), image.width(), CV_8UC3, const_cast<std::uint8_t*>(image.rgb().data()));
  const int channels = channels_of(preprocess);
  if (channels == 1) {
    cv::Mat gray;
    cv::cvtColor(picture, gray, cv::COLOR_RGB2GRAY);
    picture = gray;
  }
  const cv::Mat resized = resize(picture, cv::Size(placement.width, placement.height));
  const cv::Mat shown = in_its_place(resized, placement, static_cast<int>(preprocess.crop_height),
                                     static_cast<int>(preprocess.crop_width), preprocess.border);
  const std::ptrdiff_t step = dst.is_interleaved ? channels : 1;
  const std::size_t plane = dst.is_interleaved ? 1 : dst.values.size() / static_cast<std::size_t>(channels);
  for (int c = 0; c < channels; ++c) {
    const auto i = static_cast<std::size_t>(c);
    fill_channel(shown, source_channel(preprocess, c), preprocess.mean[i], preprocess.scale[i], dst.values.data() + i * plane,
                 step);
  }
  return {};
} catch (const std::exception& error) {
  if (is_out_of_memory(error)) return out_of_memory("preparing a picture");
  return internal_error("prepare a picture of {} x {}: {}", image.height(), image.width(), error.what());
}

}  // namespace shoal::vision
