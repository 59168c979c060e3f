// PooledModel: a model that the local daemon serves.
#pragma once

#include <memory>
#include <string>

#include "client/predict/src/given_model.hpp"
#include "client/predict/src/shared_model.hpp"

namespace shoal::predict {

/// Predictors that send requests to the daemon's model `name`. All of a process share one connection. `given` only shows what the
/// program expects: its weights are not used.
///   Errors  those of Pool::connect(); bind() gives those of Pool::describe(), and kInvalidArgument: the symbol is not the served
///           model, because inputs, outputs, their types or shapes differ (names both), or the graphs do (Import::fingerprint). A
///           daemon before 0.3, and a model of another format, tell nothing of their graph
Result<std::shared_ptr<SharedModel>> use_pooled_model(GivenModel given, std::string name, bool has_all_outputs);

}  // namespace shoal::predict
