// Files of arrays of every release, as float32.
#include <gtest/gtest.h>

#include "shm/tensor/floats.hpp"
#include "tests/support/vectors.hpp"
#include "tests/unit/client/predict/predict_fixture.hpp"

namespace shoal::test {
namespace {

struct Array {
  std::string name;
  Sizes shape;
  std::vector<float> values;
  friend bool operator==(const Array&, const Array&) = default;
  friend void PrintTo(const Array& array, std::ostream* out) {
    *out << "'" << array.name << "' " << ::testing::PrintToString(array.shape) << ::testing::PrintToString(array.values);
  }
};

/// All arrays. They are read after the bytes are gone, and after all others were asked for.
std::vector<Array> read_all(std::string bytes) {
  NDListHandle list = nullptr;
  std::uint32_t length = 77;
  EXPECT_EQ(MXNDListCreate(bytes.data(), static_cast<int>(bytes.size()), &list, &length), 0) << MXGetLastError();
  bytes.assign(bytes.size(), 'x');
  std::vector<const char*> keys(length);
  std::vector<const float*> data(length);
  std::vector<const std::uint32_t*> shapes(length);
  Sizes ranks(length);
  for (std::uint32_t i = 0; i < length; ++i)
    EXPECT_EQ(MXNDListGet(list, i, &keys[i], &data[i], &shapes[i], &ranks[i]), 0) << MXGetLastError();
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < length; ++i) {
    Array& array = arrays.emplace_back(Array{keys[i], {shapes[i], shapes[i] + ranks[i]}, {}});
    const auto count = std::accumulate(array.shape.begin(), array.shape.end(), std::size_t{1}, std::multiplies<>());
    array.values.assign(data[i], data[i] + count);
  }
  const char* key = nullptr;
  const float* values = nullptr;
  const std::uint32_t* shape = nullptr;
  std::uint32_t rank = 0;
  EXPECT_EQ(MXNDListGet(list, length, &key, &values, &shape, &rank), -1);
  EXPECT_TRUE(error_says({"MXNDListGet", "no array " + std::to_string(length)}));
  EXPECT_EQ(MXNDListFree(list), 0);
  return arrays;
}

template <typename T>
std::string as_bytes(const std::vector<T>& values) {
  std::string bytes;
  for (const T& value : values) bytes += raw(value);
  return bytes;
}

TEST(NDList, ReadsRecordsOfEachEra) {
  for (const Era era : {Era::kV0, Era::kV1, Era::kV2, Era::kV3}) {
    const std::string bytes = list({record(era, {2, 3}, 0, floats(6)), record(era, {1}, 0, floats(1))}, {"mean", "b"});
    EXPECT_EQ(read_all(bytes), (std::vector<Array>{{"mean", {2, 3}, {0, 1, 2, 3, 4, 5}}, {"b", {1}, {0}}}));
  }
}

TEST(NDList, ArraysMayHaveNoNames) {
  EXPECT_EQ(read_all(list({record(Era::kV2, {2}, 0, floats(2))}, {})), (std::vector<Array>{{"", {2}, {0, 1}}}));
  EXPECT_EQ(read_all(list({}, {})), std::vector<Array>{});
}

// MXNet 1.9.1 copies their bytes.
TEST(NDList, OtherTypesBecomeFloat32) {
  using shoal::Half;
  const std::vector<std::string> records{record(Era::kV2, {2}, 1, as_bytes<double>({0.5, -2})),
                                         record(Era::kV2, {2}, 2, as_bytes<Half>({Half(1.5f), Half(-4)})),
                                         record(Era::kV2, {2}, 3, as_bytes<std::uint8_t>({1, 255})),
                                         record(Era::kV2, {2}, 4, as_bytes<std::int32_t>({7, -8})),
                                         record(Era::kV2, {2}, 5, as_bytes<std::int8_t>({1, -1})),
                                         record(Era::kV2, {2}, 6, as_bytes<std::int64_t>({9, -10})),
                                         record(Era::kV2, {2}, 7, as_bytes<std::uint8_t>({0, 1}))};
  const std::vector<Array> arrays = read_all(list(records, {"f64", "f16", "u8", "i32", "i8", "i64", "bool"}));
  EXPECT_EQ(arrays, (std::vector<Array>{{"f64", {2}, {0.5, -2}},
                                        {"f16", {2}, {1.5, -4}},
                                        {"u8", {2}, {1, 255}},
                                        {"i32", {2}, {7, -8}},
                                        {"i8", {2}, {1, -1}},
                                        {"i64", {2}, {9, -10}},
                                        {"bool", {2}, {0, 1}}}));
}

TEST(NDList, ReadsScalarsEmptyAndSparseArraysAndArchives) {
  EXPECT_EQ(read_all(list({record(Era::kV3, {}, 0, floats(1))}, {"s"})), (std::vector<Array>{{"s", {}, {0}}}));
  EXPECT_EQ(read_all(list({record(Era::kV3, {2, 0}, 0, "")}, {"e"})), (std::vector<Array>{{"e", {2, 0}, {}}}));
  const std::vector<float> elements{0, 1, 0, 0, 0, 2};
  for (const std::int32_t storage : {1, 2}) {
    EXPECT_EQ(read_all(list({sparse_record(storage, 3, 2, elements)}, {"w"})), (std::vector<Array>{{"w", {3, 2}, elements}}));
  }
  const Archive npz = archive({{"a.npy", npy("<f4", "False", "(2,)", floats(2))}});
  EXPECT_EQ(read_all(npz.bytes), (std::vector<Array>{{"a", {2}, {0, 1}}}));
}

TEST(NDList, WhatItCannotReadIsNamed) {
  const std::string good = list({record(Era::kV2, {2}, 0, floats(2))}, {"mean"});
  NDListHandle handle = &handle;
  std::uint32_t length = 77;
  const auto refuses = [&](const char* bytes, int size, std::initializer_list<std::string_view> words) {
    EXPECT_EQ(MXNDListCreate(bytes, size, &handle, &length), -1);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(length, 0u);
    return error_says(words);
  };
  EXPECT_TRUE(refuses(nullptr, 3, {"MXNDListCreate", "nd_file_bytes", "NULL"}));
  EXPECT_TRUE(refuses(good.data(), -5, {"nd_file_bytes", "-5"}));
  EXPECT_TRUE(refuses(good.data(), 0, {"nd_file_bytes", "offset 0"}));
  EXPECT_TRUE(refuses("what is this, it has no meaning", 31, {"nd_file_bytes", "magic"}));
  for (int size = 0; size < static_cast<int>(good.size()); ++size)
    EXPECT_TRUE(refuses(good.data(), size, {"nd_file_bytes", "offset"})) << size;
  const std::string none = list({record(Era::kV2, {}, 0, "").substr(0, 12)}, {"nothing"});
  EXPECT_TRUE(refuses(none.data(), static_cast<int>(none.size()), {"nothing", "no value"}));
  EXPECT_EQ(MXNDListCreate(good.data(), static_cast<int>(good.size()), nullptr, &length), -1);
  EXPECT_TRUE(error_says({"out", "NULL"}));
  EXPECT_EQ(MXNDListCreate(good.data(), static_cast<int>(good.size()), &handle, nullptr), -1);
  EXPECT_TRUE(error_says({"out_length", "NULL"}));
}

TEST(NDList, FilesOfEachReleaseAreRead) {
  const auto folder = testing::test_data() / "models" / "params-formats";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << "; set SHOAL_TEST_DATA";
  const std::vector<Array> legacy = read_all(file_text(folder / "legacy_ndarray.v0"));
  ASSERT_EQ(legacy.size(), 6u);
  std::vector<float> ramp(128);
  std::iota(ramp.begin(), ramp.end(), 0.f);
  for (const Array& array : legacy) EXPECT_EQ(array, (Array{"", {128}, ramp}));
  const auto count = [&](const char* name) { return read_all(file_text(folder / name)).size(); };
  EXPECT_EQ(count("sockeye-2.1.x-params.best"), 34u);
  EXPECT_EQ(count("sockeye-2.3.x-params.best.mx"), 33u);
  EXPECT_EQ(count("sockeye-2.4.x-params.best.npz"), 33u);
  EXPECT_EQ(count("straight-dope-testnet.params"), 6u);
  const std::string foreign = file_text(folder / "not-mxnet-pytorch.params");
  NDListHandle handle = nullptr;
  std::uint32_t length = 0;
  EXPECT_EQ(MXNDListCreate(foreign.data(), static_cast<int>(foreign.size()), &handle, &length), -1);
  EXPECT_TRUE(error_says({"nd_file_bytes"}));
}

}  // namespace
}  // namespace shoal::test
