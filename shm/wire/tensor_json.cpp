#include "shm/wire/tensor_json.hpp"

namespace shoal::wire {

using nlohmann::json;

namespace {

json shape_json(const Shape& shape) {
  return shape.is_known() ? json(std::vector<std::int64_t>(shape.begin(), shape.end())) : json();
}

Shape to_shape(const json& list) {
  if (list.is_null()) return Shape::any();
  const auto dims = to_integers<std::int64_t>(list);
  return Shape::make(dims).value();
}

}  // namespace

json to_json(std::span<const TensorSpec> specs) {
  json list = json::array();
  for (const TensorSpec& spec : specs) {
    json item{{"name", spec.name}, {"dtype", dtype_name(spec.dtype)}, {"shape", shape_json(spec.shape)}};
    for (const DimRange& range : spec.ranges) item["ranges"].push_back({range.lowest, range.highest});
    if (!spec.layout.empty()) item["layout"] = spec.layout;
    list.push_back(std::move(item));
  }
  return list;
}

std::vector<TensorSpec> to_specs(const json& list) {
  std::vector<TensorSpec> specs;
  for (const json& item : list) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = item.at("name").get<std::string>();
    spec.dtype = parse_dtype(item.at("dtype").get<std::string>()).value();
    spec.shape = to_shape(item.at("shape"));
    for (const json& range : item.value("ranges", json::array()))
      spec.ranges.push_back({to_integer<std::int64_t>(range.at(0)), to_integer<std::int64_t>(range.at(1))});
    if (!spec.ranges.empty() && spec.ranges.size() != spec.shape.dims().size())
      throw std::runtime_error("ranges that are not one per dimension");
    spec.layout = item.value("layout", std::string());
    if (!spec.layout.empty() && spec.layout.size() != spec.shape.dims().size())
      throw std::runtime_error("a layout that is not one letter per dimension");
  }
  return specs;
}

json to_json(std::span<const StatePair> state) {
  json list = json::array();
  for (const StatePair& pair : state) {
    json item{{"out", pair.out}, {"in", pair.in}, {"shape", shape_json(pair.shape)}};
    if (!pair.batch_input.empty()) item["batch_input"] = pair.batch_input;
    if (pair.batch_axis != 0) item["batch_axis"] = pair.batch_axis;
    list.push_back(std::move(item));
  }
  return list;
}

std::vector<StatePair> to_state(const json& list) {
  std::vector<StatePair> state;
  for (const json& item : list) {
    const auto axis = item.contains("batch_axis") ? to_integer<std::int64_t>(item.at("batch_axis")) : 0;
    if (axis < 0 || axis >= static_cast<std::int64_t>(kMaxRank)) throw std::runtime_error("a batch_axis that is no dimension");
    state.push_back({item.at("out").get<std::string>(), item.at("in").get<std::string>(), to_shape(item.at("shape")),
                     item.value("batch_input", std::string()), static_cast<int>(axis)});
  }
  return state;
}

}  // namespace shoal::wire
