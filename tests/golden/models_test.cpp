// Real checkpoints with known outputs, on both devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "shm/tensor/npy.hpp"
#include "tests/golden/devices.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

constexpr double kTolerance = 1e-4;  // of max|ref|: the references come from an independent float32 evaluator

struct RealModel {
  const char *folder, *prefix;
  int epoch;
  double tolerance = kTolerance;
  bool classifies = false;  ///< pictures
};
void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.folder << " " << model.prefix << " epoch " << model.epoch;
}

constexpr RealModel kModels[] = {
    {.folder = "cifar-resnet20-v1", .prefix = "cifar_resnet20_v1", .epoch = 0, .classifies = true},
    {.folder = "cifar-resnet20-v2", .prefix = "cifar_resnet20_v2", .epoch = 0, .classifies = true},
    {.folder = "squeezenet11-mxnet-derived", .prefix = "squeezenet11", .epoch = 0, .classifies = true},
    {"squeezenet11-mxnet-derived", "squeezenet11", 16},  // the same numbers, stored as float16
    {.folder = "mnist-mlp-mx14", .prefix = "model", .epoch = 0, .classifies = true},
    {.folder = "mnist-lenet-mx05", .prefix = "mnist-lenet-0", .epoch = 10, .classifies = true},
    {"mtcnn", "det1", 1},
    {"mtcnn", "det2", 1},
    {"mtcnn", "det3", 1},
    {"lffd-head", "lffd-head", 0},
    {"tiny-linear-mx11", "model", 0},
    {"tiny-softmax-mx09", "go_test", 1},
};

/// The stored input. Pictures are stored as uint8 in BGR order; the model needs floats, minus the mean if the note says so.
Tensor model_input(const std::filesystem::path& file, const std::string& note) {
  Tensor stored = read_npy(file).value();
  if (stored.dtype() != DType::kUInt8) return stored;
  constexpr float kMean[] = {104, 117, 123};
  const bool subtract = note.find("subtract mean") != std::string::npos;
  Tensor input = Tensor::create(DType::kFloat32, stored.shape()).value();
  const std::int64_t plane = stored.shape()[2] * stored.shape()[3];
  for (std::size_t i = 0; i < stored.values<std::uint8_t>().size(); ++i) {
    const float mean = subtract ? kMean[static_cast<std::int64_t>(i) / plane % 3] : 0.f;
    input.values<float>()[i] = static_cast<float>(stored.values<std::uint8_t>()[i]) - mean;
  }
  return input;
}

struct Case {
  std::string name;
  Tensors inputs, outputs;
};

/// The cases of a model; none if its folder is missing.
std::vector<Case> cases_of(const RealModel& real) {
  const auto folder = test_data() / "models" / real.folder / "expected";
  std::ifstream index(folder / "expected.json");
  std::vector<Case> cases;
  for (const auto& entry : index ? nlohmann::json::parse(index) : nlohmann::json::array()) {
    if (entry.value("model", real.prefix) != real.prefix) continue;  // the three networks of a cascade share one list
    Case& each = cases.emplace_back(Case{.name = entry.at("case")});
    for (const auto& input : entry.at("inputs"))
      each.inputs.push_back(
          {input.at("name"), model_input(folder / input.at("file").get<std::string>(), entry.value("note", ""))});
    for (const auto& output : entry.at("outputs"))
      each.outputs.push_back({"", read_npy(folder / output.at("file").get<std::string>()).value()});
  }
  return cases;
}

std::string prefix_of(const RealModel& real) { return (test_data() / "models" / real.folder / real.prefix).string(); }

class Models : public ::testing::TestWithParam<std::tuple<const char*, RealModel>> {};

TEST_P(Models, GiveTheExpectedOutputs) {
  const auto& [device, real] = GetParam();
  const std::vector<Case> cases = cases_of(real);
  if (cases.empty()) GTEST_SKIP() << "no model " << prefix_of(real) << "; set SHOAL_TEST_DATA";
  for (const auto& [name, inputs, wanted] : cases) {
    SCOPED_TRACE(name);
    auto model = load_checkpoint(prefix_of(real), real.epoch, device, specs_of(inputs));
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const auto outputs = run(**model, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(outputs->size(), wanted.size());
    for (std::size_t i = 0; i < outputs->size(); ++i) {
      const Tensor& want = wanted[i].tensor;
      const auto got_values = as_doubles(outputs->at(i).tensor.view()), want_values = as_doubles(want.view());
      EXPECT_EQ(outputs->at(i).tensor.shape(), want.shape());
      EXPECT_TRUE(values_close(got_values, want_values, real.tolerance * largest_magnitude(want_values))) << "output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Models, ::testing::Combine(::testing::ValuesIn(kDevices), ::testing::ValuesIn(kModels)),
                         [](const auto& info) {
                           const RealModel& real = std::get<1>(info.param);
                           return test_name(std::string(real.folder) + "_" + real.prefix + "_epoch" + std::to_string(real.epoch) +
                                            "_on_" + std::get<0>(info.param));
                         });

// A picture whose two best classes are closer than the error of bf16 may change its class.
TEST(ModelsInBf16, ClassifyAsInFloat32) {
  constexpr double kBf16Error = 2e-2;
  int cases = 0, classified = 0;
  for (const RealModel& real : kModels) {
    if (!real.classifies) continue;
    for (const auto& [name, inputs, wanted] : cases_of(real)) {
      SCOPED_TRACE(format("{} {}", real.folder, name));
      ++cases;
      auto model = load_checkpoint(prefix_of(real), real.epoch, "cpu", specs_of(inputs), {.precision = worker::Precision::kBf16});
      ASSERT_TRUE(model.ok()) << model.status().to_string();
      const auto outputs = run(**model, inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      const auto got = as_doubles(outputs->at(0).tensor.view()), want = as_doubles(wanted[0].tensor.view());
      const auto classes = static_cast<std::size_t>(wanted[0].tensor.shape()[1]);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t row = 0; row < want.size(); row += classes) {
        const auto best = [&](const std::vector<double>& values) {
          const auto first = values.begin() + static_cast<std::ptrdiff_t>(row);
          return std::max_element(first, first + static_cast<std::ptrdiff_t>(classes)) - first;
        };
        std::vector<double> sorted(want.begin() + static_cast<std::ptrdiff_t>(row),
                                   want.begin() + static_cast<std::ptrdiff_t>(row + classes));
        std::ranges::sort(sorted, std::ranges::greater());
        if (sorted[0] - sorted[1] <= 2 * kBf16Error * std::max(1.0, largest_magnitude(want))) continue;
        EXPECT_EQ(best(got), best(want)) << "row " << row / classes;
        ++classified;
      }
    }
  }
  if (cases == 0) GTEST_SKIP() << "no models; set SHOAL_TEST_DATA";
  EXPECT_GT(classified, 0) << "no picture of a class that is clear";
}

}  // namespace
}  // namespace shoal::testing
