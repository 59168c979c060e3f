// Files that MXNet 0.9 to 2.0 wrote: checkpoints with their answers, files of arrays with their contents, and the errors after
// each was damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "shm/tensor/npy.hpp"
#include "tests/golden/devices.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path formats_folder() { return test_data() / "vectors" / "formats"; }
fs::path loose_arrays() { return test_data() / "models" / "params-formats"; }

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return file ? json::parse(file) : json::array();
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- checkpoints

struct Checkpoint {
  std::string device;
  json entry;
};
void PrintTo(const Checkpoint& checkpoint, std::ostream* out) {
  *out << checkpoint.entry.at("name") << " on " << checkpoint.device;
}

std::vector<Checkpoint> checkpoints() {
  std::vector<Checkpoint> all;
  for (const json& entry : read_json(formats_folder() / "cases.json")) {
    for (const char* device : kDevices) all.push_back({device, entry});
  }
  return all;
}

class FormatsCheckpoints : public ::testing::TestWithParam<Checkpoint> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormatsCheckpoints);

TEST_P(FormatsCheckpoints, GiveWhatTheirReleaseAnswered) {
  const auto& [device, entry] = GetParam();
  Tensors inputs;
  for (const auto& [name, file] : entry.at("input").items())
    inputs.push_back({name, read_npy(formats_folder() / file.get<std::string>()).value()});
  const std::string prefix = (formats_folder() / entry.at("prefix").get<std::string>()).string();
  auto model = load_checkpoint(prefix, entry.at("epoch"), device, specs_of(inputs));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  ASSERT_EQ(outputs->size(), entry.at("outputs").size());
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    const Tensor want = read_npy(formats_folder() / entry.at("outputs")[i].get<std::string>()).value();
    EXPECT_TRUE(close_to(outputs->at(i).tensor.view(), want.view(), entry.at("tolerance"))) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, FormatsCheckpoints, ::testing::ValuesIn(checkpoints()), [](const auto& info) {
  return test_name(info.param.entry.at("name").template get<std::string>() + "_on_" + info.param.device);
});

// ---- files of arrays

std::vector<json> array_files() {
  std::vector<json> all;
  for (const char* index : {"index-1.json", "index-2.json"}) {
    for (const json& entry : read_json(formats_folder() / "arrays" / index)) all.push_back(entry);
  }
  return all;
}

/// With sparse arrays expanded.
Result<std::vector<worker::NamedArray>> read_dense(const fs::path& path) {
  SHOAL_ASSIGN_OR_RETURN(const worker::ForeignFile file, worker::ForeignFile::open(path));
  worker::MemoryBudget budget(worker::ImportLimits{});
  SHOAL_ASSIGN_OR_RETURN(std::vector<worker::NamedArray> arrays, worker::parse_mxnet_params(file, budget));
  SHOAL_RETURN_IF_ERROR(worker::make_dense(file, arrays, budget));
  return arrays;
}

class FormatsArrays : public ::testing::TestWithParam<json> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormatsArrays);

/// The arrays that have a value, under the names that a graph uses.
std::vector<worker::NamedArray> with_values(std::vector<worker::NamedArray> arrays) {
  std::erase_if(arrays, [](const worker::NamedArray& array) { return array.array.dtype == DType::kInvalid; });
  return arrays;
}

// MXNet 2 stored the int8 array as float32. The index has the original type.
constexpr std::string_view kStoredAsFloat32 = "unnamed-2.0.npz.1.npy";

void expect_arrays(const std::vector<worker::NamedArray>& arrays, const json& wanted) {
  ASSERT_EQ(arrays.size(), wanted.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const json& want = wanted[i];
    const worker::Constant& got = arrays[i].array;
    EXPECT_EQ(arrays[i].name, want.at("name").is_null() ? "" : want.at("name").get<std::string>());
    EXPECT_EQ(got.shape, Shape(want.at("shape").get<std::vector<std::int64_t>>())) << arrays[i].name;
    const std::string file = want.at("npy");
    const Tensor expected = read_npy(formats_folder() / "arrays" / file).value();
    if (file == kStoredAsFloat32) {
      std::vector<float> values(static_cast<std::size_t>(expected.shape().element_count()));
      ASSERT_EQ(got.bytes.size(), values.size() * sizeof(float));
      std::memcpy(values.data(), got.bytes.data(), got.bytes.size());
      EXPECT_TRUE(std::ranges::equal(values, expected.values<std::int8_t>()));
      continue;
    }
    EXPECT_EQ(dtype_name(got.dtype), want.at("dtype").get<std::string>()) << arrays[i].name;
    EXPECT_TRUE(std::ranges::equal(got.bytes, expected.view().bytes())) << arrays[i].name;
  }
}

