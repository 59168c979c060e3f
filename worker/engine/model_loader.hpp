// load_model: from files to a Model and what the world is told of it; the one path of the zygote and of Engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "worker/exec/model.hpp"

namespace shoal::worker {

/// What to load. Of `config` only what loading needs counts: not workers, contexts, limits, labels and preprocessing.
struct ModelSource {
  std::string name;  ///< names the model in errors
  std::string path;  ///< as the user gave it; kIdentityPath needs no files
  std::filesystem::path symbol_file, params_file;
  ModelConfig config;
  TuningProgress tuning_progress = {};
};

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::vector<TensorSpec> inputs;     ///< the model's order; -1 = any size, rank 0 = any shape
  std::vector<TensorSpec> outputs;    ///< likewise; -1 where the size follows from the inputs
  std::vector<std::string> warnings;  ///< of importing, and of choosing algorithms
  std::uint64_t parameter_bytes = 0;  ///< of the parameters in the model's file
  std::uint64_t arena_bytes = 0;      ///< the largest of the programs compiled now
};

/// Imports, packs (or maps `packed`, of an equal load before) and compiles. Leaves the process single-threaded.
///   Errors  those of import_mxnet, plan_inputs and Model::load, the model named
Result<LoadedModel> load_model(const ModelSource& source, UniqueFd packed = {});

/// A number that changes when the files do. Errors: kNotFound, kInternal.
Result<std::string> hash_files(const ModelSource& source);

}  // namespace shoal::worker
