// The reader of array files: every era as it was written, and each field changed.
#include "worker/import/mxnet/mxnet_params.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "tests/unit/worker/import/mxnet/refusals.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::worker {
namespace {

using namespace test;  // NOLINT: makers of files

Result<std::vector<NamedArray>> read(const std::string& bytes, const ImportLimits& limits = {}) {
  MemoryBudget budget(limits);
  return parse_mxnet_params({"m-0000.params", std::as_bytes(std::span(bytes)), nullptr}, budget);
}

void expect_arrays_refused(const std::string& bytes, const std::vector<std::string>& parts,
                           StatusCode code = StatusCode::kDataLoss) {
  std::vector<std::string> wanted = parts;
  wanted.insert(wanted.end(), {"m-0000.params", "offset"});
  expect_refusal(read(bytes).status(), code, wanted);
}

/// What an array holds; it may be a view into the bytes that were read.
std::string text(const Constant& array) { return {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()}; }

const char* const kKey = "arg:w";
constexpr std::int32_t kFloat32 = 0;
// Offsets in good(): the record begins at 24.
constexpr std::size_t kCount = 16, kMagic = 24, kStorage = 28, kRank = 32, kDim0 = 36, kType = 60, kNames = 88, kNameLength = 96;

/// One V2 array of 2x3 float32.
std::string good() { return list({record(Era::kV2, {2, 3}, kFloat32, floats(6))}, {kKey}); }

TEST(MxnetParams, OfEveryEraAreReadWithoutACopy) {
  for (const Era era : {Era::kV0, Era::kV1, Era::kV2, Era::kV3}) {
    const std::string bytes = list({record(era, {2, 3}, kFloat32, floats(6))}, {kKey});
    const auto arrays = read(bytes);
    ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
    ASSERT_EQ(arrays->size(), 1u);
    EXPECT_EQ(arrays->front().name, kKey);
    EXPECT_EQ(arrays->front().array.dtype, DType::kFloat32);
    EXPECT_EQ(arrays->front().array.shape, (Shape{2, 3}));
    EXPECT_EQ(text(arrays->front().array), floats(6));
    EXPECT_GE(static_cast<const void*>(arrays->front().array.bytes.data()), bytes.data());
    EXPECT_LT(static_cast<const void*>(arrays->front().array.bytes.data()), bytes.data() + bytes.size());
  }
}

TEST(MxnetParams, OfSeveralErasMayStandInOneFileInAnyOrder) {
  const auto one = [](Era era) { return record(era, {1}, kFloat32, floats(1)); };
  const auto arrays = read(list({one(Era::kV3), one(Era::kV0), one(Era::kV2), one(Era::kV1)}, {"a", "b", "c", "d"}));
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  for (const NamedArray& array : *arrays) EXPECT_EQ(array.array.shape, Shape{1});
}

TEST(MxnetParams, HaveEveryElementType) {
  const std::pair<DType, std::size_t> types[] = {
      {DType::kFloat32, 4}, {DType::kFloat64, 8}, {DType::kFloat16, 2}, {DType::kUInt8, 1}, {DType::kInt32, 4},
      {DType::kInt8, 1},    {DType::kInt64, 8},   {DType::kBool, 1},    {DType::kInt16, 2}, {DType::kUInt16, 2},
      {DType::kUInt32, 4},  {DType::kUInt64, 8},  {DType::kBFloat16, 2}};
  for (std::int32_t flag = 0; flag < 13; ++flag) {
    const auto [dtype, size] = types[flag];
    const auto arrays = read(list({record(Era::kV2, {3}, flag, std::string(3 * size, '\1'))}, {kKey}));
    ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
    EXPECT_EQ(arrays->front().array.dtype, dtype);
  }
}

TEST(MxnetParams, OfNumpyShapesMayBeScalarsAndHaveNoElements) {
  const std::string file =
      list({record(Era::kV3, {}, kFloat32, floats(1)), record(Era::kV3, {2, 0, 3}, kFloat32, "")}, {"a", "b"});
  const auto arrays = read(file);
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_EQ((*arrays)[0].array.shape, Shape{});
  EXPECT_EQ(text((*arrays)[0].array), floats(1));
  EXPECT_EQ((*arrays)[1].array.shape, (Shape{2, 0, 3}));
  EXPECT_TRUE((*arrays)[1].array.bytes.empty());
}

TEST(MxnetParams, OfLegacyShapesHoldNoDataWhereADimensionIsUnknown) {
  const auto arrays =
      read(list({record(Era::kV2, {0, 3}, kFloat32, ""), record(Era::kV2, {1}, kFloat32, floats(1))}, {"a", "b"}));
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_TRUE((*arrays)[0].array.bytes.empty());
}

TEST(MxnetParams, ThatAreNoneEndWithTheirShape) {
  const std::string v2 = raw<std::uint32_t>(0xF993fac9) + raw<std::int32_t>(0),
                    v3 = raw<std::uint32_t>(0xF993faca) + raw<std::int32_t>(0);
  const std::vector<std::string> nones{raw<std::uint32_t>(0),      raw<std::uint32_t>(0xF993fac8) + raw<std::int32_t>(0),
                                       v2 + raw<std::int32_t>(0),  v2 + raw<std::int32_t>(-1),
                                       v3 + raw<std::int32_t>(-1), v3 + raw<std::int32_t>(1) + raw<std::int64_t>(-1)};
  for (const std::string& none : nones) {
    const auto arrays = read(list({none, record(Era::kV2, {1}, kFloat32, floats(1))}, {"none", "after"}));
    ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
    EXPECT_EQ((*arrays)[0].array.dtype, DType::kInvalid);
    EXPECT_EQ((*arrays)[1].array.dtype, DType::kFloat32);
  }
}

TEST(MxnetParams, MayBeAnEmptyListOrHaveNoNames) {
  EXPECT_TRUE(read(list({}, {})).ok());
  const auto arrays = read(list({record(Era::kV2, {1}, kFloat32, floats(1))}, {}));
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_EQ(arrays->front().name, "");
}

/// The only array of the file, which it may view.
NamedArray only(const std::string& bytes) {
  const auto arrays = read(bytes);
  EXPECT_TRUE(arrays.ok()) << arrays.status().to_string();
  return arrays.ok() ? arrays->front() : NamedArray();
}

TEST(MxnetParams, MayBeSparse) {
  const std::string rows_file = list({sparse_record(1)}, {kKey}), csr_file = list({sparse_record(2)}, {kKey});
  const NamedArray rows = only(rows_file), few = only(csr_file);
  for (const NamedArray& array : {rows, few}) {
    EXPECT_EQ(array.array.dtype, DType::kFloat32);
    EXPECT_EQ(array.array.shape, (Shape{5, 2}));
    EXPECT_TRUE(array.array.bytes.empty());
    ASSERT_NE(array.sparse, nullptr);
    EXPECT_EQ(array.sparse->indices.dtype, DType::kInt64);
    EXPECT_EQ(text(array.sparse->indices), raw<std::int64_t>(1));
  }
  EXPECT_EQ(rows.sparse->storage, Storage::kRowSparse);
  EXPECT_EQ(rows.sparse->values.shape, (Shape{1, 2}));
  EXPECT_EQ(text(rows.sparse->values), floats(2));
  EXPECT_EQ(few.sparse->storage, Storage::kCsr);
  EXPECT_EQ(few.sparse->indptr.shape, Shape{6});
  EXPECT_EQ(text(few.sparse->values), floats(1));
}

TEST(MxnetParams, ThatAreSparseMayBeMadeDense) {
  const std::string bytes = list({sparse_record(1), sparse_record(2)}, {"a", "b"});
  const ForeignFile file{"m-0000.params", std::as_bytes(std::span(bytes)), nullptr};
  MemoryBudget budget{ImportLimits()};
  auto arrays = parse_mxnet_params(file, budget).value();
  ASSERT_TRUE(make_dense(file, arrays, budget).ok());
  EXPECT_EQ(text(arrays[0].array), std::string(8, '\0') + floats(2) + std::string(24, '\0'));
  EXPECT_EQ(text(arrays[1].array), std::string(40, '\0'));  // its only number is 0
  EXPECT_EQ(arrays[0].sparse, nullptr);
}

TEST(MxnetParams, ThatAreSparseAreRefusedByTheIndexThatIsWrong) {
  const std::string rows = list({sparse_record(1)}, {kKey}), csr = list({sparse_record(2)}, {kKey});
  const std::size_t row = rows.size() - 8 - 8 - 5 - 8, column = csr.size() - 8 - 8 - 5 - 8, bounds = column - 6 * 8;
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{5}, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 62}) {
    expect_arrays_refused(with(rows, row, wrong),
                          {"row_sparse array 'arg:w'", "row number 0", "5 of them", std::to_string(wrong)});
    expect_arrays_refused(with(csr, column, wrong), {"csr array 'arg:w'", "column number 0", "2 of them"});
    expect_arrays_refused(with(csr, bounds, wrong), {"csr array 'arg:w'", "begins with"});
    expect_arrays_refused(with(csr, bounds + 8, wrong), {"csr array 'arg:w'", "indptr"});
    expect_arrays_refused(with(csr, bounds + 5 * 8, wrong), {"csr array 'arg:w'", "ends with"});
  }
  EXPECT_EQ(text(read(with(csr, column, std::int64_t{0})).value()[0].sparse->indices), raw<std::int64_t>(0));
}

