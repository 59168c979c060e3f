// Loads a model into this process, for a command.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "shoal/client.hpp"
#include "shoal/engine.hpp"
#include "shoal/result.hpp"
#include "tools/shoal/working.hpp"

namespace shoal::tool {

/// True if the user means files, not a model of the daemon: the text contains a '/', or exists as a directory or checkpoint
/// prefix.
bool is_path(const std::string& model);

/// Says why the first load of a model takes long: called while algorithms are measured.
///   Lifetime  `working` must outlive the load
OnMeasuring show_measuring(const Working& working);

/// Loads a model for one set of inputs. Shows its progress, as the next two functions do. If model.toml gives shapes, they decide
/// the weight layouts, so that outputs are bit-equal to the daemon's; otherwise the given inputs do.
///   inputs  from the user; may contain labels
///   Errors  those of Engine::load(); kInvalidArgument (an input that the model does not have, or that has another dtype than in
///           model.toml)
Result<Engine> load_for_inputs(const std::string& path, EngineOptions options, const Tensors& inputs);

/// Loads a model for inputs of these shapes. If there are none, the model's files decide.
///   shapes  names and shapes; their types are those of model.toml, else float32
///   Errors  those of Engine::load()
Result<Engine> load_for_shapes(const std::string& path, EngineOptions options, std::span<const TensorSpec> shapes);

/// Loads a model for pictures. If the model's files give no shape, the size comes from `preprocess`.
///   Errors  those of Engine::load()
Result<Engine> load_for_pictures(const std::string& path, EngineOptions options, const Optional<Preprocess>& preprocess);

}  // namespace shoal::tool
