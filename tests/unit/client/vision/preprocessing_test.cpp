#include "client/vision/src/preprocessing.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "shm/tensor/npy.hpp"
#include "tests/unit/client/vision/test_data.hpp"

namespace shoal::vision {
namespace {

/// Each pixel (red, green, blue) = (x, y, 100).
Image gradient(int height, int width) {
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) rgb.insert(rgb.end(), {static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(y), 100});
  }
  return Image::from_rgb(height, width, std::move(rgb)).value();
}

std::vector<float> prepare(const Image& image, const Preprocess& preprocess, bool is_interleaved = false) {
  EXPECT_TRUE(check_preprocess(preprocess).ok());
  std::vector<float> dst(static_cast<std::size_t>(channels_of(preprocess) * preprocess.crop_height * preprocess.crop_width));
  EXPECT_TRUE(prepare(image, preprocess, Input{dst, is_interleaved}).ok());
  return dst;
}

TEST(Preprocessing, MeanIsSubtractedThenScaleMultipliedPerChannelInTheModelsOrder) {
  const Preprocess rgb{.crop_height = 1, .crop_width = 1, .order = "RGB", .mean = {1, 2, 3}, .scale = {1, 10, 100}};
  Preprocess bgr = rgb;
  bgr.order = "BGR";
  const Image image = Image::from_rgb(1, 1, {50, 60, 70}).value();
  EXPECT_EQ(prepare(image, rgb), (std::vector<float>{49, 580, 6700}));
  EXPECT_EQ(prepare(image, bgr), (std::vector<float>{69, 580, 4700}));
}

TEST(Preprocessing, TheCropIsTheCenter) {
  const Preprocess preprocess{.resize = 6, .crop_height = 2, .crop_width = 2};
  const auto dst = prepare(gradient(6, 10), preprocess);
  EXPECT_EQ(dst, (std::vector<float>{4, 5, 4, 5, 2, 2, 3, 3, 100, 100, 100, 100}));
}

TEST(Preprocessing, WithoutResizeThePictureGoesStraightToTheCropsSize) {
  const auto dst = prepare(gradient(8, 4), {.crop_height = 2, .crop_width = 1});
  EXPECT_EQ(dst, (std::vector<float>{2, 2, 2, 6, 100, 100}));  // means of 4 x 4 pixels, 1.5 and 1.5 rounded to 8 bits
}

TEST(Preprocessing, AWideCropMakesThePictureGrowUntilItFits) {
  const auto dst = prepare(gradient(10, 10), {.resize = 10, .crop_height = 4, .crop_width = 20});
  EXPECT_EQ(dst.size(), 3u * 4 * 20);
  EXPECT_EQ(dst[0], 0);
  EXPECT_EQ(dst[19], 9);
}

TEST(Preprocessing, ALetterboxShowsTheWholePictureOnABorder) {
  const Preprocess wide{.crop_height = 4, .crop_width = 4, .mean = {100, 100, 100}, .letterbox = true, .border = 114};
  const auto dst = prepare(gradient(2, 4), wide);  // 4 wide, 2 high, in the middle
  const float gray = 14, blue = 0;
  EXPECT_EQ(std::vector<float>(dst.begin(), dst.begin() + 16),
            (std::vector<float>{gray, gray, gray, gray, -100, -99, -98, -97, -100, -99, -98, -97, gray, gray, gray, gray}));
  EXPECT_EQ(dst[2 * 16], gray);
  EXPECT_EQ(dst[2 * 16 + 4], blue);
  const auto tall = prepare(gradient(8, 4), wide);
  EXPECT_EQ(tall[0], gray);
  EXPECT_EQ(tall[3], gray);
  EXPECT_NE(tall[1], gray);
  EXPECT_NE(prepare(gradient(1, 9000), wide)[4], gray) << "a thin picture is at least one pixel high";
  EXPECT_EQ(prepare(gradient(4, 4), wide), prepare(gradient(4, 4), {.crop_height = 4, .crop_width = 4, .mean = {100, 100, 100}}));
}

TEST(Preprocessing, ChannelsMayBeLast) {
  const Preprocess preprocess{.crop_height = 1, .crop_width = 2, .order = "BGR", .mean = {1, 2, 3}, .scale = {1, 10, 100}};
  const Image image = Image::from_rgb(1, 2, {50, 60, 70, 51, 61, 71}).value();
  EXPECT_EQ(prepare(image, preprocess, true), (std::vector<float>{69, 580, 4700, 70, 590, 4800}));
}

