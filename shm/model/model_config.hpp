// What a model's files do not say: model.toml, and where the files of a checkpoint are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shm/model/buckets.hpp"
#include "shoal/result.hpp"
#include "shoal/runner.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// The files of one checkpoint.
struct ModelFiles {
  std::filesystem::path directory;
  std::string prefix;  ///< file name part: "resnet-50"
  int epoch = 0;
  std::uint64_t version = 1;  ///< the numeric sub-directory's number
  std::filesystem::path symbol_file, params_file;
  std::filesystem::path config_file;  ///< model.toml beside them; empty when there is none
};

/// Finds a checkpoint from what a user types: prefix, prefix@epoch, a directory holding one, or one with numeric versions (the
/// highest).
///   Errors  kNotFound, kInvalidArgument: several prefixes or epochs, all listed in the message
Result<ModelFiles> find_model(const std::string& path);

/// Which of a model's numeric version directories are served.
struct VersionPolicy {
  int latest = 1;                      ///< the highest N; 0 = all
  std::vector<std::uint64_t> numbers;  ///< these instead, when there are any
  friend bool operator==(const VersionPolicy&, const VersionPolicy&) = default;
};

/// The model.toml that stands beside the version directories of that path; empty when there is none.
std::filesystem::path shared_config_file(const std::string& path);

/// One version, or why it cannot be served.
struct FoundVersion {
  std::uint64_t number = 1;
  Result<ModelFiles> files;
};
/// The versions of a model that `policy` names, the lowest first. A path to one checkpoint has version 1 alone.
///   Errors  kNotFound: a version that the policy names, with those that exist; of one version: those of find_model
Result<std::vector<FoundVersion>> find_versions(const std::string& path, const VersionPolicy& policy);

/// All keys of model.toml; the same keys stand in `[models.NAME]` of the daemon's configuration and on its command line.
struct ModelConfig {
  std::vector<TensorSpec> inputs;    ///< shape -1 = any, or any within its range
  std::vector<std::string> outputs;  ///< names, for the reader's comfort; may be empty
  std::string labels_file;           ///< relative to the model's directory; empty = synset.txt when present
  std::optional<Preprocess> preprocess;
  std::vector<std::vector<TensorSpec>> shapes;  ///< input sets to compile, as written; see plan_inputs()
  std::vector<Buckets> buckets;                 ///< sizes that requests are padded to
  std::string device = "cpu";
  std::string precision = "f32";  ///< or "f32-fast"
  int tuning_ms = 10'000;         ///< how long a first load may measure algorithms; 0 = not at all
  int workers = 1, contexts = 1, threads = 1;
  int queue_limit = 1024;
  int import_mb = 8192;  ///< memory (MiB) that reading the files may take, beside arrays that are used as they are stored
  int cache_mb = 256;    ///< per worker: what programs compiled on demand may hold
  std::uint64_t timeout_ms = 30'000;  ///< 0 = none
  int max_batch = 1;                  ///< rows that requests are joined to for one run; 1 = each runs alone
  double max_delay_ms = 0;            ///< how long a request waits for others to join it while a lane is idle
  int run_limit_ms = 60'000;          ///< how long one attempt may compute without a step
  int quarantine_ms = 600'000;        ///< how long inputs that crashed workers are refused
  int load_timeout_s = 600;           ///< of one load; a first one that takes longer has failed
  int memory_mb = 0;                  ///< private memory of a worker; 0 = no limit
  std::string golden_file;         ///< .npz of inputs and expected outputs that a version answers before it serves; may be empty
  double golden_tolerance = 1e-4;  ///< of max(1, max|expected|)
  VersionPolicy versions;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Keys that somebody gave, and only those: one file's, one `[models.NAME]`'s, one command line's.
struct ModelOverrides {
  std::optional<std::vector<TensorSpec>> inputs;
  std::optional<std::vector<std::string>> outputs;
  std::optional<std::string> labels_file;
  std::optional<Preprocess> preprocess;
  std::optional<std::vector<std::vector<TensorSpec>>> shapes;
  std::optional<std::vector<Buckets>> buckets;
  std::optional<std::string> device, precision;
  std::optional<int> tuning_ms, workers, contexts, threads, queue_limit, import_mb, cache_mb, max_batch, run_limit_ms,
      quarantine_ms, load_timeout_s, memory_mb;
  std::optional<double> max_delay_ms, golden_tolerance;
  std::optional<std::string> golden_file;
  std::optional<VersionPolicy> versions;
  std::optional<std::uint64_t> timeout_ms;
};
/// Sets what is given. Given `inputs` without `shapes` drop the earlier `shapes`, which were made for other inputs.
void apply_overrides(const ModelOverrides& overrides, ModelConfig& config);

/// Reads model.toml text (`where` names it in errors). Unknown keys are errors that name the key and line.
Result<ModelConfig> parse_model_config(const std::string& text, const std::string& where);
/// model.toml beside the model (or beside its version directories), else prefix-shapes.json, else an empty configuration.
Result<ModelConfig> read_model_config(const ModelFiles& files);
/// Lines of the labels file; empty when there is none. Errors: kNotFound when the configuration names one that is missing.
Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config);
/// Preprocess of a preset's name: "imagenet", "imagenet-bgr-caffe", "cifar10", "mnist", "none". Errors: kNotFound, lists the
/// names.
Result<Preprocess> preprocess_preset(const std::string& name);