/// The words that the error must contain: the array's name and the byte order.
void expect_named(const Status& status, const std::string& refuse) {
  for (const char* word : {"byte order", "arg:big"}) {
    if (refuse.find(word) == std::string::npos) continue;
    EXPECT_NE(status.message().find(word), std::string::npos) << word << ": " << status.to_string();
  }
}

TEST_P(FormatsArrays, HoldWhatTheIndexSaysOrAreRefusedByName) {
  const json& entry = GetParam();
  const fs::path path = formats_folder() / "arrays" / entry.at("file").get<std::string>();
  const auto arrays = read_dense(path);
  const std::string refuse = entry.value("refuse", "");
  const bool only_if_needed = refuse.ends_with("if a graph needs it") || refuse.ends_with("in case it is expanded instead)");
  if (!refuse.empty() && !only_if_needed) {
    ASSERT_FALSE(arrays.ok());
    EXPECT_EQ(arrays.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(arrays.status().message().find(path.string()), std::string::npos) << arrays.status().to_string();
    expect_named(arrays.status(), refuse);
    return;
  }
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  expect_arrays(with_values(*arrays), entry.value("arrays", json::array()));
}

INSTANTIATE_TEST_SUITE_P(, FormatsArrays, ::testing::ValuesIn(array_files()),
                         [](const auto& info) { return test_name(info.param.at("file").template get<std::string>()); });

TEST(FormatsOfOthers, HoldTheArraysThatTheirSourceCounts) {
  if (!fs::exists(loose_arrays())) GTEST_SKIP() << "nothing in " << loose_arrays() << "; set SHOAL_TEST_DATA";
  const auto count = [](const char* file) {
    const auto arrays = worker::read_mxnet_params(loose_arrays() / file);
    EXPECT_TRUE(arrays.ok()) << arrays.status().to_string();
    std::int64_t elements = 0;
    for (const worker::NamedArray& array : *arrays) elements += array.array.shape.element_count();
    return std::pair(arrays->size(), elements);
  };
  EXPECT_EQ(count("sockeye-2.1.x-params.best"), std::pair(std::size_t{34}, std::int64_t{7711}));
  EXPECT_EQ(count("sockeye-2.3.x-params.best.mx").first, 33u);
  EXPECT_EQ(count("sockeye-2.4.x-params.best.npz"), std::pair(std::size_t{33}, std::int64_t{7711}));
  EXPECT_EQ(count("straight-dope-testnet.params").first, 6u);

  const auto oldest = worker::read_mxnet_params(loose_arrays() / "legacy_ndarray.v0").value();
  ASSERT_EQ(oldest.size(), 6u);
  for (const auto& [name, array, sparse] : oldest) {
    EXPECT_EQ(name, "");
    std::vector<float> values(128);
    ASSERT_EQ(array.bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  }
  const Status alien = worker::read_mxnet_params(loose_arrays() / "not-mxnet-pytorch.params").status();
  EXPECT_EQ(alien.code(), StatusCode::kDataLoss) << alien.to_string();
  EXPECT_NE(alien.message().find("not-mxnet-pytorch.params"), std::string::npos) << alien.to_string();
}

TEST(FormatsOfOthers, CountOutputsAsMxnetDoesHiddenOnesIncluded) {
  const std::string prefix = (test_data() / "models" / "cifar-resnet20-v1" / "cifar_resnet20_v1").string();
  if (!fs::exists(prefix + "-symbol.json")) GTEST_SKIP() << "no " << prefix << "; set SHOAL_TEST_DATA";
  const auto symbol = worker::read_mxnet_symbol(prefix + "-symbol.json").value();
  EXPECT_EQ(worker::read_mxnet_params(prefix + "-0000.params").value().size(), 107u);
  std::size_t variables = 0, outputs = 0;
  for (const worker::MxnetNode& node : symbol.nodes) {
    const auto* const op = worker::find_mxnet_operator(node.op);
    ASSERT_TRUE(node.is_variable() || op) << node.op;
    variables += node.is_variable();
    // The MXNet that wrote this file had no oneDNN. With oneDNN, Pooling has a second output.
    outputs += node.is_variable() || node.op == "Pooling" ? 1 : std::max<std::size_t>(1, op->output_names.size());
  }
  EXPECT_EQ(symbol.nodes.size(), 179u);
  EXPECT_EQ(variables, 108u);
  EXPECT_EQ(outputs, read_json(prefix + "-symbol.json").at("node_row_ptr").back().get<std::size_t>());
}

// ---- damage to a good checkpoint

class FormatsDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(good_params_)) GTEST_SKIP() << "nothing in " << formats_folder() << "; set SHOAL_TEST_DATA";
    params_ = read_text(good_params_);
    symbol_ = read_text(good_symbol_);
  }

  template <typename T>
  std::string with(std::size_t offset, T value) const {
    std::string bytes = params_;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  }
  std::string replaced(const std::string& from, const std::string& to) const {
    std::string text = symbol_;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }

  Status import(const std::string& symbol, const std::string& params) const {
    scratch_.write("m-symbol.json", symbol);
    scratch_.write("m-0000.params", params);
    const std::vector<TensorSpec> inputs{{"data", DType::kFloat32, read_npy(good_input_).value().shape()}};
    return load_checkpoint(scratch_.path("m"), 0, "cpu-reference", inputs).status();
  }
  void expect_refused(const Status& status, std::initializer_list<std::string> parts) const {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.code(), StatusCode::kInternal) << status.to_string();
    for (const std::string& part : parts)
      EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.to_string();
  }
  void expect_params_refused(const std::string& params, std::initializer_list<std::string> parts) const {
    const Status status = import(symbol_, params);
    expect_refused(status, parts);
    expect_refused(status, {"m-0000.params", "offset"});
  }
  void expect_symbol_refused(const std::string& symbol, std::initializer_list<std::string> parts) const {
    expect_refused(import(symbol, params_), parts);
  }

  const fs::path good_ = formats_folder() / "lenet-mxnet-1.9.1";
  const fs::path good_params_ = good_ / "lenet-0007.params", good_symbol_ = good_ / "lenet-symbol.json";
  const fs::path good_input_ = good_ / "input.npy";
  const shoal::test::ScratchDirectory scratch_;
  std::string params_, symbol_;
};

