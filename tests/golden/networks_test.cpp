// Whole networks with generated weights, compared with MXNet's outputs at batch 1 and 3.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "tests/golden/devices.hpp"
#include "tests/golden/network_case.hpp"
#include "tests/support/fake_backend.hpp"
#include "tests/support/vectors.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"

namespace shoal::testing {
namespace {

constexpr double kReferenceGflop = 5;  // larger networks take long with plain loops; SHOAL_TEST_LONG=1 runs them

constexpr std::string_view kDetectors[] = {"ssd300-vgg16", "yolov3-darknet53"};

/// Of a network in bf16, as a share of max(1, max|ref|): docs/performance.md.
constexpr double kBf16Tolerance = 2e-2;

bool is_long_run() {
  const char* const wish = std::getenv("SHOAL_TEST_LONG");
  return wish && std::string_view(wish) == "1";
}

struct NetworkRun {
  std::string name, device;
  int batch = 1;
  std::string precision = "f32";
  worker::Choices choices = {};
  int threads = 1;
};
void PrintTo(const NetworkRun& parameter, std::ostream* out) {
  *out << parameter.name << " on " << parameter.device << ", batch " << parameter.batch << ", " << parameter.precision;
}

std::vector<NetworkRun> network_runs() {
  std::vector<NetworkRun> all;
  for (const nlohmann::json& network : read_networks()) {
    const std::string name = network.at("name");
    const auto batches = network.at("batches").get<std::vector<int>>();
    for (const int batch : batches) {
      for (const char* device : kDevices) all.push_back({name, device, batch});
      // Held to the same tolerances: the policy of docs/performance.md.
      if (is_long_run() || batch == batches.back()) all.push_back({name, "cpu", batch, "f32-fast"});
    }
    // The algorithms that measuring may choose instead of the device's guess.
    all.push_back({name, "cpu", 1, "f32", {.layout = "channels_last"}, 2});
    // bf16 has a tolerance of its own. The order of boxes depends on scores that are closer to each other than that. The small
    // networks of this folder have no answers that are meant for bf16.
    const bool is_small = !network.at("stem").get<std::string>().starts_with(networks_folder().string());
    if (!is_small && std::ranges::find(kDetectors, name) == std::end(kDetectors)) {
      all.push_back({name, "cpu", 1, "bf16"});
      all.push_back({name, "cpu", batches.back(), "bf16", {.layout = "channels_last"}, 2});
    }
    if (!is_long_run()) continue;
    for (const char* layout : {"blocked", "channels_last"})
      all.push_back({name, "cpu", 1, "f32", {.layout = layout, .preference = 1}});
    for (const int preference : {1, 2, 3})
      all.push_back({name, "cpu", 1, "f32-fast", {.layout = "blocked", .preference = preference}});
  }
  if (!find_network("resnet18-v1").is_null()) all.push_back({"resnet18-v1", "fake", 1});  // takes layers of up to 128 channels
  return all;
}

/// The device did its half, and the processor the other.
void expect_half_on_device(const worker::Program& program) {
  const auto& counters = shoal::test::fake_counters();
  EXPECT_GE(counters.prepared_nodes, 20);
  EXPECT_GT(counters.parts_run, 0);
  EXPECT_GT(program.step_count(), 10u);
}

std::string crc32_of(std::span<const std::byte> bytes) {
  char text[16];
  std::snprintf(text, sizeof(text), "%08lx", ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return text;
}

/// Written once for all tests of a network, which follow each other.
const NetworkCheckpoint& checkpoint_of(const nlohmann::json& network) {
  static std::string name;
  static std::optional<NetworkCheckpoint> last;
  if (name != network.at("name")) {
    last.reset();  // its files take some hundred MB
    last.emplace(network);
    name = network.at("name");
  }
  return *last;
}

class Networks : public ::testing::TestWithParam<NetworkRun> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Networks);

TEST_P(Networks, GiveMxnetsOutputs) {
  const auto& [name, device, batch, precision, choices, threads] = GetParam();
  const auto network = find_network(name);
  if (device == std::string("cpu-reference") && !is_long_run() && (batch > 1 || network.at("gflop") > kReferenceGflop)) {
    GTEST_SKIP() << "plain loops take long; set SHOAL_TEST_LONG=1";
  }
  const Tensors inputs = network_inputs(network, batch);
  if (batch == 1) {
    for (const NamedTensor& input : inputs)
      EXPECT_EQ(crc32_of(input.tensor.view().bytes()), network.at("crc32").at(input.name)) << input.name;
  }
  const NetworkCheckpoint& checkpoint = checkpoint_of(network);
  ASSERT_TRUE(checkpoint.status().ok()) << checkpoint.status().to_string();
  worker::ModelOptions options{.threads = threads, .precision = worker::parse_precision(precision).value()};
  if (!choices.layout.empty()) options.choices = choices;
  auto model = load_checkpoint(checkpoint.prefix(), 0, device, specs_of(inputs), std::move(options));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();

  const double tolerance = precision == "bf16" ? kBf16Tolerance : network.at("tolerance").get<double>();
  expect_network_outputs(network, batch, *outputs, tolerance);
  if (device == "fake") expect_half_on_device(**(*model)->program(specs_of(inputs)));
}

/// The network that was loaded for the length of its case: programs for other lengths have no code of their own.
void expect_no_code(const std::string& name, std::int64_t length_of_case) {
  SCOPED_TRACE(name);
  const auto network = find_network(name);
  if (network.is_null()) GTEST_SKIP() << "needs the networks of the test data";
  const std::vector<TensorSpec> inputs = specs_of(network_inputs(network, 1));
  const NetworkCheckpoint& checkpoint = checkpoint_of(network);
  ASSERT_TRUE(checkpoint.status().ok()) << checkpoint.status().to_string();
  const auto model = load_checkpoint(checkpoint.prefix(), 0, "cpu", inputs, {});
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  for (const std::int64_t length : {1, 2, 7, 32, 100, 128, 511, 512}) {
    std::vector<TensorSpec> others = inputs;
    for (TensorSpec& input : others) {
      for (int axis = 0; axis < input.shape.rank(); ++axis) {
        if (input.shape[axis] == length_of_case) input.shape[axis] = length;
      }
    }
    const auto program = (*model)->program(others);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_FALSE((*program)->has_code()) << "length " << length;
  }
}

TEST(NetworksOfAnyLength, CompileNothingForOne) {
  if (!worker::cpu::has_panel_products()) GTEST_SKIP() << "oneDNN runs the products, and generates code";
  expect_no_code("bert-base", 64);
  for (const char* const name : {"ptb-lstm-fused", "ptb-lstm-gluon"}) expect_no_code(name, 35);
}

INSTANTIATE_TEST_SUITE_P(, Networks, ::testing::ValuesIn(network_runs()), [](const auto& info) {
  return test_name(info.param.name + "_on_" + info.param.device + "_batch" + std::to_string(info.param.batch) +
                   (info.param.precision == "f32" ? "" : "_" + info.param.precision) +
                   (info.param.choices.layout.empty() ? "" : "_" + info.param.choices.layout) +
                   (info.param.choices.preference == 0 ? "" : "_choice" + std::to_string(info.param.choices.preference)) +
                   (info.param.threads == 1 ? "" : "_threads" + std::to_string(info.param.threads)));
});

TEST(NetworksData, IsThere) {
  if (find_network("resnet18-v1").is_null()) GTEST_SKIP() << "no networks in " << networks_folder() << "; set SHOAL_TEST_DATA";
}

}  // namespace
}  // namespace shoal::testing
