// The preprocessing of a model in JSON, with the keys of model.toml.
#pragma once

#include <nlohmann/json.hpp>

#include "shm/model/model_config.hpp"

namespace shoal {

inline nlohmann::json preprocess_json(const Preprocess& preprocess) {
  return {{"resize", preprocess.resize}, {"crop", {preprocess.crop_height, preprocess.crop_width}},
          {"order", preprocess.order},   {"mean", preprocess.mean},
          {"scale", preprocess.scale},   {"letterbox", preprocess.letterbox},
          {"border", preprocess.border}};
}

}  // namespace shoal
