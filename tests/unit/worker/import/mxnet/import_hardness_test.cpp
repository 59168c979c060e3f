// Files cut and bits flipped: an error that names file and offset, never a crash, a hang or memory above the limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <regex>

#include "shm/base/format.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "tests/unit/worker/import/mxnet/refusals.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/zip_archive.hpp"

namespace shoal::worker {
namespace {

using namespace test;  // NOLINT: makers of files

constexpr std::size_t kCutEveryByteTo = 4096;
constexpr ImportLimits kLimits{.memory_bytes = std::uint64_t{1} << 20};
constexpr std::size_t kForErrors = 16 << 10;  // texts of errors, which no file determines
constexpr std::size_t kFlips = test::kSanitized ? 30'000 : 100'000, kFlipsLong = 1'000'000;

struct Sample {
  std::string name, bytes;
  std::vector<std::size_t> headers;     ///< offsets of what is no array's data
  std::vector<std::size_t> boundaries;  ///< where arrays begin and end
  bool is_graph = false;
};

ForeignFile file_of(const Sample& sample, const std::string& bytes) {
  return {sample.name, std::as_bytes(std::span(bytes)), nullptr};
}

/// What the importer says of these bytes. It may take at most `most_bytes` of memory for that.
Status import(const Sample& sample, const std::string& bytes, std::size_t most_bytes = kLimits.memory_bytes + kForErrors) {
  const test::AllocatedPeak peak;
  const ForeignFile file = file_of(sample, bytes);
  MemoryBudget budget(kLimits);
  Status status = sample.is_graph ? import_mxnet_symbol(file, kLimits).status() : parse_mxnet_params(file, budget).status();
  EXPECT_LE(peak.bytes(), most_bytes) << sample.name << ": " << status.to_string();
  return status;
}

void expect_named(const Sample& sample, const Status& status, std::string_view what) {
  const std::string& message = status.message();
  const bool is_about_the_file = status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kUnimplemented ||
                                 status.code() == StatusCode::kInvalidArgument;
  EXPECT_TRUE(is_about_the_file) << what << ": " << status.to_string();
  EXPECT_TRUE(message.starts_with(sample.name)) << what << ": " << status.to_string();
  // "FILE: offset 24, array 3 'w', shape: what is wrong"; in .npy headers "offset 24, shape is ...".
  static const std::regex kPlace(R"(offset [0-9]+\)?(, |: )(.+: .|(magic|version|header|descr|fortran_order|shape|the shape) ))");
  EXPECT_TRUE(std::regex_search(message, kPlace) || status.code() != StatusCode::kDataLoss) << what << ": " << status.to_string();
}

Sample sample_of(std::string name, std::string bytes) {
  Sample sample{std::move(name), std::move(bytes), {}, {}, false};
  std::vector<bool> is_data(sample.bytes.size());
  MemoryBudget budget{ImportLimits()};
  const auto arrays = parse_mxnet_params(file_of(sample, sample.bytes), budget);
  EXPECT_TRUE(arrays.ok()) << arrays.status().to_string();
  const auto* const start = reinterpret_cast<const std::byte*>(sample.bytes.data());
  for (const auto& [key, whole, sparse] : *arrays) {
    const Constant& array = sparse ? sparse->values : whole;
    if (array.bytes.data() < start || array.bytes.data() >= start + sample.bytes.size()) continue;  // inflated, transposed
    const auto offset = static_cast<std::size_t>(array.bytes.data() - start);
    for (std::size_t i = 0; i < array.bytes.size(); ++i) is_data[offset + i] = true;
    sample.boundaries.insert(sample.boundaries.end(), {offset, offset + array.bytes.size()});
  }
  if (sample.bytes.starts_with("PK")) {
    const auto members = read_zip_directory(file_of(sample, sample.bytes), budget);
    for (const ZipMember& member : *members)
      sample.boundaries.insert(sample.boundaries.end(),
                               {member.header_offset, member.data_offset, member.data_offset + member.stored_bytes});
  }
  for (std::size_t i = 0; i < is_data.size(); ++i) {
    if (!is_data[i]) sample.headers.push_back(i);
  }
  return sample;
}

Sample list_of(Era era, const char* name) {
  std::vector<std::string> records, names;
  for (int i = 0; i < 24; ++i) {
    const std::int64_t rows = 1 + i * 3;
    records.push_back(i % 5 == 4 ? record(era, {rows}, 3, std::string(static_cast<std::size_t>(rows), 'x'))
                                 : record(era, {rows, 2}, 0, floats(static_cast<std::size_t>(rows) * 2)));
    names.push_back("arg:layer" + std::to_string(i) + "_weight");
  }
  return sample_of(name, list(records, names));
}

Sample archive_of(bool deflated, bool zip64, const char* name) {
  std::vector<Member> members;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::string shape = "(" + std::to_string(i + 1) + ", 10)";
    const char* const order = i % 4 == 3 ? "True" : "False";
    members.push_back(
        {"arg:layer" + std::to_string(i) + ".npy", npy("<f4", order, shape, floats((i + 1) * 10)), deflated, i % 2 == 1, zip64});
  }
  return sample_of(name, archive(members, zip64).bytes);
}

Sample graph() {
  std::string nodes = R"json({"op": "null", "name": "data", "inputs": [], "attrs": {"__shape__": "(0, 3, 8, 8)"}})json";
  std::string arguments = "0";
  int count = 1, last = 0;
  const auto variable = [&](const std::string& name) {
    nodes += R"(, {"op": "null", "name": ")" + name + R"(", "inputs": []})";
    arguments += ", " + std::to_string(count);
    return count++;
  };
  const auto layer = [&](const std::string& op, const std::string& name, const std::string& attributes,
                         const std::vector<std::string>& parameters) {
    std::string inputs = "[" + std::to_string(last) + ", 0, 0]";
    for (const std::string& parameter : parameters)
      inputs += ", [" + std::to_string(variable(name + "_" + parameter)) + ", 0, 0]";
    nodes +=
        R"(, {"op": ")" + op + R"(", "name": ")" + name + R"(", "attrs": {)" + attributes + R"(}, "inputs": [)" + inputs + "]}";
    last = count++;
  };
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    layer("Convolution", "conv" + n, R"json("kernel": "(3, 3)", "num_filter": "8", "pad": "(1, 1)", "no_bias": "True")json",
          {"weight"});
    layer("BatchNorm", "bn" + n, R"("eps": "2e-05", "fix_gamma": "False")", {"gamma", "beta", "moving_mean", "moving_var"});
    layer("Activation", "relu" + n, R"("act_type": "relu")", {});
  }
  layer("Pooling", "pool", R"json("kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": "max")json", {});
  layer("FullyConnected", "fc", R"("num_hidden": "10")", {"weight", "bias"});
  layer("SoftmaxOutput", "softmax", "", {"label"});
  Sample sample{"cut-symbol.json",
                R"({"nodes": [)" + nodes + R"(], "arg_nodes": [)" + arguments + R"(], "heads": [[)" + std::to_string(last) +
                    R"(, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})",
                {},
                {},
                true};
  for (std::size_t i = 0; i < sample.bytes.size(); ++i) sample.headers.push_back(i);
  return sample;
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all{list_of(Era::kV0, "v0.params"),
                                       list_of(Era::kV1, "v1.params"),
                                       list_of(Era::kV2, "v2.params"),
                                       list_of(Era::kV3, "v3.params"),
                                       archive_of(false, false, "stored.params"),
                                       archive_of(true, false, "deflated.params"),
                                       archive_of(true, true, "zip64.params"),
                                       sample_of("single.params", npy("<f4", "False", "(40, 40)", floats(1600))),
                                       graph()};
  return all;
}

