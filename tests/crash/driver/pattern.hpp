// Inputs whose right answer is known without running anything: the driver's models multiply by a factor that tells their version.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "tests/crash/driver/history.hpp"

namespace shoal::test {

/// A model of the driver: output = input * factor of its version.
struct PatternModel {
  enum class Inputs : std::uint8_t {
    kRows,      ///< [size, 16]
    kFlat,      ///< [1 + 997 * size]; sometimes one that fits into no arena
    kPictures,  ///< [1, 3, 64, 64] when size is 1, else height and width from 32 on; the answer is not a multiple of the input
  };
  Inputs inputs = Inputs::kRows;
  std::map<std::uint64_t, float> factors;  ///< by version; other versions may not answer
  int sizes = 4, contents = 16;            ///< how many a client draws from
};
using PatternModels = std::map<std::string, PatternModel>;

/// An input that begins with this triggers a faulty operator. Patterns never contain it.
inline constexpr float kTrigger = 666;

/// Draws a random question for the model.
Question random_question(const std::string& name, const PatternModel& model, std::mt19937& random);
Tensor pattern_input(const PatternModel& model, const Question& question, How how = How::kPlain);
/// Returns the hash of the right answer; nothing when that version may not answer.
std::optional<std::uint64_t> pattern_answer(const PatternModels& models, const Question& question, std::uint64_t version);

nlohmann::json to_json(const PatternModels& models);
PatternModels pattern_models_from(const nlohmann::json& json);

}  // namespace shoal::test
