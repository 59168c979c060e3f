// What a model's files do not say: model.toml, and where the files of a checkpoint are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/runner.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// The files of one checkpoint.
struct ModelFiles {
  std::filesystem::path directory;
  std::string prefix;                      ///< file name part: "resnet-50"
  int epoch = 0;
  std::uint64_t version = 1;               ///< the numeric sub-directory's number
  std::filesystem::path symbol_file, params_file;
  std::filesystem::path config_file;       ///< model.toml beside them; empty when there is none
};

/// Finds a checkpoint from what a user types: prefix, prefix@epoch, a directory holding one, or one with numeric versions (the highest).
///   Errors  kNotFound, kInvalidArgument: several prefixes or epochs, all listed in the message
Result<ModelFiles> find_model(const std::string& path);

/// All keys of model.toml; the same keys stand in `[models.NAME]` of the daemon's configuration and on its command line.
struct ModelConfig {
  std::vector<TensorSpec> inputs;              ///< shape -1 = any
  std::vector<std::string> outputs;            ///< names, for the reader's comfort; may be empty
  std::string labels_file;                     ///< relative to the model's directory; empty = synset.txt when present
  std::optional<Preprocess> preprocess;
  std::vector<std::vector<TensorSpec>> shapes; ///< input sets to compile; made from `inputs` (-1 first dimension as 1) when not given
  std::string device = "cpu";
  int workers = 1, contexts = 1, threads = 1;
  int queue_limit = 1024;
  std::uint64_t timeout_ms = 30'000;           ///< 0 = none
};

/// Reads model.toml text (`where` names it in errors). Unknown keys are errors that name the key and line.
Result<ModelConfig> parse_model_config(const std::string& text, const std::string& where);
/// model.toml beside the model, else prefix-shapes.json, else an empty configuration.
Result<ModelConfig> read_model_config(const ModelFiles& files);
/// Lines of the labels file; empty when there is none. Errors: kNotFound when the configuration names one that is missing.
Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config);
/// Preprocess of a preset's name: "imagenet", "imagenet-bgr-caffe", "cifar10", "mnist", "none". Errors: kNotFound, lists the names.
Result<Preprocess> preprocess_preset(const std::string& name);

/// One model of the daemon: name, where it is, and its effective configuration.
struct ServedModel {
  std::string name;
  std::string path;
  ModelFiles files;
  ModelConfig config;
  std::vector<std::string> labels;
};

}  // namespace shoal
