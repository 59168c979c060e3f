// Boxes, labels and scores on a picture.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "client/vision/src/preprocessing.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shoal/object_detector.hpp"

namespace shoal {
namespace {

constexpr std::size_t kLongestLabel = 40;
constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
const cv::Scalar kWhite(255, 255, 255);

// Dark enough for white letters; in red, green, blue. Neighboring classes differ much.
const std::array<cv::Scalar, 10> kColors{cv::Scalar(200, 30, 30),  cv::Scalar(30, 90, 200),  cv::Scalar(20, 130, 50),
                                         cv::Scalar(150, 50, 160), cv::Scalar(190, 100, 10), cv::Scalar(10, 130, 140),
                                         cv::Scalar(120, 80, 50),  cv::Scalar(190, 40, 120), cv::Scalar(90, 110, 20),
                                         cv::Scalar(70, 70, 90)};

cv::Point corner(float x, float y, const cv::Mat& picture) {
  const auto within = [](float value, int size) {  // NaN becomes 0
    return static_cast<int>(std::round(std::fmin(std::fmax(value, 0.0f), static_cast<float>(size - 1))));
  };
  return {within(x, picture.cols), within(y, picture.rows)};
}

std::string text_of(const Detection& detection) {
  std::array<char, 16> score{};
  std::snprintf(score.data(), score.size(), " %.2f", static_cast<double>(detection.score));
  return (detection.label.empty() ? format("class {}", detection.index) : shortened(detection.label, kLongestLabel)) +
         score.data();
}

void draw(cv::Mat& picture, const Detection& detection, int thickness) {
  const cv::Scalar& color = kColors[static_cast<std::size_t>(std::max<std::int64_t>(detection.index, 0)) % kColors.size()];
  const cv::Point first = corner(detection.box.x0, detection.box.y0, picture),
                  last = corner(detection.box.x1, detection.box.y1, picture);
  cv::rectangle(picture, first, last, color, thickness);
  const double scale = 0.35 + 0.1 * thickness;
  int below = 0;
  const std::string text = text_of(detection);
  const cv::Size size = cv::getTextSize(text, kFont, scale, 1, &below);
  // Above the box, or inside it where there is no room; never beyond the right side if it fits.
  const int height = size.height + below + 2, left = std::max(0, std::min(first.x, picture.cols - size.width - 2));
  const int top = first.y >= height ? first.y - height : first.y;
  cv::rectangle(picture, cv::Rect(left, top, size.width + 2, height), color, cv::FILLED);
  cv::putText(picture, text, {left + 1, top + size.height + 1}, kFont, scale, kWhite, 1, cv::LINE_AA);
}

}  // namespace

Result<Image> draw_detections(const Image& image, std::span<const Detection> detections) try {
  if (image.rgb().empty()) return invalid_argument("boxes cannot be drawn on a picture without pixels");
  std::vector<std::uint8_t> rgb(image.rgb().begin(), image.rgb().end());
  cv::Mat picture(image.height(), image.width(), CV_8UC3, rgb.data());
  const int thickness = std::clamp(std::min(picture.rows, picture.cols) / 200, 1, 8);
  for (std::size_t i = detections.size(); i-- > 0;)
    draw(picture, detections[i], thickness);  // the first one lies above the others
  return Image::from_rgb(image.height(), image.width(), std::move(rgb));
} catch (const std::exception& error) {
  if (vision::is_out_of_memory(error)) return out_of_memory("drawing boxes");
  return internal_error("draw boxes on a picture of {} x {}: {}", image.height(), image.width(), error.what());
}

}  // namespace shoal
