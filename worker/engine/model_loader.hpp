// load_model: loads a Model and its description from files. The zygote and Engine both use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "worker/exec/model.hpp"
#include "worker/import/importer.hpp"

namespace shoal::worker {

/// What to load. Loading ignores these parts of `config`: workers, contexts, limits, labels, preprocessing.
struct ModelSource {
  std::string name;                          ///< names the model in errors
  std::string path;                          ///< as the user gave it; kIdentityPath needs no files
  std::vector<std::filesystem::path> files;  ///< ModelFiles::files
  ModelConfig config;
  TuningProgress tuning_progress = {};
  std::function<Status()> measure_elsewhere = {};  ///< as in ModelOptions
};

/// What Model::load() is told, for a model with these inputs. `source.config` is without ignored inputs, and names the parts of
/// sparse ones.
///   Errors  kInvalidArgument: precision, fallback; those of reading the golden case
Result<ModelOptions> model_options(const ModelSource& source, const InputPlan& plan);

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::vector<TensorSpec> inputs;     ///< the model's order; -1 = any size, Shape::any() = any shape
  std::vector<TensorSpec> outputs;    ///< likewise; -1 for a size that depends on the inputs
  std::vector<StatePair> state;       ///< as in model.toml, with the shapes of the inputs
  std::string fingerprint;            ///< Import::fingerprint
  std::vector<std::string> warnings;  ///< from importing and choosing algorithms; nodes that run slowly
  std::uint64_t parameter_bytes = 0;  ///< size of the parameters in the model's file
  std::uint64_t arena_bytes = 0;      ///< the largest arena of the programs compiled by loading
};

/// Imports, packs (or maps `packed`, which an equal load made before) and compiles. Leaves the process single-threaded.
///   Errors  those of read_model, plan_inputs and Model::load; the message names the model
Result<LoadedModel> load_model(const ModelSource& source, UniqueFd packed = {});
/// The same for a model that has been read, from memory for example. `source.files` are not read, and `import` has the outputs
/// already: those of `source.config` do not count. What the constants of `import` refer to is not needed any more afterwards.
Result<LoadedModel> load_model(const ModelSource& source, Import import);

/// A number that changes when the files do. Errors: kNotFound, kInternal.
Result<std::string> hash_files(const ModelSource& source);

}  // namespace shoal::worker
