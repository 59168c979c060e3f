// Predictor: one model of a Client.
#pragma once

#include <string>
#include <utility>

#include "shoal/client.hpp"

namespace shoal {

/// A Client (of a Pool or an Engine) with a model's name.
///   Threads   thread-safe
class Predictor {
 public:
  /// Errors: those of Client::describe(): kNotFound, kUnavailable.
  static Result<Predictor> create(Client client, std::string model) {
    Result<ModelInfo> info = client.describe(model);
    if (!info.ok()) return info.status();
    return Predictor(std::move(client), std::move(model), *std::move(info));
  }

  /// The model's description at the time of create().
  const ModelInfo& info() const& { return info_; }
  ModelInfo info() && { return std::move(info_); }

  /// Runs the model once and waits.
  ///   inputs   one per model input, in any order
  ///   Returns  the outputs in the model's order
  ///   Errors   those of Client::submit()
  Result<Tensors> predict(Tensors inputs, SubmitOptions options = {}) const {
    return client_.predict(model_, std::move(inputs), options);
  }
  /// The same for a model with one input.
  ///   Errors   kInvalidArgument (the model has another number of inputs)
  Result<Tensors> predict(Tensor input, SubmitOptions options = {}) const {
    if (info_.inputs.size() != 1) {
      return Status(StatusCode::kInvalidArgument,
                    "model '" + model_ + "' has " + std::to_string(info_.inputs.size()) + " inputs: name them");
    }
    Tensors inputs;
    inputs.push_back({info_.inputs[0].name, std::move(input)});
    return predict(std::move(inputs), options);
  }
  /// Submits one request and returns at once. Every failure arrives in the Prediction.
  Prediction submit(Tensors inputs, SubmitOptions options = {}) const {
    return client_.submit(model_, std::move(inputs), options);
  }

 private:
  Predictor(Client client, std::string model, ModelInfo info)
      : client_(std::move(client)), model_(std::move(model)), info_(std::move(info)) {}

  Client client_;
  std::string model_;
  ModelInfo info_;
};

}  // namespace shoal
