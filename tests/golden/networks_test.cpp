// Whole networks with generated weights, compared with MXNet's outputs at batch 1 and 3.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/golden/devices.hpp"
#include "tests/support/fake_backend.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"
#include "tools/make_model/checkpoint_writer.hpp"
#include "tools/make_model/rule_fill.hpp"

namespace shoal::testing {
namespace {

constexpr double kReferenceGflop = 10;  // larger networks take minutes with plain loops; SHOAL_TEST_LONG=1 runs them

/// The networks whose operators Shoal has. Others belong to later tiers.
constexpr const char* kNetworks[] = {
    "mlp",
    "lenet",
    "alexnet",
    "vgg16",
    "vgg16-bn",
    "inception-bn",
    "inception-v3",
    "resnet18-v1",
    "resnet50-v1",
    "resnet152-v1",
    "resnet50-v2",
    "resnet50-v1b",
    "squeezenet1.1",
    "mobilenet1.0",
    "densenet121",
    "arcface-r50",
    "mobilefacenet",
    "mobilenetv2-1.0",
    "efficientnet-lite0",
    "mobilenetv3-small",
    "se-resnext50-32x4d",
};

std::filesystem::path folder() { return test_data() / "vectors" / "networks"; }

/// Of a network in bf16, as a share of max(1, max|ref|): docs/performance.md.
constexpr double kBf16Tolerance = 2e-2;

bool is_long_run() {
  const char* const wish = std::getenv("SHOAL_TEST_LONG");
  return wish && std::string_view(wish) == "1";
}

struct Parameter {
  std::string name, device;
  int batch = 1;
  std::string precision = "f32";
  worker::Choices choices = {};
  int threads = 1;
};
void PrintTo(const Parameter& parameter, std::ostream* out) {
  *out << parameter.name << " on " << parameter.device << ", batch " << parameter.batch << ", " << parameter.precision;
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const char* name : kNetworks) {
    for (const char* device : kDevices) {
      for (const int batch : {1, 3}) all.push_back({name, device, batch});
    }
    // Held to the same tolerances: the policy of docs/performance.md.
    for (const int batch : {1, 3}) all.push_back({name, "cpu", batch, "f32-fast"});
    // bf16 has a tolerance of its own.
    all.push_back({name, "cpu", 1, "bf16"});
    all.push_back({name, "cpu", 3, "bf16", {.layout = "channels_last"}, 2});
    // The algorithms that measuring may choose instead of the device's guess.
    all.push_back({name, "cpu", 1, "f32", {.layout = "channels_last"}, 2});
    if (!is_long_run()) continue;
    for (const char* layout : {"blocked", "channels_last"})
      all.push_back({name, "cpu", 1, "f32", {.layout = layout, .preference = 1}});
    for (const int preference : {1, 2, 3})
      all.push_back({name, "cpu", 1, "f32-fast", {.layout = "blocked", .preference = preference}});
  }
  all.push_back({"resnet18-v1", "fake", 1});  // takes the layers of up to 128 channels
  return all;
}

/// The network's entry in cases.json; null without data.
nlohmann::json find_case(const std::string& name) {
  std::ifstream file(folder() / "cases.json");
  if (!file) return nullptr;
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (entry.at("name") == name) return entry;
  }
  return nullptr;
}

