#include "shm/tensor/npy.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;

class Npy : public testing::Test {
 protected:
  fs::path file(const std::string& bytes) const {
    const fs::path path = directory_ / "x.npy";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  /// A file of the given header and data; version 1.0 or 2.0.
  fs::path file_of(const std::string& header, const std::string& data, char major = 1) const {
    std::string bytes = std::string("\x93NUMPY") + major + '\0';
    const std::size_t size = header.size();
    for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>(size >> (8 * i) & 0xff);
    return file(bytes + header + data);
  }

  static std::string header(const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  }

  /// The read must fail with `code` and name the file and `field`.
  static void expect_refused(const fs::path& path, StatusCode code, const std::string& field) {
    const auto tensor = read_npy(path);
    ASSERT_FALSE(tensor.ok()) << field;
    EXPECT_EQ(tensor.status().code(), code) << tensor.status().to_string();
    EXPECT_NE(tensor.status().message().find(path.string()), std::string::npos) << tensor.status().message();
    EXPECT_NE(tensor.status().message().find(field), std::string::npos) << tensor.status().message();
    const bool has_offset = tensor.status().message().find("offset") != std::string::npos;
    EXPECT_TRUE(has_offset || code == StatusCode::kNotFound) << tensor.status().message();
  }

  const test::ScratchDirectory scratch_;
  const fs::path directory_ = scratch_.path();
};

TEST_F(Npy, WhatIsWrittenIsReadBackForEveryTypeAndRank) {
  const Shape shapes[] = {{}, {0, 3}, {5}, {2, 3}, {1, 2, 3, 4, 1, 1, 2, 1}};
  for (int number = 1; number <= static_cast<int>(DType::kBool); ++number) {
    for (const Shape& shape : shapes) {
      Tensor tensor = Tensor::create(static_cast<DType>(number), shape).value();
      std::uint8_t next = 0;
      for (std::byte& byte : tensor.view().bytes()) byte = std::byte{next++};
      const fs::path path = directory_ / "round.npy";
      ASSERT_TRUE(write_npy(path, tensor.view()).ok());
      const Tensor read = read_npy(path).value();
      EXPECT_EQ(read.dtype(), tensor.dtype());
      EXPECT_EQ(read.shape(), shape);
      EXPECT_TRUE(std::ranges::equal(read.view().bytes(), tensor.view().bytes()))
          << dtype_name(tensor.dtype()) << shape.to_string();
    }
  }
}

TEST_F(Npy, DataBeginsAtAMultipleOf64Bytes) {
  const Tensor tensor = Tensor::create(DType::kUInt8, {3}).value();
  ASSERT_TRUE(write_npy(directory_ / "aligned.npy", tensor.view()).ok());
  EXPECT_EQ(fs::file_size(directory_ / "aligned.npy") % 64, 3u);
}

TEST_F(Npy, FortranOrderBecomesRowMajor) {
  const std::string columns = {0, 3, 1, 4, 2, 5};  // [[0, 1, 2], [3, 4, 5]] with the first index fastest
  const Tensor tensor = read_npy(file_of(header("|u1", "True", "(2, 3)"), columns)).value();
  std::vector<std::uint8_t> expected(6);
  std::iota(expected.begin(), expected.end(), std::uint8_t{0});
  EXPECT_TRUE(std::ranges::equal(tensor.values<std::uint8_t>(), expected));
}

TEST_F(Npy, Version2AndHeadersOfOtherWritersAreRead) {
  EXPECT_EQ(read_npy(file_of(header("|u1", "False", "(2,)"), "ab", 2)).value().shape(), (Shape{2}));
  EXPECT_EQ(read_npy(file_of(header("<b2", "False", "(1L, 2L)"), "abcd")).value().dtype(), DType::kBFloat16);  // MXNet 2's
  EXPECT_EQ(read_npy(file_of("{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<u1\"}", "ab")).value().shape(),
            (Shape{2, 1}));
}

TEST_F(Npy, DamageIsRefusedNamingFileAndField) {
  expect_refused(directory_ / "missing.npy", StatusCode::kNotFound, "missing.npy");
  expect_refused(file(""), StatusCode::kDataLoss, "magic");
  expect_refused(file("\x93NUMPX\1"), StatusCode::kDataLoss, "magic");
  expect_refused(file("PK\3\4 an .npz is an archive"), StatusCode::kDataLoss, "magic");
  expect_refused(file(std::string("\x93NUMPY\3\0", 8)), StatusCode::kUnimplemented, "version");
  expect_refused(file(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12)), StatusCode::kDataLoss, "header length");
  expect_refused(file("\x93NUMPY\1" + std::string("\0\x40\0{", 4)), StatusCode::kDataLoss, "header");
  expect_refused(file_of("nonsense", ""), StatusCode::kDataLoss, "header");
  expect_refused(file_of("{'descr': '<f4', 'fortran_order': False, }", ""), StatusCode::kDataLoss, "shape");
  expect_refused(file_of("{'descr': '<f4', 'shape': (1,), }", "1234"), StatusCode::kDataLoss, "fortran_order");
  expect_refused(file_of("{'fortran_order': False, 'shape': (1,), }", "1234"), StatusCode::kDataLoss, "descr");
  expect_refused(file_of(header(">f4", "False", "(1,)"), "1234"), StatusCode::kUnimplemented, ">f4");
  expect_refused(file_of(header("<U3", "False", "(1,)"), "1234"), StatusCode::kUnimplemented, "<U3");
  expect_refused(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
                 StatusCode::kUnimplemented, "descr");
  expect_refused(file_of(header("<f4", "Maybe", "(1,)"), "1234"), StatusCode::kDataLoss, "fortran_order");
  expect_refused(file_of(header("<f4", "False", "(-1,)"), "1234"), StatusCode::kDataLoss, "shape");
  expect_refused(file_of(header("<f4", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "1234"), StatusCode::kDataLoss, "shape");
}

TEST_F(Npy, AShapeThatPromisesMoreThanTheFileHoldsTakesNoMemory) {
  expect_refused(file_of(header("<f8", "False", "(4611686018427387904, 8)"), "12345678"), StatusCode::kDataLoss, "shape");
  expect_refused(file_of(header("<f8", "False", "(99999999999,)"), "12345678"), StatusCode::kDataLoss, "shape");
  expect_refused(file_of(header("<f4", "False", "(2,)"), "1234"), StatusCode::kDataLoss, "shape");
  expect_refused(file_of(header("<f4", "False", "(1,)"), "12345678"), StatusCode::kDataLoss, "shape");
}

TEST_F(Npy, NoBytesCrashTheReader) {
  const Tensor written = Tensor::create(DType::kFloat32, {2, 3}).value();
  ASSERT_TRUE(write_npy(directory_ / "good.npy", written.view()).ok());
  std::ifstream stream(directory_ / "good.npy", std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(stream), {}};
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    std::string bad = good.substr(0, random() % 2 ? good.size() : random() % (good.size() + 1));
    for (unsigned flips = random() % 4; flips-- > 0 && !bad.empty();)
      bad[random() % std::min<std::size_t>(bad.size(), 90)] = static_cast<char>(random());
    const auto tensor = read_npy(file(bad));
    EXPECT_LE(tensor.ok() ? tensor->size_bytes() : 0, bad.size());
  }
}

