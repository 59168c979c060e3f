// ModelInfo: the description of a served or loaded model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/options.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// In bytes. No model has a longer name.
inline constexpr std::size_t kLongestModelName = 100;

/// How pictures become a model's input: the keys of `[preprocess]` in model.toml, with the preset already applied.
struct Preprocess {
  StructSize<Preprocess> struct_size{};
  std::int64_t resize = 0;  ///< length of the shorter side in pixels before the crop; 0 = resize to the crop's size
  std::int64_t crop_height = 0, crop_width = 0;  ///< center crop; 0 = the model's input size
  Text order = "RGB";                            ///< channel order of the model: "RGB", "BGR" or "GRAY"
  List<float> mean = {0, 0, 0};                  ///< subtracted, per channel in that order, on the 0..255 scale
  List<float> scale = {1, 1, 1};                 ///< multiplied after the subtraction, per channel
  /// The whole picture is resized to fit into the crop, in proportion, and lies in its center; `resize` is 0 then.
  bool letterbox = false;
  std::uint8_t border = 127;  ///< of a letterbox: the gray, 0..255, around the picture
  friend bool operator==(const Preprocess&, const Preprocess&) = default;
};

/// The description of a served or loaded model. A later release may add members.
struct ModelInfo {
  std::string name;
  std::uint64_t version = 1;
  std::vector<TensorSpec> inputs;   ///< in the model's order
  std::vector<TensorSpec> outputs;  ///< in the model's order; -1: depends on the inputs, with a range: on their data
  std::vector<StatePair> state;     ///< ordinary inputs and outputs; a request that leaves such an input out has zeros there
  std::vector<std::string> labels;  ///< class names, element i = class i; empty if the model has none
  Optional<Preprocess> preprocess;
  std::string precision = "f32";  ///< in which the model runs: "f32", "f32-fast" or "bf16"; never "auto"
};

}  // namespace shoal
