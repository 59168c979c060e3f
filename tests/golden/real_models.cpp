#include "tests/golden/real_models.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "shm/tensor/npy.hpp"

namespace shoal::testing {

void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.folder << " " << model.prefix << " epoch " << model.epoch;
}

const std::vector<RealModel> kRealModels = {
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

namespace {

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

}  // namespace

std::vector<RealCase> cases_of(const RealModel& real) {
  const auto folder = test_data() / "models" / real.folder / "expected";
  std::ifstream index(folder / "expected.json");
  std::vector<RealCase> cases;
  for (const auto& entry : index ? nlohmann::json::parse(index) : nlohmann::json::array()) {
    if (entry.value("model", real.prefix) != real.prefix) continue;  // the three networks of a cascade share one list
    RealCase& each = cases.emplace_back(RealCase{.name = entry.at("case")});
    for (const auto& input : entry.at("inputs"))
      each.inputs.push_back(
          {input.at("name"), model_input(folder / input.at("file").get<std::string>(), entry.value("note", ""))});
    for (const auto& output : entry.at("outputs"))
      each.outputs.push_back({"", read_npy(folder / output.at("file").get<std::string>()).value()});
  }
  return cases;
}

std::string prefix_of(const RealModel& real) { return (test_data() / "models" / real.folder / real.prefix).string(); }

}  // namespace shoal::testing
