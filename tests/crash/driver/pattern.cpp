#include "tests/crash/driver/pattern.hpp"

namespace shoal::test {
namespace {

constexpr int kTooLarge = 200;  // 800 KB

Shape shape_of(const PatternModel& model, int size) {
  switch (model.inputs) {
    case PatternModel::Inputs::kRows:
      return {size, 16};
    case PatternModel::Inputs::kFlat:
      return {1 + 997 * size};
    case PatternModel::Inputs::kPictures:
      return size == 1 ? Shape{1, 3, 64, 64} : Shape{1, 3, 32 + size % 8, 32 + size / 8};
  }
  return {};
}

}  // namespace

Question random_question(const std::string& name, const PatternModel& model, std::mt19937& random) {
  Question question{.model = name, .seed = static_cast<std::uint32_t>(random() % static_cast<unsigned>(model.contents))};
  if (random() % 3 == 0) question.size = 1 + static_cast<int>(random() % static_cast<std::uint32_t>(model.sizes));
  if (model.inputs == PatternModel::Inputs::kFlat && random() % 50 == 0) question.size = kTooLarge;
  return question;
}

Tensor pattern_input(const PatternModel& model, const Question& question, How how) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape_of(model, question.size)).value();
  std::uint32_t state = question.seed * 2654435761u + static_cast<std::uint32_t>(question.size);
  for (float& value : tensor.values<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 20) * 0.125f;  // 0 to 512
    if (model.inputs == PatternModel::Inputs::kPictures)
      value = value / 256.0f - 1.0f;  // a range in which the network gives different answers
  }
  if (how == How::kGuilty) tensor.values<float>()[0] = kTrigger;
  return tensor;
}

std::optional<std::uint64_t> pattern_answer(const PatternModels& models, const Question& question, std::uint64_t version) {
  const auto model = models.find(question.model);
  if (model == models.end()) return std::nullopt;
  const auto factor = model->second.factors.find(version);
  if (factor == model->second.factors.end()) return std::nullopt;
  Tensor answer = pattern_input(model->second, question);
  for (float& value : answer.values<float>()) value *= factor->second;
  return hash_of(answer);
}

nlohmann::json to_json(const PatternModels& models) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, model] : models) {
    nlohmann::json factors = nlohmann::json::array();
    for (const auto& [version, factor] : model.factors) factors.push_back({version, factor});
    json[name] = {
        {"inputs", static_cast<int>(model.inputs)}, {"factors", factors}, {"sizes", model.sizes}, {"contents", model.contents}};
  }
  return json;
}

PatternModels pattern_models_from(const nlohmann::json& json) {
  PatternModels models;
  for (const auto& [name, entry] : json.items()) {
    PatternModel& model = models[name];
    model.inputs = static_cast<PatternModel::Inputs>(entry.at("inputs").get<int>());
    model.sizes = entry.at("sizes");
    model.contents = entry.at("contents");
    for (const auto& factor : entry.at("factors")) model.factors[factor.at(0)] = factor.at(1);
  }
  return models;
}

}  // namespace shoal::test