std::string crc32_of(std::span<const std::byte> bytes) {
  char text[16];
  std::snprintf(text, sizeof(text), "%08lx", ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return text;
}

/// The case's inputs for one batch size, made by their rules.
Tensors make_inputs(const nlohmann::json& network, int batch) {
  Tensors inputs;
  for (const auto& [name, rule] : network.at("input").items()) {
    auto dims = rule.at("shape").get<std::vector<std::int64_t>>();
    dims[0] = batch == 1 ? dims[0] : batch;
    Tensor tensor = Tensor::create(DType::kFloat32, Shape(dims)).value();
    const std::span<float> values = tensor.values<float>();
    const float offset = rule.value("offset", 0.f), scale = rule.value("scale", 0.f);
    if (rule.contains("ids"))
      make_model::fill_ids(name, rule.at("ids"), values);
    else if (rule.contains("blocks"))
      make_model::fill_picture(name, offset, scale, rule.at("blocks"), tensor.shape(), values);
    else
      make_model::fill(name, offset, scale, 0, values);
    inputs.push_back({name, std::move(tensor)});
  }
  return inputs;
}

/// A checkpoint of the network in a temporary directory, which the destructor removes.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name) {
    const auto rules = make_model::read_parameter_rules(folder() / name / (name + "-parameters.txt"));
    status_ =
        rules.ok() ? make_model::write_checkpoint(folder() / name / (name + "-symbol.json"), *rules, prefix()) : rules.status();
  }
  const Status& status() const { return status_; }
  std::string prefix() const { return scratch_.path("network"); }

 private:
  const shoal::test::ScratchDirectory scratch_;
  Status status_;
};

/// The device did its half, and the processor the other.
void expect_half_on_device(const worker::Program& program) {
  const auto& counters = shoal::test::fake_counters();
  EXPECT_GE(counters.prepared_nodes, 20);
  EXPECT_GT(counters.parts_run, 0);
  EXPECT_GT(program.step_count(), 10u);
}

class Networks : public ::testing::TestWithParam<Parameter> {};

TEST_P(Networks, GiveMxnetsOutputs) {
  const auto& [name, device, batch, precision, choices, threads] = GetParam();
  const auto network = find_case(name);
  if (network.is_null()) GTEST_SKIP() << "no networks in " << folder() << "; set SHOAL_TEST_DATA";
  if (device == std::string("cpu-reference") && !is_long_run() && (batch > 1 || network.at("gflop") > kReferenceGflop)) {
    GTEST_SKIP() << "plain loops take long; set SHOAL_TEST_LONG=1";
  }
  const Tensors inputs = make_inputs(network, batch);
  if (batch == 1) {
    for (const NamedTensor& input : inputs)
      EXPECT_EQ(crc32_of(input.tensor.view().bytes()), network.at("crc32").at(input.name)) << input.name;
  }
  const Checkpoint checkpoint(name);
  ASSERT_TRUE(checkpoint.status().ok()) << checkpoint.status().to_string();
  worker::ModelOptions options{.threads = threads, .precision = worker::parse_precision(precision).value()};
  if (!choices.layout.empty()) options.choices = choices;
  auto model = load_checkpoint(checkpoint.prefix(), 0, device, specs_of(inputs), std::move(options));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();

  const std::string stored = name + (batch == 1 ? "" : "-b3") + "-io.params";
  const Tensors expected = read_arrays(folder() / name / stored, "out:").value();
  ASSERT_EQ(outputs->size(), expected.size());
  for (const NamedTensor& want : expected) {
    const NamedTensor& got = outputs->at(std::stoul(want.name));
    const double tolerance = precision == "bf16" ? kBf16Tolerance : network.at("tolerance").get<double>();
    EXPECT_TRUE(close_to(got.tensor.view(), want.tensor.view(), tolerance))
        << "output " << want.name << " ('" << got.name << "')";
  }
  if (device == "fake") expect_half_on_device(**(*model)->program(specs_of(inputs)));
}

INSTANTIATE_TEST_SUITE_P(, Networks, ::testing::ValuesIn(parameters()), [](const auto& info) {
  return test_name(info.param.name + "_on_" + info.param.device + "_batch" + std::to_string(info.param.batch) +
                   (info.param.precision == "f32" ? "" : "_" + info.param.precision) +
                   (info.param.choices.layout.empty() ? "" : "_" + info.param.choices.layout) +
                   (info.param.choices.preference == 0 ? "" : "_choice" + std::to_string(info.param.choices.preference)) +
                   (info.param.threads == 1 ? "" : "_threads" + std::to_string(info.param.threads)));
});

}  // namespace
}  // namespace shoal::testing
