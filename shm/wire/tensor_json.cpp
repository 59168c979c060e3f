#include "shm/wire/tensor_json.hpp"

namespace shoal::wire {

using nlohmann::json;

json to_json(std::span<const TensorSpec> specs) {
  json list = json::array();
  for (const TensorSpec& spec : specs) {
    json item{{"name", spec.name}, {"dtype", dtype_name(spec.dtype)}, {"shape", nullptr}};
    if (spec.shape.is_known()) item["shape"] = std::vector<std::int64_t>(spec.shape.begin(), spec.shape.end());
    for (const DimRange& range : spec.ranges) item["ranges"].push_back({range.lowest, range.highest});
    list.push_back(std::move(item));
  }
  return list;
}

std::vector<TensorSpec> to_specs(const json& list) {
  std::vector<TensorSpec> specs;
  for (const json& item : list) {
    const json& shape = item.at("shape");
    const auto dims = shape.is_null() ? std::vector<std::int64_t>() : to_integers<std::int64_t>(shape);
    if (dims.size() > kMaxRank) throw std::runtime_error("a shape of too many dimensions");
    TensorSpec& spec = specs.emplace_back();
    spec.name = item.at("name").get<std::string>();
    spec.dtype = parse_dtype(item.at("dtype").get<std::string>()).value();
    if (!shape.is_null()) spec.shape = Shape(std::span(dims));
    for (const json& range : item.value("ranges", json::array()))
      spec.ranges.push_back({to_integer<std::int64_t>(range.at(0)), to_integer<std::int64_t>(range.at(1))});
    if (!spec.ranges.empty() && spec.ranges.size() != dims.size())
      throw std::runtime_error("ranges that are not one per dimension");
  }
  return specs;
}

}  // namespace shoal::wire
