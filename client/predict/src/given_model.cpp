#include "client/predict/src/given_model.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::predict {
namespace {

Status check_parameter_shapes(const worker::Graph& graph, const std::vector<TensorSpec>& shapes) {
  for (const worker::Value& value : graph.values) {
    if (!value.constant) continue;
    const auto given = std::ranges::find(shapes, value.name, &TensorSpec::name);
    if (given == shapes.end() || given->shape == value.shape) continue;
    return invalid_argument("input {} is a parameter of shape {} in param_bytes, and is given the shape {}",
                            in_quotes(value.name), value.shape.to_string(), given->shape.to_string());
  }
  return {};
}

Result<TensorSpec> input_of(const worker::Import& import, const TensorSpec& wanted, const ModelArguments& arguments) {
  const auto type = arguments.types.find(wanted.name);
  TensorSpec input{wanted.name, type == arguments.types.end() ? DType::kFloat32 : type->second, wanted.shape};
  const auto given = std::ranges::find(arguments.shapes, wanted.name, &TensorSpec::name);
  if (given != arguments.shapes.end()) input.shape = given->shape;
  if (input.shape.element_count() >= 0) return input;
  const auto missing = import.missing_parameters.find(wanted.name);
  if (missing == import.missing_parameters.end()) {
    return invalid_argument("the shape of input {} is not given: name the input in input_keys", in_quotes(wanted.name));
  }
  return invalid_argument("param_bytes holds no {}, {}. If it is an input, name it in input_keys", in_quotes(wanted.name),
                          missing->second);
}

}  // namespace

Result<GivenModel> read_model(const ModelArguments& arguments) {
  const worker::ForeignModel files{{{"symbol_json_str", std::as_bytes(std::span(arguments.symbol_json)), nullptr},
                                    {"param_bytes", arguments.parameters, nullptr}},
                                   arguments.outputs};
  GivenModel model;
  SHOAL_ASSIGN_OR_RETURN(model.import, worker::import_mxnet(files, worker::ImportLimits(), nullptr));
  SHOAL_RETURN_IF_ERROR(check_parameter_shapes(model.import.graph, arguments.shapes));
  for (const TensorSpec& wanted : model.import.graph.input_specs()) {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec input, input_of(model.import, wanted, arguments));
    model.inputs.push_back(std::move(input));
  }
  return model;
}

}  // namespace shoal::predict
