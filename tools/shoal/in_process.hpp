// Loading a model into this process for a command.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "shoal/engine.hpp"
#include "shoal/result.hpp"
#include "shoal/runner.hpp"

namespace shoal::tool {

/// True when the user means files and not a name that a daemon serves: it has a '/', or exists as a directory or checkpoint
/// prefix.
bool is_path(const std::string& model);

/// Loads for one set of inputs. Where model.toml says which shapes the model is made for, those decide the weight layouts, so
/// that outputs are bit-equal to the daemon's; else the given ones do.
///   inputs  as given by the user; labels may be among them
///   Errors  those of Engine::load(); kInvalidArgument: an input that the model does not have, with those it has; a dtype that is
///   not model.toml's
Result<Engine> load_for_inputs(const std::string& path, EngineOptions options, const Tensors& inputs);

/// Loads for pictures. A model without any shape in its files takes the size that `preprocess` makes.
///   Errors  those of Engine::load()
Result<Engine> load_for_pictures(const std::string& path, EngineOptions options, const std::optional<Preprocess>& preprocess);

}  // namespace shoal::tool