TEST(Preprocessing, AlwaysSaysWhereThePictureIs) {
  const auto where = [](int height, int width, const Preprocess& preprocess) {
    const Placement placement = place(height, width, preprocess).value();
    return std::array{placement.height, placement.width, placement.top, placement.left};
  };
  EXPECT_EQ(where(600, 800, {.crop_height = 300, .crop_width = 300}), (std::array{300, 300, 0, 0}));
  EXPECT_EQ(where(600, 800, {.resize = 256, .crop_height = 224, .crop_width = 224}), (std::array{256, 341, -16, -58}));
  EXPECT_EQ(where(600, 800, {.crop_height = 416, .crop_width = 416, .letterbox = true}), (std::array{312, 416, 52, 0}));
  EXPECT_EQ(where(800, 600, {.crop_height = 320, .crop_width = 416, .letterbox = true}), (std::array{320, 240, 0, 88}));
}

TEST(Preprocessing, GrayIsOneChannel) {
  const Preprocess preprocess{.crop_height = 1, .crop_width = 1, .order = "GRAY", .mean = {0}, .scale = {1 / 255.0f}};
  EXPECT_EQ(prepare(Image::from_rgb(1, 1, {255, 255, 255}).value(), preprocess), (std::vector<float>{1}));
}

TEST(Preprocessing, WhatCannotBeDoneIsRefused) {
  const Preprocess good{.crop_height = 4, .crop_width = 4};
  for (const auto& change : std::vector<void (*)(Preprocess&)>{
           [](Preprocess& p) { p.order = "YUV"; }, [](Preprocess& p) { p.mean = {1}; }, [](Preprocess& p) { p.scale = {}; },
           [](Preprocess& p) { p.resize = -1; }, [](Preprocess& p) { p.resize = 4, p.letterbox = true; },
           [](Preprocess& p) { p.crop_width = 0; }, [](Preprocess& p) { p.crop_height = 1 << 20; },
           [](Preprocess& p) {
             p.scale = {1, 0, 1};
           },
           [](Preprocess& p) {
             p.scale = {1, 1, std::nanf("")};
           },
           [](Preprocess& p) {
             p.mean = {0, std::numeric_limits<float>::infinity(), 0};
           }}) {
    Preprocess bad = good;
    change(bad);
    EXPECT_EQ(check_preprocess(bad).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(check_preprocess(good).ok());
}

TEST(Preprocessing, APictureThatWasMovedFromIsRefused) {
  Image image = gradient(4, 4);
  const Image other = std::move(image);
  std::vector<float> dst(3 * 4 * 4);
  const Status status = prepare(image, {.crop_height = 4, .crop_width = 4}, Input{dst});  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
}

// The whole picture is resized before the crop. Each of these would take gigabytes, or more pixels than an int counts.
TEST(Preprocessing, APictureThatIsTooThinToBeResizedIsRefused) {
  const auto refusal = [](int height, int width, std::int64_t resize) {
    const Preprocess preprocess{.resize = resize, .crop_height = 1, .crop_width = 1, .order = "GRAY", .mean = {0}, .scale = {1}};
    const auto bytes = static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3;
    std::vector<float> dst(1);
    return prepare(Image::from_rgb(height, width, std::vector<std::uint8_t>(bytes)).value(), preprocess, Input{dst});
  };
  EXPECT_TRUE(refusal(1, 1 << 15, 1).ok()) << "the longest side that is allowed";
  for (const auto& [height, width, resize] :
       {std::array{1, (1 << 15) + 1, 1}, std::array{20000, 1, 2}, std::array{1, 9'000'000, 256}, std::array{2, 4, 16384}}) {
    const Status status = refusal(height, width, resize);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    const std::string size = std::to_string(height) + " x " + std::to_string(width);
    EXPECT_NE(status.message().find(size), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("32768"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("crop"), std::string::npos) << status.message();
  }
}

/// The arrays that the reference outputs were made of: bytes, blue first, as OpenCV's area interpolation gives them.
TEST(Preprocessing, GivesTheReferenceInputsByteForByte) {
  const auto expected = test_data() / "models" / "squeezenet11-mxnet-derived" / "expected";
  if (!std::filesystem::exists(expected)) GTEST_SKIP() << "no test data at " << test_data();
  const Preprocess preprocess{.resize = 256, .crop_height = 224, .crop_width = 224, .order = "BGR"};
  const std::pair<const char*, const char*> pictures[] = {{"dog", "dog.jpg"},
                                                          {"cat", "cat.jpg"},
                                                          {"goldfish", "goldfish.jpg"},
                                                          {"pelican", "pelican.jpeg"},
                                                          {"bald_eagle", "bald_eagle.jpeg"}};
  for (const auto& [name, file] : pictures) {
    const Tensor reference = read_npy(expected / (std::string(name) + ".in0.npy")).value();
    const auto bytes = reference.values<std::uint8_t>();
    const auto dst = prepare(Image::read(test_data() / "images" / file).value(), preprocess);
    EXPECT_TRUE(std::equal(dst.begin(), dst.end(), bytes.begin(), bytes.end())) << file;
  }
}

}  // namespace
}  // namespace shoal::vision
