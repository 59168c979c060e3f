// The parameter file's reader against damaged files: every cut, and every field changed.
#include "worker/import/mxnet/mxnet_params.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace shoal::worker {
namespace {

class MxnetParams : public ::testing::Test {
 protected:
  MxnetParams() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shoal-params-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~MxnetParams() override { std::filesystem::remove_all(directory_); }

  Result<std::vector<MxnetArray>> read(const std::string& bytes) {
    const auto path = directory_ / "m-0000.params";
    std::ofstream(path, std::ios::binary) << bytes;
    return read_mxnet_params(path);
  }
  void expect_damaged(const std::string& bytes, const std::string& field, StatusCode code = StatusCode::kDataLoss) {
    const auto arrays = read(bytes);
    ASSERT_FALSE(arrays.ok()) << field;
    EXPECT_EQ(arrays.status().code(), code) << arrays.status().to_string();
    for (const std::string& part : {std::string("m-0000.params"), std::string("offset"), field}) {
      EXPECT_NE(arrays.status().message().find(part), std::string::npos) << arrays.status().to_string();
    }
  }
  std::filesystem::path directory_;
};

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
std::string with(std::string bytes, std::size_t offset, T value) {
  return bytes.replace(offset, sizeof(T), raw(value));
}

// Offsets in good(): the record begins at 24.
constexpr std::size_t kCount = 16, kMagic = 24, kStorage = 28, kRank = 32, kDim0 = 36, kType = 60, kNames = 88, kNameLength = 96;

/// One array arg:w of 2x3 float32.
std::string good() {
  std::string bytes = raw<std::uint64_t>(0x112) + raw<std::uint64_t>(0) + raw<std::uint64_t>(1);
  bytes +=
      raw<std::uint32_t>(0xF993fac9) + raw<std::int32_t>(0) + raw<std::int32_t>(2) + raw<std::int64_t>(2) + raw<std::int64_t>(3);
  bytes += raw<std::int32_t>(1) + raw<std::int32_t>(0) + raw<std::int32_t>(0);
  for (int i = 0; i < 6; ++i) bytes += raw<float>(static_cast<float>(i));
  return bytes + raw<std::uint64_t>(1) + raw<std::uint64_t>(5) + "arg:w";
}

TEST_F(MxnetParams, AreReadWithoutACopy) {
  const auto arrays = read(good());
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  ASSERT_EQ(arrays->size(), 1u);
  EXPECT_EQ(arrays->front().name, "arg:w");
  EXPECT_EQ(arrays->front().array.shape, (Shape{2, 3}));
  EXPECT_EQ(arrays->front().array.bytes.size(), 24u);
  EXPECT_NE(arrays->front().array.owner, nullptr);
}

TEST_F(MxnetParams, MayBeAnEmptyList) {
  EXPECT_TRUE(read(raw<std::uint64_t>(0x112) + raw<std::uint64_t>(0) + raw<std::uint64_t>(0) + raw<std::uint64_t>(0)).ok());
}

TEST_F(MxnetParams, AreRefusedCutAtEveryByte) {
  for (std::size_t size = 0; size < good().size(); ++size) {
    const auto arrays = read(good().substr(0, size));
    ASSERT_FALSE(arrays.ok()) << "cut to " << size;
    EXPECT_EQ(arrays.status().code(), StatusCode::kDataLoss) << arrays.status().to_string();
  }
}

TEST_F(MxnetParams, AreRefusedByTheFieldThatIsWrong) {
  expect_damaged(good() + "x", "end");
  expect_damaged(with<std::uint64_t>(good(), 0, 0x113), "list magic");
  expect_damaged(with<std::uint64_t>(good(), kCount, std::uint64_t{1} << 60), "number of arrays");
  expect_damaged(with<std::uint64_t>(good(), kCount, 2), "array 1 of 2");
  expect_damaged(with<std::uint32_t>(good(), kMagic, 0xF993FACB), "magic of an array");
  expect_damaged(with<std::uint32_t>(good(), kMagic, 33), "magic of an array");
  expect_damaged(with<std::int32_t>(good(), kStorage, 7), "storage type");
  expect_damaged(with<std::int32_t>(good(), kRank, -2), "rank");
  expect_damaged(with<std::int32_t>(good(), kRank, 0x7fffffff), "rank");
  expect_damaged(with<std::int64_t>(good(), kDim0, -1), "dimension");
  expect_damaged(with<std::int64_t>(good(), kDim0, std::int64_t{1} << 62), "data");
  for (const std::int32_t flag : {13, -1, 200}) expect_damaged(with<std::int32_t>(good(), kType, flag), "type flag");
  expect_damaged(with<std::uint64_t>(good(), kNames, 0), "end");
  expect_damaged(with<std::uint64_t>(good(), kNames, 2), "number of names");
  expect_damaged(with<std::uint64_t>(good(), kNameLength, std::uint64_t{1} << 63), "length of a name");
  expect_damaged(with<char>(good(), good().size() - 1, '\xff'), "name");
}

TEST_F(MxnetParams, SurviveAnyByteBeingFlipped) {
  for (std::size_t at = 0; at < good().size(); ++at) {
    for (const unsigned char mask : {0x01, 0x80, 0xff}) {
      std::string bytes = good();
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ mask);
      const auto arrays = read(bytes);  // refused or read, never a crash
      if (!arrays.ok()) continue;
      for (const MxnetArray& array : *arrays) EXPECT_LE(array.array.bytes.size(), bytes.size());
    }
  }
}

TEST_F(MxnetParams, ThatAreNotThereAreNotFound) {
  EXPECT_EQ(read_mxnet_params(directory_ / "none.params").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_mxnet_params(directory_).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::worker