TEST(MxnetParams, AreRefusedCutAtEveryByte) {
  for (const Era era : {Era::kV0, Era::kV1, Era::kV2, Era::kV3}) {
    const std::string whole = list({record(era, {2}, kFloat32, floats(2)), record(era, {1}, kFloat32, floats(1))}, {"a", "b"});
    for (std::size_t size = 0; size < whole.size(); ++size) expect_arrays_refused(whole.substr(0, size), {"truncated"});
  }
}

TEST(MxnetParams, AreRefusedByTheFieldThatIsWrong) {
  expect_arrays_refused(good() + "x", {"end"});
  expect_arrays_refused(with<std::uint64_t>(good(), 0, 0x113), {"list magic"});
  expect_arrays_refused(with<std::uint64_t>(good(), kCount, std::uint64_t{1} << 60), {"number of arrays"});
  expect_arrays_refused(with<std::uint64_t>(good(), kCount, 2), {"array 1 of 2"});
  for (const std::uint32_t magic : {0xF993FACBu, 33u, 1u << 31})
    expect_arrays_refused(with<std::uint32_t>(good(), kMagic, magic), {"array 0 of 1", "magic of an array"});
  for (const std::int32_t storage : {7, -1})
    expect_arrays_refused(with<std::int32_t>(good(), kStorage, storage), {"storage type"});
  for (const std::int32_t rank : {-2, 0x7fffffff}) expect_arrays_refused(with<std::int32_t>(good(), kRank, rank), {"rank"});
  expect_arrays_refused(with<std::int64_t>(good(), kDim0, -1), {"dimension"});
  expect_arrays_refused(with<std::int64_t>(good(), kDim0, std::int64_t{1} << 62), {"data"});
  for (const std::int32_t flag : {13, -1, 200}) expect_arrays_refused(with<std::int32_t>(good(), kType, flag), {"type flag"});
  expect_arrays_refused(with<std::uint64_t>(good(), kNames, 0), {"end"});
  expect_arrays_refused(with<std::uint64_t>(good(), kNames, 2), {"number of names"});
  expect_arrays_refused(with<std::uint64_t>(good(), kNameLength, std::uint64_t{1} << 63), {"length of a name"});
  expect_arrays_refused(with<char>(good(), good().size() - 1, '\xff'), {"name 0", "UTF-8"});
  const std::string v3 = list({record(Era::kV3, {2, 3}, kFloat32, floats(6))}, {kKey});
  expect_arrays_refused(with<std::int32_t>(v3, kStorage, 1), {"storage type"});
  expect_arrays_refused(with<std::int64_t>(v3, kDim0, -2), {"dimension"});
}