TEST_F(Npy, WhereNothingCanBeWrittenTheFileIsNamed) {
  const Tensor tensor = Tensor::create(DType::kInt8, {1}).value();
  const Status status = write_npy(directory_ / "no" / "such.npy", tensor.view());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("such.npy"), std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process

// A sparse file may be of any size.
TEST_F(Npy, AFileThatNoMemoryHoldsIsRefused) {
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), std::int64_t{1} << 62), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const auto tensor = read_npy(path);
  EXPECT_EQ(tensor.status().code(), StatusCode::kFailedPrecondition) << tensor.status().to_string();
  EXPECT_NE(tensor.status().message().find(path), std::string::npos) << tensor.status().message();
}

#endif

/// Where files are mapped, a read of what is gone is a SIGBUS.
TEST_F(Npy, AFileThatIsCutWhileItIsReadIsReadOrRefused) {
  constexpr std::int64_t kCount = 1 << 20;
  const fs::path path = directory_ / "cut.npy";
  const Tensor tensor = Tensor::create(DType::kFloat32, {kCount}).value();
  ASSERT_TRUE(write_npy(path, tensor.view()).ok());
  const auto whole = fs::file_size(path);
  std::jthread writer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      fs::resize_file(path, 100);
      fs::resize_file(path, whole);
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto read = read_npy(path);
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << read.status().to_string();
    }
  }
}

}  // namespace
}  // namespace shoal
