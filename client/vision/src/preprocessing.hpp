// From a picture to the numbers that a model reads, and back from places in the input to places in the picture.
#pragma once

#include <exception>
#include <span>

#include "shoal/client.hpp"
#include "shoal/image.hpp"

namespace shoal::vision {

/// The number of channels: 1 for the order "GRAY", else 3.
int channels_of(const Preprocess& preprocess);

/// Errors: kInvalidArgument (an unknown order, mean or scale for another number of channels, a size out of range, a letterbox
/// with `resize`).
Status check_preprocess(const Preprocess& preprocess);

/// An exception of OpenCV or of the standard library that says so.
bool is_out_of_memory(const std::exception& error);

/// How a picture lies in the input: it is resized, and its upper left corner is at (left, top). Negative if it is cropped,
/// positive if it has a border.
struct Placement {
  int height = 0, width = 0;  ///< of the resized picture
  int top = 0, left = 0;
};
/// Without a letterbox, its shorter side becomes `resize`, the other in proportion, rounded to the nearest; larger if the crop
/// would not fit; without `resize` it gets the crop's size. In a letterbox it becomes as large as fits, in proportion.
///   preprocess  checked, with crop sizes filled in
///   Errors      kInvalidArgument (a picture without pixels, or so thin that `resize` would make a side longer than 2^15
///               pixels or the whole larger than 2^28)
Result<Placement> place(int height, int width, const Preprocess& preprocess);

/// The elements of an input of one picture: channels * crop_height * crop_width.
struct Input {
  std::span<float> values;
  bool is_interleaved = false;  ///< height x width x channels; else channels x height x width
};

/// dst[c][y][x] = (pixel - mean[c]) * scale[c] of the picture where place() puts it. The channels have the order of `preprocess`.
/// When the picture shrinks, each pixel is the mean of the area that it covers; when it grows, pixels are interpolated linearly.
///   Errors  those of place(); kFailedPrecondition (out of memory), kInternal (OpenCV)
Status prepare(const Image& image, const Preprocess& preprocess, Input dst);

}  // namespace shoal::vision