TEST(MxnetParams, TakeNoMoreMemoryThanIsAllowed) {
  std::vector<std::string> names(1000, "n");
  const std::string bytes = list(std::vector<std::string>(1000, raw<std::uint32_t>(0)), names);
  EXPECT_TRUE(read(bytes).ok());
  const auto arrays = read(bytes, {.memory_bytes = 4096});
  ASSERT_FALSE(arrays.ok());
  EXPECT_EQ(arrays.status().code(), StatusCode::kInvalidArgument);
  for (const char* part : {"m-0000.params", "4096"}) EXPECT_NE(arrays.status().message().find(part), std::string::npos);
}

TEST(MxnetParams, ThatAreNotThereAreNotFound) {
  EXPECT_EQ(read_mxnet_params("/no/such.params").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_mxnet_params("/").status().code(), StatusCode::kInvalidArgument);
}

// ---- archives of .npy

std::string ramp() { return npy("<f4", "False", "(2, 3)", floats(6)); }

TEST(MxnetArchive, IsReadStoredDeflatedStreamedAndWithZip64) {
  for (int variant = 0; variant < 16; ++variant) {
    const bool deflated = variant & 1, streamed = variant & 2, zip64 = variant & 4;
    const std::string file = archive({{"arg:w.npy", ramp(), deflated, streamed, zip64},
                                      {"aux:x.npy", npy("|i1", "False", "()", "a"), deflated, streamed, zip64}},
                                     variant & 8)
                                 .bytes;
    const auto arrays = read(file);
    ASSERT_TRUE(arrays.ok()) << variant << ": " << arrays.status().to_string();
    ASSERT_EQ(arrays->size(), 2u);
    EXPECT_EQ((*arrays)[0].name, kKey);
    EXPECT_EQ((*arrays)[0].array.shape, (Shape{2, 3}));
    EXPECT_EQ(text((*arrays)[0].array), floats(6));
    EXPECT_EQ((*arrays)[1].array.shape, Shape{});
  }
}