// Offsets of the first record, a V2 record after the header.
constexpr std::size_t kMagic = 0, kCount = 16, kRecord = 24, kStorage = 28, kRank = 32, kDim = 36;

TEST_F(FormatsDamage, OfTheListOfArraysIsNamed) {
  ASSERT_TRUE(import(symbol_, params_).ok());
  const auto arrays = worker::read_mxnet_params(good_params_).value();
  const std::size_t rank = static_cast<std::size_t>(arrays[0].array.shape.rank());
  const std::size_t type_flag = kDim + 8 * rank + 8;
  std::size_t names = params_.size();
  for (const auto& [name, array, sparse] : arrays) names -= 8 + name.size();
  names -= 8;

  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{16}, std::size_t{24},
                                 std::size_t{28}, std::size_t{40}, names / 2, names + 18, params_.size() - 1})
    expect_params_refused(params_.substr(0, size), {"truncated"});
  expect_params_refused(params_ + '\0', {"1 bytes follow"});
  expect_params_refused(with<std::uint64_t>(kMagic, 0x113), {"list magic"});
  expect_params_refused(symbol_, {"list magic"});
  expect_params_refused(std::string(22, '\0'), {"list magic"});
  expect_params_refused(with<std::uint64_t>(kCount, std::uint64_t{1} << 60), {"number of arrays"});
  expect_params_refused(with<std::uint64_t>(kCount, arrays.size() + 1), {format("of {}", arrays.size() + 1)});
  expect_params_refused(with<std::uint64_t>(names, arrays.size() - 1), {"number of names"});
  expect_params_refused(with<std::uint64_t>(names + 8, std::uint64_t{1} << 63), {"length of a name"});
  expect_params_refused(with<char>(names + 16, '\xff'), {"name 0", "UTF-8"});
  for (const std::uint32_t magic : {0xF993FACBu, 33u, 1u << 31})
    expect_params_refused(with<std::uint32_t>(kRecord, magic), {"array 0", "magic"});
  for (const std::int32_t other : {-2, 0x7fffffff}) expect_params_refused(with<std::int32_t>(kRank, other), {"array 0", "rank"});
  expect_params_refused(with<std::int64_t>(kDim, -1), {"array 0", "dimension"});
  std::string square = with<std::int64_t>(kDim, std::int64_t{1} << 33);
  square.replace(kDim + 8, 8, square.substr(kDim, 8));
  expect_params_refused(square, {"array 0", "8589934592x8589934592"});
  expect_params_refused(with<std::int32_t>(kStorage, 7), {"array 0", "storage type"});
  for (const std::int32_t flag : {13, -1, 200})
    expect_params_refused(with<std::int32_t>(type_flag, flag), {"array 0", "type flag"});
}