TEST(ImportHardness, SamplesAreGood) {
  for (const Sample& sample : samples()) {
    const Status status = import(sample, sample.bytes);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_GT(sample.bytes.size(), kCutEveryByteTo) << sample.name;
  }
}

TEST(ImportHardness, FilesCutAnywhereAreRefusedByFileAndOffset) {
  for (const Sample& sample : samples()) {
    std::vector<std::size_t> cuts = sample.boundaries;
    for (std::size_t size = 0; size < std::min(kCutEveryByteTo, sample.bytes.size()); ++size) cuts.push_back(size);
    for (const std::size_t size : cuts) {
      if (size == sample.bytes.size()) continue;
      const Status status = import(sample, sample.bytes.substr(0, size));
      ASSERT_FALSE(status.ok()) << sample.name << " cut to " << size;
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
      expect_named(sample, status, "cut to " + std::to_string(size));
    }
  }
}

TEST(ImportHardness, FlippedBitsAreReadOrRefused) {
  const std::size_t flips = std::getenv("SHOAL_TEST_LONG") ? kFlipsLong : kFlips;
  std::mt19937_64 random(20261121);
  std::size_t refused = 0;
  for (std::size_t flipped = 0; flipped < flips;) {
    const Sample& sample = samples()[random() % samples().size()];
    std::string bytes = sample.bytes;
    for (std::size_t i = random() % 3 + 1; i-- > 0; ++flipped) {
      const std::size_t at = sample.headers[random() % sample.headers.size()];
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1u << random() % 8));
    }
    const Status status = import(sample, bytes);
    if (status.ok()) continue;
    ++refused;
    expect_named(sample, status, "flips " + std::to_string(flipped));
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, flips / 20);
}