TEST(MxnetArchive, MayBeEmpty) { EXPECT_TRUE(read(archive({}).bytes).ok()); }

TEST(MxnetArchive, MayHoldColumnsAndBfloat16) {
  const std::string columns = raw(0.f) + raw(3.f) + raw(1.f) + raw(4.f) + raw(2.f) + raw(5.f);
  const std::string file =
      archive({{"c.npy", npy("<f4", "True", "(2, 3)", columns)}, {"b.npy", npy("<b2", "False", "(1,)", "ab")}}).bytes;
  const auto arrays = read(file);
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_EQ(text((*arrays)[0].array), floats(6));
  EXPECT_EQ((*arrays)[1].array.dtype, DType::kBFloat16);
}

TEST(MxnetArchive, MayBeOneNpyFileAlone) {
  const std::string file = ramp();
  const auto arrays = read(file);
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_EQ(arrays->front().name, "");
  EXPECT_EQ(text(arrays->front().array), floats(6));
}

TEST(MxnetArchive, KeepsSlashesInNames) {
  EXPECT_EQ(read(archive({{"arg:a/b.npy", ramp()}, {"arg:a/format.npy", ramp()}}).bytes).value().at(0).name, "arg:a/b");
}

std::string numbers(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const std::int64_t value : values) bytes += raw(value);
  return npy("<i8", "False", "(" + std::to_string(values.size()) + ",)", bytes);
}

TEST(MxnetArchive, MayHoldFoldersOfSparseArrays) {
  const auto arrays = read(archive({{"s/data.npy", npy("<f4", "False", "(3,)", floats(3))},
                                    {"arg:b.npy", ramp()},
                                    {"s/indices.npy", numbers({1, 0, 2}), true},
                                    {"s/indptr.npy", numbers({0, 1, 3})},
                                    {"s/shape.npy", numbers({2, 3})},
                                    {"s/format.npy", "csr"},
                                    {"arg:r/s/data.npy", ramp()},
                                    {"arg:r/s/indices.npy", numbers({0, 7})},
                                    {"arg:r/s/shape.npy", numbers({8, 3})},
                                    {"arg:r/s/format.npy", "row_sparse"}})
                               .bytes);
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  ASSERT_EQ(arrays->size(), 3u);
  EXPECT_EQ((*arrays)[0].name, "arg:b");
  EXPECT_EQ((*arrays)[1].name, "arg:r/s");
  EXPECT_EQ((*arrays)[1].array.shape, (Shape{8, 3}));
  EXPECT_EQ((*arrays)[1].sparse->storage, Storage::kRowSparse);
  EXPECT_EQ((*arrays)[2].name, "s");
  EXPECT_EQ((*arrays)[2].sparse->storage, Storage::kCsr);
  EXPECT_EQ((*arrays)[2].sparse->indptr.shape, Shape{3});
}

