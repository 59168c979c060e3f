// Loads and runs models on both devices, for the golden tests.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/model.hpp"

namespace shoal::testing {

inline constexpr const char* kDevices[] = {"cpu", "cpu-reference"};

/// Imports a checkpoint and loads it on `device` for these inputs, with the other `options` as given.
Result<std::unique_ptr<worker::Model>> load_checkpoint(const std::string& prefix, int epoch, const std::string& device,
                                                       std::span<const TensorSpec> inputs, worker::ModelOptions options = {});

/// Runs the model once and returns the outputs in the model's order. Inputs are found by name; labels may be among them.
Result<Tensors> run(worker::Model& model, const Tensors& inputs);

std::vector<TensorSpec> specs_of(const Tensors& tensors);

}  // namespace shoal::testing
