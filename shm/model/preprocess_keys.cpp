// The table [preprocess].
#include <algorithm>
#include <cmath>

#include "shm/model/toml_site.hpp"

namespace shoal::internal {
namespace {

Result<std::vector<float>> read_channels(const Site& site) {
  std::vector<float> numbers;
  const auto add = [&](const toml::node& node) -> Status {
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number || !std::isfinite(*number)) return site.error("must be a number, or one per channel");
    numbers.push_back(static_cast<float>(*number));
    return {};
  };
  if (const toml::array* array = site.node.as_array()) {
    for (const toml::node& element : *array) SHOAL_RETURN_IF_ERROR(add(element));
  } else {
    SHOAL_RETURN_IF_ERROR(add(site.node));
  }
  return numbers;
}

Status fit_channels(const Site& site, std::string_view key, std::size_t channels, List<float>& numbers) {
  if (numbers.size() == channels) return {};
  const bool uniform = !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](float n) { return n == numbers[0]; });
  if (!uniform) return site.error(format("has {} numbers in '{}' for {} channels", numbers.size(), key, channels));
  numbers = std::vector<float>(channels, numbers[0]);
  return {};
}

Result<std::vector<std::int64_t>> read_crop(const Site& site) {
  constexpr std::int64_t kLargest = 1 << 20;
  const toml::array* array = site.node.as_array();
  if (!array) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t side, read_integer(site, 0, kLargest));
    return std::vector<std::int64_t>{side, side};
  }
  if (array->size() != 2) return site.error("must be one number, or [height, width]");
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t height, read_integer(site.at((*array)[0], site.key), 0, kLargest));
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t width, read_integer(site.at((*array)[1], site.key), 0, kLargest));
  return std::vector<std::int64_t>{height, width};
}

Status read_preprocess_key(const Site& site, std::string_view key, Preprocess& preprocess) {
  if (key == "preset") return {};
  if (key == "resize") {
    SHOAL_ASSIGN_OR_RETURN(preprocess.resize, read_integer(site, 0, 1 << 20));
  } else if (key == "crop") {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::int64_t> crop, read_crop(site));
    preprocess.crop_height = crop[0];
    preprocess.crop_width = crop[1];
  } else if (key == "order") {
    SHOAL_ASSIGN_OR_RETURN(preprocess.order, read_string(site));
    if (preprocess.order != "RGB" && preprocess.order != "BGR" && preprocess.order != "GRAY") {
      return site.error("must be \"RGB\", \"BGR\" or \"GRAY\"");
    }
  } else if (key == "mean") {
    SHOAL_ASSIGN_OR_RETURN(preprocess.mean, read_channels(site));
  } else if (key == "scale") {
    SHOAL_ASSIGN_OR_RETURN(preprocess.scale, read_channels(site));
  } else if (key == "letterbox") {
    const auto letterbox = site.node.value_exact<bool>();
    if (!letterbox) return site.error("must be true or false");
    preprocess.letterbox = *letterbox;
  } else if (key == "border") {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t border, read_integer(site, 0, 255));
    preprocess.border = static_cast<std::uint8_t>(border);
  } else {
    return site.error("is not a key of preprocess (preset, resize, crop, order, mean, scale, letterbox, border)");
  }
  return {};
}

}  // namespace

Result<Preprocess> read_preprocess(const std::string& where, const toml::node& node) {
  const Site site{where, node, "preprocess"};
  const toml::table* table = node.as_table();
  if (!table) return site.error("must be a table: [preprocess]");
  Preprocess preprocess;
  if (const toml::node* preset = table->get("preset")) {
    const Site child = site.at(*preset, "preprocess.preset");
    SHOAL_ASSIGN_OR_RETURN(const std::string name, read_string(child));
    auto found = preprocess_preset(name);
    if (!found) return child.error(format("is wrong: {}", found.status().message()));
    preprocess = *found;
  }
  for (const auto& [key, value] : *table) {
    SHOAL_RETURN_IF_ERROR(read_preprocess_key(site.at(value, format("preprocess.{}", key.str())), key.str(), preprocess));
  }
  if (preprocess.letterbox) {
    if (table->get("resize") && preprocess.resize != 0)
      return site.at(*table->get("resize"), "preprocess.resize").error("has no meaning with `letterbox`: leave one of them out");
    preprocess.resize = 0;  // of a preset
  }
  const std::size_t channels = preprocess.order == "GRAY" ? 1 : 3;
  SHOAL_RETURN_IF_ERROR(fit_channels(site, "mean", channels, preprocess.mean));
  SHOAL_RETURN_IF_ERROR(fit_channels(site, "scale", channels, preprocess.scale));
  return preprocess;
}

}  // namespace shoal::internal