TEST(MxnetArchive, IsRefusedIfASparseArrayIsWrong) {
  const auto rows = [](const std::string& indices, const std::string& shape) {
    return archive({{"r/data.npy", ramp()}, {"r/indices.npy", indices}, {"r/shape.npy", shape}, {"r/format.npy", "row_sparse"}})
        .bytes;
  };
  expect_arrays_refused(archive({{"r/data.npy", ramp()}, {"r/format.npy", "csr"}}).bytes, {"sparse array 'r'", "no such member"});
  expect_arrays_refused(rows(numbers({1, 1}), numbers({8, 3})), {"'r'", "ascend"});
  expect_arrays_refused(rows(numbers({1, 8}), numbers({8, 3})), {"'r'", "row number 1 is 8"});
  expect_arrays_refused(rows(numbers({1, 2}), numbers({8, 4})), {"'r'", "2x3", "8x4"});
  expect_arrays_refused(rows(numbers({1}), numbers({8, 3})), {"'r'", "2 elements"});
  expect_arrays_refused(rows(numbers({1, 2}), numbers({8, -3})), {"'r'", "shape", "-3"});
  expect_arrays_refused(rows(ramp(), numbers({8, 3})), {"'r'"});
}

TEST(MxnetArchive, IsRefusedCutAtEveryByteAndWithMoreBehindIt) {
  const std::string whole = archive({{"arg:w.npy", ramp(), true, true}}).bytes;
  for (std::size_t size = 0; size < whole.size(); ++size) expect_arrays_refused(whole.substr(0, size), {""});
  expect_arrays_refused(whole + "x", {"end of the archive"});
}

TEST(MxnetArchive, IsRefusedByWhatIsWrong) {
  const Archive good = archive({{"arg:w.npy", ramp()}});
  constexpr std::size_t kFlags = 8, kMethod = 10, kCrc = 16, kStoredSize = 20, kSize = 24, kOffset = 42;  // in the directory
  const auto changed = [&](std::size_t field, auto value) { return with(good.bytes, good.directory + field, value); };
  expect_arrays_refused(changed(kFlags, std::uint16_t{1}), {"'arg:w.npy'", "encrypted"}, StatusCode::kUnimplemented);
  expect_arrays_refused(changed(kMethod, std::uint16_t{12}), {"'arg:w.npy'", "method 12"}, StatusCode::kUnimplemented);
  expect_arrays_refused(changed(kCrc, std::uint32_t{1}), {"'arg:w.npy'", "CRC"});
  expect_arrays_refused(changed(kOffset, std::uint32_t{0x7fffffff}), {"'arg:w.npy'", "offset"});
  expect_arrays_refused(changed(kStoredSize, std::uint32_t{5}), {"'arg:w.npy'", "size"});
  expect_arrays_refused(with(with(good.bytes, good.directory + kStoredSize, std::uint32_t{1} << 30), good.directory + kSize,
                             std::uint32_t{1} << 30),
                        {"'arg:w.npy'", "stored size"});
  expect_arrays_refused(with(good.bytes, good.end + 16, std::uint32_t{0x7fffffff}), {"central directory"});
  expect_arrays_refused(with(good.bytes, good.end + 10, std::uint16_t{9}), {"number of members"});
  expect_arrays_refused(archive({{"data.pkl", "text"}}).bytes, {"'data.pkl'", "no .npy"});
  expect_arrays_refused(archive({{"arg:w.npy", "text"}}).bytes, {"'arg:w.npy'", "magic"});
  expect_arrays_refused(archive({{"arg:w.npy", npy(">f4", "False", "(1,)", "abcd")}}).bytes, {"'arg:w.npy'", "byte order"},
                        StatusCode::kUnimplemented);
  for (const char* descr : {"<c8", "O"})
    expect_arrays_refused(archive({{"arg:w.npy", npy(descr, "False", "(1,)", "abcdefgh")}}).bytes, {"'arg:w.npy'", descr},
                          StatusCode::kUnimplemented);
  expect_arrays_refused(archive({{"arg:w.npy", with(ramp(), 6, char{9})}}).bytes, {"'arg:w.npy'", "version 9"},
                        StatusCode::kUnimplemented);
  expect_arrays_refused(archive({{"arg:w.npy", npy("<f4", "False", "(2, 4)", floats(6))}}).bytes, {"'arg:w.npy'", "shape"});
}

TEST(MxnetArchive, MembersMayNotOverlap) {
  const Archive good = archive({{"a.npy", ramp()}, {"a.npy", ramp()}});
  const std::size_t second = good.directory + (good.end - good.directory) / 2;
  expect_arrays_refused(with(good.bytes, second + 42, std::uint32_t{0}), {"overlap"});
}

