// From a picture to the numbers that a model reads.
#pragma once

#include <exception>
#include <span>

#include "shoal/image.hpp"
#include "shoal/client.hpp"

namespace shoal::vision {

/// The number of channels: 1 for the order "GRAY", else 3.
int channels_of(const Preprocess& preprocess);

/// Errors: kInvalidArgument (an unknown order, mean or scale for another number of channels, a size out of range).
Status check_preprocess(const Preprocess& preprocess);

/// An exception of OpenCV or of the standard library that says so.
bool is_out_of_memory(const std::exception& error);

/// dst[c][y][x] = (pixel - mean[c]) * scale[c] of the center crop. The channels have the order of `preprocess`.
/// First resizes the picture: its shorter side to `resize`, the other in proportion, rounded to the nearest; larger if the crop
/// would not fit. Without `resize` the picture gets the crop's size. When the picture shrinks, each pixel is the mean of the area
/// that it covers; when it grows, pixels are interpolated linearly.
///   preprocess  checked, with crop sizes filled in
///   dst         channels * crop_height * crop_width
///   Errors      kInvalidArgument (the picture was moved from, or is so thin that `resize` would make a side longer than 2^15
///               pixels or the whole larger than 2^28), kFailedPrecondition (out of memory), kInternal (OpenCV)
Status fill_planes(const Image& image, const Preprocess& preprocess, std::span<float> dst);

}  // namespace shoal::vision
