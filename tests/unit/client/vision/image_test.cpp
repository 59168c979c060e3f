#include "shoal/image.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <opencv2/imgcodecs.hpp>
#include <random>

#include "shoal/image_opencv.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/client/vision/test_data.hpp"

namespace shoal {
namespace {

using vision::pixel;

template <typename I>
concept GivesPixels = requires(I&& image) {
  std::forward<I>(image).rgb();
};
static_assert(GivesPixels<const Image&> && !GivesPixels<Image>, "the bytes of a temporary end with it");

std::span<const std::byte> as_span(const std::vector<std::uint8_t>& bytes) { return std::as_bytes(std::span(bytes)); }

std::vector<std::uint8_t> encode(const cv::Mat& picture, const char* extension) {
  std::vector<std::uint8_t> bytes;
  cv::imencode(extension, picture, bytes);
  return bytes;
}

/// An APP1 segment that says "turn by 90 degrees clockwise", after the start of a JPEG.
std::vector<std::uint8_t> with_orientation_6(std::vector<std::uint8_t> jpeg) {
  const std::uint8_t segment[] = {0xff, 0xe1, 0x00, 0x22, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                                  0,    1,    0x01, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
  jpeg.insert(jpeg.begin() + 2, std::begin(segment), std::end(segment));
  return jpeg;
}

TEST(Image, ChannelsAreRedGreenBlue) {
  const cv::Mat picture(1, 2, CV_8UC3, cv::Scalar(10, 20, 30));  // blue, green, red
  const Image image = Image::decode(as_span(encode(picture, ".png"))).value();
  EXPECT_EQ(image.height(), 1);
  EXPECT_EQ(image.width(), 2);
  EXPECT_EQ(pixel(image, 0, 1), (std::vector<std::uint8_t>{30, 20, 10}));
}

TEST(Image, GrayBecomesThreeEqualChannels) {
  const cv::Mat picture(2, 2, CV_8UC1, cv::Scalar(77));
  EXPECT_EQ(pixel(Image::decode(as_span(encode(picture, ".png"))).value(), 1, 1), (std::vector<std::uint8_t>{77, 77, 77}));
}

TEST(Image, TransparencyIsDroppedAndNotBlended) {
  const cv::Mat picture(1, 1, CV_8UC4, cv::Scalar(10, 20, 30, 0));
  EXPECT_EQ(pixel(Image::decode(as_span(encode(picture, ".png"))).value(), 0, 0), (std::vector<std::uint8_t>{30, 20, 10}));
}

TEST(Image, IsTurnedAsItsExifSays) {
  cv::Mat picture(8, 16, CV_8UC3, cv::Scalar(0, 0, 0));
  const auto plain = encode(picture, ".jpg");
  const Image turned = Image::decode(as_span(with_orientation_6(plain))).value();
  EXPECT_EQ(turned.height(), 16);
  EXPECT_EQ(turned.width(), 8);
}

TEST(Image, WhatIsNoPictureIsNamed) {
  for (const auto& name : {std::string("/nowhere/missing.png"), std::string("/proc/self/cmdline"), std::string("/")}) {
    const auto image = Image::read(name);
    ASSERT_FALSE(image.ok());
    EXPECT_NE(image.status().message().find(name), std::string::npos) << image.status().message();
  }
  EXPECT_EQ(Image::read("/nowhere/missing.png").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Image::read("/dev/null").status().code(), StatusCode::kInvalidArgument);
}

TEST(Image, APictureThatIsCutOffIsRefused) {
  cv::Mat picture(64, 64, CV_8UC3);
  cv::randu(picture, 0, 255);
  for (const char* extension : {".png", ".jpg"}) {
    auto bytes = encode(picture, extension);
    EXPECT_TRUE(Image::decode(as_span(bytes)).ok());
    bytes.resize(bytes.size() - 100);
    EXPECT_EQ(Image::decode(as_span(bytes)).status().code(), StatusCode::kInvalidArgument) << extension;
  }
}

TEST(Image, WhatLiesBehindAPictureDoesNotMatter) {
  auto bytes = encode(cv::Mat(8, 8, CV_8UC3, cv::Scalar(1, 2, 3)), ".jpg");
  bytes.insert(bytes.end(), {'m', 'p', '4', 0xff, 0xda, 7, 0xff});  // phones append a film
  const auto image = Image::decode(as_span(bytes));
  EXPECT_TRUE(image.ok()) << image.status().to_string();
}

TEST(Image, AThumbnailInAPicturesHeadIsNotThePicture) {
  auto bytes = encode(cv::Mat(64, 64, CV_8UC3, cv::Scalar(1, 2, 3)), ".jpg");
  const auto thumbnail = encode(cv::Mat(8, 8, CV_8UC3, cv::Scalar(1, 2, 3)), ".jpg");
  const std::size_t size = thumbnail.size() + 2;
  std::vector<std::uint8_t> segment = {0xff, 0xe1, static_cast<std::uint8_t>(size >> 8), static_cast<std::uint8_t>(size)};
  segment.insert(segment.end(), thumbnail.begin(), thumbnail.end());
  bytes.insert(bytes.begin() + 2, segment.begin(), segment.end());
  EXPECT_TRUE(Image::decode(as_span(bytes)).ok());
  bytes.resize(bytes.size() - 2);
  EXPECT_NE(Image::decode(as_span(bytes)).status().message().find("in the middle"), std::string::npos);
}

TEST(Image, APictureThatGetsNoMemoryIsNotCalledDamaged) {
  if (test::kSanitized) GTEST_SKIP() << "OpenCV leaks when an allocation fails, and the sanitizer reports it";
  const auto bytes = encode(cv::Mat(8, 8, CV_8UC3, cv::Scalar(1, 2, 3)), ".bmp");
  std::size_t out_of_memory = 0;
  test::for_each_allocation(1, [&](std::uint64_t number) {
    test::fail_allocation(number);
    const auto image = Image::decode(as_span(bytes));
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    out_of_memory += image.status().code() == StatusCode::kFailedPrecondition;
    EXPECT_EQ(image.status().message().find("bad_alloc"), std::string::npos) << image.status().to_string();
    return has_failed;
  });
  EXPECT_GE(out_of_memory, 1u) << "OpenCV reports some failures as damage";
}

TEST(Image, AHeadThatPromisesMoreThanTheMemoryHoldsIsNotCalledDamaged) {
  if (test::kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  auto bytes = encode(cv::Mat(8, 8, CV_8UC3, cv::Scalar(1, 2, 3)), ".bmp");
  const std::int32_t side = 30'000;
  std::memcpy(bytes.data() + 18, &side, sizeof side);
  std::memcpy(bytes.data() + 22, &side, sizeof side);
  EXPECT_EQ(test::exit_code_of([&] {
              const rlimit addresses{rlim_t{2} << 30, rlim_t{2} << 30};
              if (::setrlimit(RLIMIT_AS, &addresses) != 0) return 1;
              const Status status = Image::decode(as_span(bytes)).status();
              std::fprintf(stderr, "%s\n", status.to_string().c_str());
              return status.code() == StatusCode::kFailedPrecondition ? 0 : 2;
            }),
            0);
}

TEST(Image, AFileIsReadWithTheMemoryThatThereIs) {
  if (test::kSanitized) GTEST_SKIP() << "OpenCV leaks when an allocation fails, and the sanitizer reports it";
  const test::ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path("picture.bmp");
  cv::imwrite(file.string(), cv::Mat(8, 8, CV_8UC3, cv::Scalar(1, 2, 3)));
  std::size_t out_of_memory = 0;
  test::for_each_allocation(1, [&](std::uint64_t number) {
    test::fail_allocation(number);
    const auto image = Image::read(file);
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    out_of_memory += image.status().code() == StatusCode::kFailedPrecondition;
    return has_failed;
  });
  EXPECT_GE(out_of_memory, 2u) << "one of them is the file's bytes";
  EXPECT_TRUE(Image::read(file).ok());
}

TEST(Image, AFileThatIsTooLargeIsNotRead) {
  if (test::kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const test::ScratchDirectory scratch;
  scratch.write("huge.png", "");
  std::filesystem::resize_file(scratch.path("huge.png"), std::uintmax_t{3} << 30);
  for (const std::string& file : {scratch.path("huge.png"), std::string("/dev/zero")}) {
    EXPECT_EQ(test::exit_code_of([&] {
                const rlimit addresses{rlim_t{2} << 30, rlim_t{2} << 30};
                if (::setrlimit(RLIMIT_AS, &addresses) != 0) return 1;
                const Status status = Image::read(file).status();
                std::fprintf(stderr, "%s\n", status.to_string().c_str());
                return status.code() == StatusCode::kInvalidArgument && status.message().find(file) != std::string::npos ? 0 : 2;
              }),
              0);
  }
}

TEST(Image, ThatWasMovedFromHasNoSize) {
  Image first = Image::from_rgb(1, 2, {1, 2, 3, 4, 5, 6}).value();
  Image second = std::move(first);
  EXPECT_EQ(first.height() * first.width(), 0);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.height() * second.width(), 2);
  Image third = Image::from_rgb(1, 1, {1, 2, 3}).value();
  third = std::move(second);
  EXPECT_EQ(third.height() * third.width(), 2);
  EXPECT_EQ(second.height() * second.width(), 0);  // NOLINT(bugprone-use-after-move)
}

TEST(Image, NoBytesCrashTheDecoder) {
  cv::Mat picture(20, 30, CV_8UC3);
  cv::randu(picture, 0, 255);
  std::mt19937 random(1);
  for (const char* extension : {".png", ".jpg", ".bmp"}) {
    const auto good = encode(picture, extension);
    for (int round = 0; round < 200; ++round) {
      auto bad = good;
      bad.resize(random() % 2 ? bad.size() : random() % (bad.size() + 1));
      for (unsigned flips = 1 + random() % 8; flips-- > 0 && !bad.empty();)
        bad[random() % bad.size()] = static_cast<std::uint8_t>(random());
      const auto image = Image::decode(as_span(bad), "bad");
      EXPECT_EQ(image.ok() ? static_cast<std::size_t>(image->height()) * static_cast<std::size_t>(image->width()) * 3 : 0,
                image.ok() ? image->rgb().size() : 0);
    }
  }
}

TEST(Image, OfOwnBytesMustFitItsSides) {
  EXPECT_TRUE(Image::from_rgb(2, 3, std::vector<std::uint8_t>(18)).ok());
  EXPECT_EQ(Image::from_rgb(2, 3, std::vector<std::uint8_t>(17)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Image::from_rgb(0, 3, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Image, IsMadeOfPixelsOfEveryFormat) {
  const auto made = [](PixelFormat format, std::vector<std::uint8_t> pixels) {
    return pixel(Image::from_pixels(pixels, 1, 1, format).value(), 0, 0);
  };
  const std::vector<std::uint8_t> want{10, 20, 30};
  EXPECT_EQ(made(PixelFormat::kRgb, {10, 20, 30}), want);
  EXPECT_EQ(made(PixelFormat::kBgr, {30, 20, 10}), want);
  EXPECT_EQ(made(PixelFormat::kRgba, {10, 20, 30, 0}), want);
  EXPECT_EQ(made(PixelFormat::kBgra, {30, 20, 10, 0}), want);
  EXPECT_EQ(made(PixelFormat::kGray, {7}), (std::vector<std::uint8_t>{7, 7, 7}));
}

TEST(Image, RowsOfPixelsMayHaveGaps) {
  const std::vector<std::uint8_t> pixels{1, 2, 99, 3, 4};
  EXPECT_EQ(pixel(Image::from_pixels(pixels, 2, 2, PixelFormat::kGray, 3).value(), 1, 1)[0], 4) << "the last row needs no gap";
  struct Wrong {
    int height, width;
    std::size_t row_bytes;
  };
  for (const auto& [height, width, row_bytes] :
       {Wrong{2, 2, 4}, Wrong{2, 2, 1}, Wrong{3, 2, 3}, Wrong{0, 2, 3}, Wrong{2, -1, 3}, Wrong{1, 6, 0}, Wrong{2, 2, SIZE_MAX}})
    EXPECT_EQ(Image::from_pixels(pixels, height, width, PixelFormat::kGray, row_bytes).status().code(),
              StatusCode::kInvalidArgument);
  EXPECT_EQ(Image::from_pixels(pixels, 1, 1, static_cast<PixelFormat>(9)).status().code(), StatusCode::kInvalidArgument);
}

TEST(Image, IsMadeOfACvMat) {
  cv::Mat mat(4, 6, CV_8UC3, cv::Scalar(30, 20, 10));
  mat.at<cv::Vec3b>(2, 3) = {3, 2, 1};
  const cv::Mat part = mat(cv::Rect(3, 2, 2, 2));  // rows with gaps
  EXPECT_EQ(pixel(to_image(part).value(), 0, 0), (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_EQ(pixel(to_image(cv::Mat(1, 1, CV_8UC1, cv::Scalar(5))).value(), 0, 0), (std::vector<std::uint8_t>{5, 5, 5}));
  for (const cv::Mat& wrong : {cv::Mat(), cv::Mat(2, 2, CV_32FC3), cv::Mat(2, 2, CV_8UC2)})
    EXPECT_EQ(to_image(wrong).status().code(), StatusCode::kInvalidArgument);
}

TEST(Image, IsWrittenAsItsExtensionSays) {
  const test::ScratchDirectory files;
  const Image image = Image::from_rgb(1, 2, {1, 2, 3, 4, 5, 6}).value();
  ASSERT_TRUE(image.write(files.path("x.png")).ok());
  const Image read = Image::read(files.path("x.png")).value();
  EXPECT_TRUE(std::ranges::equal(read.rgb(), image.rgb()));
  ASSERT_TRUE(image.write(files.path("x.jpg")).ok());
  EXPECT_EQ(Image::read(files.path("x.jpg")).value().width(), 2);
  for (const char* name : {"x.what", "x", "x."}) {
    const Status status = image.write(files.path(name));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(files.path(name)), std::string::npos) << status.message();
    EXPECT_FALSE(std::filesystem::exists(files.path(name)));
  }
  EXPECT_EQ(image.write(files.path("none/x.png")).code(), StatusCode::kNotFound);
  EXPECT_EQ(Image().write(files.path("x.png")).code(), StatusCode::kInvalidArgument);
}

TEST(Image, RealPicturesAreRead) {
  if (!std::filesystem::exists(vision::test_data() / "images")) GTEST_SKIP() << "no test data at " << vision::test_data();
  const Image image = Image::read(vision::test_data() / "images" / "grace_hopper.jpg").value();
  EXPECT_EQ(image.width(), 517);
  EXPECT_EQ(image.height(), 606);
}

}  // namespace
}  // namespace shoal