/// The inputs of a model and what is compiled for them when it is loaded.
struct InputPlan {
  std::vector<TensorSpec> inputs;                   ///< the model's order; shape -1 = any
  std::vector<std::vector<TensorSpec>> input_sets;  ///< concrete, the model's order; at least one
};
/// Joins what the configuration says with what the graph says (names and order; rank 0 = nothing known of the shape).
/// A first dimension that the graph alone says is the batch of its training: any will do. Without `shapes` one set is made from
/// the inputs: a first dimension of -1 taken as 1, the graph's as it stands there, a range as its smallest size.
///   where   names the model in errors, and where the missing line belongs: "model 'shapes' (models/shapes/model.toml)"
///   Errors  kInvalidArgument: no shape for an input (with the line to write), another dimension open and neither range nor
///           `shapes`, `shapes` outside a range, names or dtypes the graph does not have
Result<InputPlan> plan_inputs(const ModelConfig& config, std::span<const TensorSpec> graph_inputs, const std::string& where);
/// A warning for each name in `outputs` that the model does not have.
std::vector<std::string> check_outputs(const ModelConfig& config, std::span<const TensorSpec> outputs);
/// The inputs that `inputs` and `shapes` name: data, whatever the graph makes of them.
std::set<std::string> named_inputs(const ModelConfig& config);

/// One model as the daemon was asked for it.
struct ModelRequest {
  std::string name;
  std::string path;
  ModelOverrides overrides;
};
/// What clients may have of the daemon: the table [limits] of its configuration. 0 = no limit.
struct ClientLimits {
  int client_requests = 4096;   ///< under way at the same time, of one client
  int client_message_mb = 256;  ///< MiB of one client's requests, and of answers it has not read; arenas do not count
  int client_queue_percent = 75;  ///< of a queue's places, of one client while more than half are taken; with others it is less
  int client_rate = 0;            ///< requests per second, of one client
  int client_bad_messages = 16;   ///< that do not follow the protocol; with one more it is put out
  int connections = 0;            ///< clients at the same time; 0 = as many as there are descriptors for
  int connection_rate = 500;      ///< new ones a second; after a pause two seconds' worth at once, the others wait
  friend bool operator==(const ClientLimits&, const ClientLimits&) = default;
};
struct DaemonConfig {
  std::vector<ModelRequest> models;
  ClientLimits limits;
};
/// The daemon's configuration: tables [models.NAME] with `path` and any key of model.toml, and [limits]. A relative path is
/// relative to `directory`. Unknown keys are errors that name the key and line.
Result<DaemonConfig> parse_daemon_config(const std::string& text, const std::string& where,
                                         const std::filesystem::path& directory);
/// "NAME=PATH[,workers=4,contexts=1,threads=2,device=cpu,queue_limit=64,timeout_ms=500,labels=FILE,preset=imagenet,
/// cache_mb=64,buckets=1:2:4:8,versions=latest:2,input=data:?x3x224..640x224..640[:float32],shape=data:4x3x224x224]"; `input` and
/// `shape` may be repeated.
///   Errors  kInvalidArgument naming the argument and the key
Result<ModelRequest> parse_model_argument(const std::string& text);

/// One model of the daemon: name, where it is, and its effective configuration.
struct ServedModel {
  std::string name;
  std::string path;
  ModelFiles files;
  ModelConfig config;
  std::vector<std::string> labels;
};
struct ServedVersion {
  std::uint64_t number = 1;
  Result<ServedModel> model;
};
/// The versions to serve, the lowest first: finds the files, reads model.toml and labels, and lets the request's keys override
/// the file's. Which versions: the request's `versions`, else the model.toml's that stands beside the version directories.
///   Errors  those of find_versions; of one version: those of find_model, read_model_config and read_labels; the model named
Result<std::vector<ServedVersion>> resolve_versions(const ModelRequest& request);

}  // namespace shoal