/// JSON that makes as much memory of each byte as it can.
TEST(ImportHardness, TextTakesNoMoreMemoryThanItsLengthAllows) {
  const auto repeated = [](const std::string& piece, const std::string& inside) {
    std::string text;
    while (text.size() < 9000) text += piece + ", ";
    return inside.empty() ? text + piece : text;
  };
  const std::string empty_node = R"({"op":"null","name":"","inputs":[]})";
  const std::string tail = R"(, "arg_nodes": [], "heads": [[0, 0]]})";
  std::string keys, upgraded;
  for (int i = 0; i < 900; ++i) keys += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\":\"\"";
  for (int i = 0; i < 120; ++i) upgraded += R"(, {"op":"BatchNorm","name":"","inputs":[[0,0]]})";
  for (const std::string& text :
       {R"({"nodes": [)" + repeated(empty_node, "") + "]" + tail, "[" + repeated("{}", "") + "]", "[" + repeated("[]", "") + "]",
        R"({"nodes": [{"op":"null","name":"","inputs":[],"attrs":{)" + keys + "}}]" + tail,
        R"({"nodes": [)" + empty_node + upgraded + R"(], "arg_nodes": [], "heads": [[120, 0]]})"}) {
    ASSERT_LT(text.size() * 100, kLimits.memory_bytes);
    const Sample sample{"dense-symbol.json", text, {}, {}, true};
    SCOPED_TRACE(text.substr(0, 60));
    (void)import(sample, text, text.size() * 100);  // it may be refused
  }
}

/// "data", and nodes that read it.
std::string graph_of(const std::string& nodes, int heads_node = 1) {
  return R"({"nodes": [{"op":"null","name":"data","inputs":[]}, )" + nodes + R"(], "arg_nodes": [0], "heads": [[)" +
         std::to_string(heads_node) + ", 0]]}";
}
std::string repeated(const std::string& piece, std::size_t count) {
  std::string text = piece;
  for (std::size_t i = 1; i < count; ++i) text += "," + piece;
  return text;
}

/// Few bytes that ask for many outputs, or for a long name many times over.
TEST(ImportHardness, AGraphTakesNoMoreMemoryThanIsAllowed) {
  const std::string name(3000, 'n');
  const std::string heads = R"({"nodes": [{"op":"null","name":"data","inputs":[]}, {"op":"_copy","name":")" + name +
                            R"(","inputs":[[0,0]]}], "arg_nodes": [0], "heads": [)" + repeated("[1,0]", 700) + "]}";
  std::vector<std::string> graphs{heads};
  for (const std::string& node : {std::string(R"({"op":"split","name":"s","attrs":{"num_outputs":"65536"},"inputs":[[0,0]]})"),
                                  R"({"op":"amp_multicast","name":")" + name + R"(","attrs":{"num_outputs":"700"},"inputs":[)" +
                                      repeated("[0,0]", 700) + "]}"}) {
    graphs.push_back(graph_of(node));
  }
  for (const std::string& graph : graphs) {
    const Sample sample{"greedy-symbol.json", graph, {}, {}, true};
    ASSERT_LT(sample.bytes.size() * 100, kLimits.memory_bytes);
    const Status status = import(sample, sample.bytes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    expect_named(sample, status, "many outputs");
    EXPECT_NE(status.message().find("import_mb"), std::string::npos) << status.to_string();
  }
}

/// A node of a few bytes names a number of numbers or outputs.
TEST(ImportHardness, AttributesAskForFewNumbersAndOutputs) {
  const auto import_of = [](const std::string& nodes, int last) {
    const std::string text = graph_of(nodes, last);
    return import_mxnet_symbol(file_of(Sample{"asking-symbol.json", text, {}, {}, true}, text)).status();
  };
  const std::string window = R"({"op":"_npi_hanning","name":"wide","attrs":{"M":"2000000"},"inputs":[]})";
  test::expect_refusal(import_of(window, 1), StatusCode::kInvalidArgument, {"_npi_hanning 'wide'", "1048576"});
  std::string splits;
  for (int i = 0; i < 17; ++i) {
    splits +=
        format(R"({}{"op":"split","name":"s{}","attrs":{"num_outputs":"65536"},"inputs":[[{},0]]})", i == 0 ? "" : ",", i, i);
  }
  EXPECT_TRUE(import_of(splits, 16).ok());
  test::expect_refusal(import_of(splits, 17), StatusCode::kInvalidArgument, {"split 's16'", "1048576"});
}

