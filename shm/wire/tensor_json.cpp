#include "shm/wire/tensor_json.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace shoal::wire {

using nlohmann::json;

json to_json(std::span<const TensorSpec> specs) {
  json list = json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"dtype", dtype_name(spec.dtype)},
                    {"shape", std::vector<std::int64_t>(spec.shape.begin(), spec.shape.end())}});
  }
  return list;
}

std::vector<TensorSpec> to_specs(const json& list) {
  std::vector<TensorSpec> specs;
  for (const json& item : list) {
    const auto dims = item.at("shape").get<std::vector<std::int64_t>>();
    if (dims.size() > kMaxRank) throw std::runtime_error("a shape of too many dimensions");
    specs.push_back(
        {item.at("name").get<std::string>(), parse_dtype(item.at("dtype").get<std::string>()).value(), Shape(std::span(dims))});
  }
  return specs;
}

}  // namespace shoal::wire
