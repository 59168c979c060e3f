// Pictures from OpenCV. The only header of Shoal that includes OpenCV's: programs that have a cv::Mat include it.
#pragma once

#include <opencv2/core.hpp>

#include "shoal/image.hpp"

namespace shoal {

/// Copies a picture as OpenCV reads it: 8 bits, gray, BGR or BGRA.
///   Errors  kInvalidArgument (another type, or an empty picture)
inline Result<Image> to_image(const cv::Mat& picture) {
  PixelFormat format = PixelFormat::kBgr;
  switch (picture.type()) {
    case CV_8UC1:
      format = PixelFormat::kGray;
      break;
    case CV_8UC3:
      break;
    case CV_8UC4:
      format = PixelFormat::kBgra;
      break;
    default:
      return Status(StatusCode::kInvalidArgument,
                    "a cv::Mat of " + cv::typeToString(picture.type()) + " is no picture: 8 bits and 1, 3 or 4 channels are");
  }
  if (picture.dims != 2 || picture.empty())
    return Status(StatusCode::kInvalidArgument, "an empty cv::Mat, or one of other than two dimensions, is no picture");
  const std::size_t row_bytes = picture.step[0];
  const std::size_t size =
      row_bytes * static_cast<std::size_t>(picture.rows - 1) + picture.elemSize() * static_cast<std::size_t>(picture.cols);
  return Image::from_pixels({picture.data, size}, picture.rows, picture.cols, format, row_bytes);
}

}  // namespace shoal
