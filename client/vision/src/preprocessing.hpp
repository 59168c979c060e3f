// From a picture to the numbers that a model reads.
#pragma once

#include <span>

#include "shoal/image.hpp"
#include "shoal/runner.hpp"

namespace shoal::vision {

/// Channels of an order: 1 for "GRAY", else 3.
int channels_of(const Preprocess& preprocess);

/// Errors: kInvalidArgument: an unknown order, mean or scale of another number of channels, sizes that are none.
Status check_preprocess(const Preprocess& preprocess);

/// dst[c][y][x] = (pixel - mean[c]) * scale[c] of the centre crop, planes in the order that `preprocess` says.
/// The picture is resized before: its shorter side to `resize`, the other in proportion, rounded to the nearest; further where
/// the crop would not fit; without `resize` straight to the crop's size. Each pixel is the mean of the area that it covers when
/// the picture shrinks, and interpolated linearly when it grows.
///   preprocess  checked, crop sizes filled in
///   dst         channels * crop_height * crop_width
///   Errors      kInvalidArgument, kInternal (memory)
Status fill_planes(const Image& image, const Preprocess& preprocess, std::span<float> dst);

}  // namespace shoal::vision