TEST(MxnetArchive, IsRefusedWithSomethingBeforeItOrAGap) {
  const Archive good = archive({{"arg:w.npy", ramp(), true}});
  expect_arrays_refused("x" + good.bytes, {""});
  std::string gap = good.bytes;
  gap.insert(good.end, "gap");
  expect_arrays_refused(gap, {"central directory"});
  EXPECT_TRUE(read(with(good.bytes, good.end + 20, std::uint16_t{3}) + "abc").ok()) << "a comment of three bytes";
  expect_arrays_refused(with(good.bytes, good.end + 20, std::uint16_t{2}) + "abc", {"end of the archive"});
}

TEST(MxnetArchive, HeadersLieWhereTheDirectorySays) {
  const Archive good = archive({{"arg:w.npy", ramp()}});
  constexpr std::size_t kNameLength = 26;                                        // in the local header
  expect_arrays_refused(with(good.bytes, 0, std::uint32_t{0}), {"list magic"});  // not taken for an archive
  expect_arrays_refused(with(good.bytes, kNameLength, std::uint16_t{7}), {"'arg:w.npy'", "name"});
  expect_arrays_refused(with(good.bytes, kNameLength, std::uint16_t{0xffff}), {"'arg:w.npy'"});
}

TEST(MxnetArchive, Zip64NumbersAreBounded) {
  const Archive good = archive({{"arg:w.npy", ramp(), false, true, true}}, true);
  const std::size_t extra = good.directory + 46 + std::string("arg:w.npy").size() + 4;
  for (const std::uint64_t huge : {std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    for (int number = 0; number < 3; ++number) {  // size, stored size, offset
      expect_arrays_refused(with(good.bytes, extra + 8 * static_cast<std::size_t>(number), huge), {"'arg:w.npy'"});
    }
    expect_arrays_refused(with(with(good.bytes, extra, huge), extra + 8, huge), {"'arg:w.npy'", "stored size"});
  }
  const std::size_t end64 = good.end - 76;
  for (const std::size_t field : {32, 40, 48}) {  // number of members, size and offset of the directory
    for (const std::uint64_t huge : {std::uint64_t{1} << 62, ~std::uint64_t{0}})
      expect_arrays_refused(with(good.bytes, end64 + field, huge), {""});
  }
}

TEST(MxnetArchive, NamesAreTextAndNeverPaths) {
  EXPECT_EQ(read(archive({{"../../etc/passwd.npy", ramp()}}).bytes).value().at(0).name, "../../etc/passwd");
  expect_arrays_refused(archive({{"a\xff.npy", ramp()}}).bytes, {"name", "UTF-8"});
  expect_arrays_refused(archive({{std::string("a\0b.npy", 7), ramp()}}).bytes, {"name", "UTF-8"});
}

TEST(MxnetArchive, MayHoldEqualNames) {
  const auto arrays = read(archive({{"a.npy", ramp()}, {"a.npy", ramp(), true}}).bytes);
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  EXPECT_EQ(arrays->size(), 2u);
}

TEST(MxnetArchive, DamagedDeflatedDataIsNamed) {
  const Archive good = archive({{"arg:w.npy", ramp(), true, true}});
  const std::size_t data = 30 + std::string("arg:w.npy").size();
  expect_arrays_refused(with(good.bytes, data + 4, std::uint32_t{0x5a5a5a5a}), {"'arg:w.npy'"});
  expect_arrays_refused(with(good.bytes, good.directory + 16, std::uint32_t{1}),
                        {"'arg:w.npy'", "CRC"});  // of the inflated contents
}

TEST(MxnetArchive, DoesNotInflateBeyondWhatItSaysOrMayTake) {
  const std::string large = npy("|u1", "False", "(1000000,)", std::string(1000000, '\0'));
  const Archive bomb = archive({{"a.npy", large, true}});
  EXPECT_TRUE(read(bomb.bytes).ok());
  const auto arrays = read(bomb.bytes, {.memory_bytes = 1 << 19});
  ASSERT_FALSE(arrays.ok());
  EXPECT_NE(arrays.status().message().find("524288"), std::string::npos) << arrays.status().to_string();
  expect_arrays_refused(with(bomb.bytes, bomb.directory + 24, std::uint32_t{999999}), {"deflated data"});
  expect_arrays_refused(with(bomb.bytes, bomb.directory + 24, std::uint32_t{1} << 31), {"size"});
}

}  // namespace
}  // namespace shoal::worker