TEST_F(FormatsDamage, OfTheGraphIsNamed) {
  for (std::size_t size = 0; size + 1 < symbol_.size(); size += 7) {
    expect_symbol_refused(symbol_.substr(0, size), {"m-symbol.json", "offset", "JSON"});
  }
  json graph = json::parse(symbol_);
  const auto changed = [&](auto change) {
    json copy = graph;
    change(copy);
    return copy.dump();
  };
  std::size_t conv = 0;
  while (graph["nodes"][conv]["op"] != "Convolution") ++conv;
  const std::string name = graph["nodes"][conv]["name"];
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["inputs"][0][0] = 999; }), {"offset", name, "999"});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv + 1]["inputs"][0] = {conv, 1, 0}; }), {name, "output 1"});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["inputs"][0] = {conv + 1, 0, 0}; }), {"offset", "cycle"});
  expect_symbol_refused(changed([&](json& g) { g["heads"] = json::array(); }), {"offset", "heads"});
  expect_symbol_refused(changed([&](json& g) { g.erase("heads"); }), {"offset", "heads"});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv].erase("op"); }), {"offset", format("node {}", conv), "op"});
  expect_symbol_refused(changed([&](json& g) { g["arg_nodes"].push_back(conv); }), {"offset", "arg_nodes", name});
  for (const char* op : {"Custom", "_NoSuchOperator"})
    expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["op"] = op; }), {op, name});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["attrs"]["kernel"] = "(3,"; }), {"Convolution", name, "kernel"});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["attrs"].erase("num_filter"); }),
                        {"Convolution", name, "num_filter"});
  expect_symbol_refused(changed([&](json& g) { g["nodes"][conv]["attrs"]["layout"] = "WHCN"; }), {"Convolution", name, "layout"});
}

TEST_F(FormatsDamage, OfWhatAGraphNeedsIsNamed) {
  const auto arrays = worker::read_mxnet_params(good_params_).value();
  std::string renamed = params_;
  const std::size_t at = renamed.rfind(arrays.back().name);
  ASSERT_NE(at, std::string::npos);
  const std::string variable = arrays.back().name.substr(4);
  expect_refused(import(symbol_, renamed.replace(at + 4, 1, "?")), {variable});
  const auto one_less = with<std::int64_t>(kDim, arrays[0].array.shape[0]);  // the same bytes, another shape
  std::string swapped = one_less;
  swapped.replace(kDim, 8, params_.substr(kDim + 8, 8)).replace(kDim + 8, 8, params_.substr(kDim, 8));
  expect_refused(import(symbol_, swapped), {arrays[0].name.substr(4)});
  expect_refused(import(symbol_, read_text(formats_folder() / "arrays" / "unnamed-v2.params")), {"m-0000.params", "no names"});
}

}  // namespace
}  // namespace shoal::testing