TEST(ImportHardness, WarningsAreFewAndShortWhateverTheFileHolds) {
  std::string keys;
  for (int i = 0; i < 600; ++i) keys += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":\"\"";
  const std::string text =
      graph_of(R"({"op":"_copy","name":")" + std::string(2000, 'n') + R"(","attrs":{)" + keys + R"(},"inputs":[[0,0]]})");
  const Sample sample{"warned-symbol.json", text, {}, {}, true};
  ASSERT_LT(text.size() * 100, kLimits.memory_bytes);
  EXPECT_TRUE(import(sample, text).ok());
  const auto warnings = import_mxnet_symbol(file_of(sample, text), kLimits).value().warnings;
  ASSERT_EQ(warnings.size(), 33u);
  EXPECT_NE(warnings.front().find("attribute k0 "), std::string::npos) << warnings.front();
  EXPECT_NE(warnings.back().find("568 more"), std::string::npos) << warnings.back();
  for (const std::string& warning : warnings) EXPECT_LE(warning.size(), 400u);
}

/// Nodes that Shoal does not have give values to those who read them, as many as these ask for.
TEST(ImportHardness, ASurveyTakesNoMoreMemoryThanIsAllowed) {
  const test::ScratchDirectory scratch;
  scratch.write("m-symbol.json",
                graph_of(R"({"op":"Unheard","name":"u","inputs":[[0,0]]},)"
                         R"({"op":"Unheard","name":")" +
                             std::string(1000, 'n') + R"(","inputs":[[1,1023]]},{"op":"_copy","name":"c","inputs":[[2,1023]]})",
                         3));
  scratch.write("m-0000.params", list({}, {}));
  const auto survey = survey_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")}, {}, kLimits);
  ASSERT_FALSE(survey.ok());
  EXPECT_NE(survey.status().message().find("import_mb"), std::string::npos) << survey.status().to_string();
  EXPECT_EQ(survey_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")}).value().unsupported.size(), 2u);
}

/// A survey's time grows with the graph, not with its square.
TEST(ImportHardness, ASurveyOfAsManyOperatorsAsNodesTakesSeconds) {
  constexpr int kNodes = test::kSanitized ? 40'000 : 200'000;
  // Of processor time: 1 (asan, a fifth of the nodes: 7) where the JSON library's callbacks took 14, and lists of operators 70.
  constexpr double kSeconds = test::kSanitized ? 18 : 13;
  const test::ScratchDirectory scratch;
  std::string nodes;
  for (int i = 0; i < kNodes; ++i) {
    const std::string op = "Unheard" + std::to_string(100'000 + i), name = "n" + std::to_string(i);
    nodes += std::string(i == 0 ? "" : ",") + R"({"op":")" + op + R"(","name":")" + name + R"(","inputs":[[)" +
             std::to_string(i) + ",0]]}";
  }
  scratch.write("m-symbol.json", graph_of(nodes, kNodes));
  scratch.write("m-0000.params", list({}, {}));
  const std::clock_t start = std::clock();
  const auto survey = survey_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")});
  ASSERT_TRUE(survey.ok()) << survey.status().to_string();
  EXPECT_EQ(survey->operators.size(), static_cast<std::size_t>(kNodes));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kSeconds);
}

/// Long names, which no node of the graph has.
TEST(ImportHardness, NamesOfParametersAreKeptOnce) {
  const test::ScratchDirectory scratch;
  scratch.write("m-symbol.json", graph_of(R"({"op":"_copy","name":"c","inputs":[[0,0]]})"));
  std::vector<std::string> records, names;
  for (int i = 0; i < 60; ++i) {
    records.push_back(record(Era::kV2, {1}, 0, floats(1)));
    names.push_back("arg:" + std::to_string(100 + i % 50) + std::string(10000, 'n'));
  }
  scratch.write("m-0000.params", list(records, names));
  find_mxnet_operator("_copy");  // makes the table of operators, once per process
  const test::AllocatedPeak peak;
  EXPECT_TRUE(read_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")}, {}, kLimits).ok());
  EXPECT_LE(peak.bytes(), kLimits.memory_bytes);
}

/// One limit for the two files of a checkpoint.
TEST(ImportHardness, BothFilesTakeFromOneBudget) {
  const test::ScratchDirectory scratch;
  const std::string graph = graph_of(R"({"op":"_copy","name":"c","inputs":[[0,0]]})");
  scratch.write("m-symbol.json", graph);
  scratch.write("m-0000.params", list({record(Era::kV2, {1}, 0, floats(1))}, {"arg:" + std::string(10000, 'n')}));
  const auto import = [&](std::uint64_t memory_bytes) {
    return read_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")}, {}, {.memory_bytes = memory_bytes})
        .status();
  };
  const std::uint64_t text_bytes = graph.size() * 100;
  EXPECT_EQ(import(text_bytes + 9000).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(import(text_bytes + 20000).ok());
}

}  // namespace
}  // namespace shoal::worker
