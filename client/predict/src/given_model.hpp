// GivenModel: the symbol and the parameters that a program passes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/predict/src/c_arguments.hpp"
#include "worker/import/importer.hpp"

namespace shoal::predict {

struct GivenModel {
  worker::Import import;           ///< its constants are views into the parameters
  std::vector<TensorSpec> inputs;  ///< in the model's order, without open dimensions
};

/// What to read.
struct ModelArguments {
  std::string_view symbol_json;
  std::span<const std::byte> parameters;
  std::vector<TensorSpec> shapes;
  InputTypes types = {};                  ///< of inputs that are not float32
  std::vector<std::string> outputs = {};  ///< empty: the symbol's own
};

/// Imports the symbol. Shapes of labels, of parameters and of names that it does not have are left out.
///   Errors  those of worker::Importer::read(), which name the argument and the offset; kInvalidArgument: a parameter that is
///           missing or has another shape, an input without a shape
Result<GivenModel> read_model(const ModelArguments& arguments);

}  // namespace shoal::predict
