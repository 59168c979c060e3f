// Real checkpoints with known outputs, on both devices.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
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
};
void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.folder << " " << model.prefix << " epoch " << model.epoch;
}

constexpr RealModel kModels[] = {
    {"cifar-resnet20-v1", "cifar_resnet20_v1", 0},
    {"cifar-resnet20-v2", "cifar_resnet20_v2", 0},
    {"squeezenet11-mxnet-derived", "squeezenet11", 0},
    {"squeezenet11-mxnet-derived", "squeezenet11", 16},  // the same numbers, stored as float16
    {"mnist-mlp-mx14", "model", 0},
    {"mnist-lenet-mx05", "mnist-lenet-0", 10},
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

class Models : public ::testing::TestWithParam<std::tuple<const char*, RealModel>> {};

TEST_P(Models, GiveTheExpectedOutputs) {
  const auto& [device, real] = GetParam();
  const auto folder = test_data() / "models" / real.folder;
  std::ifstream index(folder / "expected" / "expected.json");
  if (!index) GTEST_SKIP() << "no model in " << folder << "; set SHOAL_TEST_DATA";
  for (const auto& entry : nlohmann::json::parse(index)) {
    if (entry.value("model", real.prefix) != real.prefix) continue;  // the three networks of a cascade share one list
    SCOPED_TRACE(entry.at("case").get<std::string>());
    Tensors inputs;
    for (const auto& input : entry.at("inputs")) {
      inputs.push_back(
          {input.at("name"), model_input(folder / "expected" / input.at("file").get<std::string>(), entry.value("note", ""))});
    }
    auto model = load_checkpoint((folder / real.prefix).string(), real.epoch, device, specs_of(inputs));
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const auto outputs = run(**model, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(outputs->size(), entry.at("outputs").size());
    for (std::size_t i = 0; i < outputs->size(); ++i) {
      const Tensor want = read_npy(folder / "expected" / entry.at("outputs")[i].at("file").get<std::string>()).value();
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

}  // namespace
}  // namespace shoal::testing
