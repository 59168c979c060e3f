// The configuration of a model (model.toml), and where the files of a checkpoint are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shm/model/access_rules.hpp"
#include "shm/model/buckets.hpp"
#include "shoal/model_info.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// The files of one checkpoint.
struct ModelFiles {
  std::filesystem::path directory;
  std::string prefix;         ///< file name part: "resnet-50"
  int epoch = 0;              ///< 0 also for kinds of models that have no epochs
  std::uint64_t version = 1;  ///< the numeric sub-directory's number
  /// What an importer reads: the graph's file, then that of the parameters if they have one, then further data (ModelKind).
  std::vector<std::filesystem::path> files;
  std::filesystem::path config_file;  ///< model.toml beside them; empty when there is none
};

/// Finds a checkpoint of any registered kind from what a user types: prefix, prefix@epoch, the graph's file, a directory with one
/// checkpoint, or a directory with numeric versions, of which it takes the highest.
///   Errors  kNotFound, kInvalidArgument (several prefixes or epochs; the message lists them)
Result<ModelFiles> find_model(const std::string& path);

/// Which of a model's numeric version directories are served.
struct VersionPolicy {
  int latest = 1;                      ///< the highest N; 0 = all
  std::vector<std::uint64_t> numbers;  ///< if not empty: these instead of the latest
  friend bool operator==(const VersionPolicy&, const VersionPolicy&) = default;
};

/// The model.toml beside the version directories of that path; empty if there is none.
std::filesystem::path shared_config_file(const std::string& path);

/// One version, or the reason why it cannot be served.
struct FoundVersion {
  std::uint64_t number = 1;
  std::filesystem::path directory;  ///< the numbered one; empty if the model has none
  Result<ModelFiles> files;
};
/// The versions of a model that `policy` names, the lowest first. A path to one checkpoint has only version 1.
///   Errors  kNotFound (names the missing version and the existing ones); in each version: those of find_model()
Result<std::vector<FoundVersion>> find_versions(const std::string& path, const VersionPolicy& policy);

/// All keys of model.toml. `[models.NAME]` of the daemon's configuration and its command line take the same keys.
struct ModelConfig {
  std::vector<TensorSpec> inputs;    ///< shape -1 = any, or any within its range
  std::vector<std::string> outputs;  ///< which outputs, in this order; inner values by name, too; empty: those of the graph
  std::vector<StatePair> state;      ///< inputs that may be left out; shape any(): what `inputs` or the graph says
  std::string labels_file;           ///< relative to the model's directory; empty = synset.txt when present
  std::optional<Preprocess> preprocess;
  std::vector<std::vector<TensorSpec>> shapes;  ///< input sets to compile, as the file has them; see plan_inputs()
  std::vector<Buckets> buckets;                 ///< sizes that requests are padded to
  std::map<std::string, std::string> sparse;    ///< inputs whose parts requests bring: "csr" or "row_sparse", by name
  std::string device = "cpu";
  std::string fallback = "cpu";   ///< what does the work of a device that refuses or fails; or "error"
  std::string precision = "f32";  ///< or "f32-fast", "bf16", "auto"
  double max_error = 1e-2;        ///< of what "auto" may choose, as a share of max(1, max|output in f32|)
  int tuning_ms = 10'000;         ///< how long a first load may measure algorithms; 0 = does not measure
  int workers = 1, contexts = 1, threads = 1;
  int queue_limit = 1024;
  int import_mb = 8192;  ///< memory (MiB) for reading the files; arrays that are used in their stored form do not count
  int cache_mb = 256;    ///< MiB per worker for programs that are compiled on demand
  std::uint64_t timeout_ms = 30'000;  ///< 0 = none
  int max_batch = 1;                  ///< largest number of rows of joined requests; 1 = each request runs alone
  double max_delay_ms = 0;            ///< how long a request waits for others to join it, even if a lane is idle
  int run_limit_ms = 60'000;          ///< how long an attempt may compute without finishing a step
  int quarantine_ms = 600'000;        ///< how long inputs that crashed a worker are refused
  int load_timeout_s = 600;           ///< longest time of a load; a longer one fails
  int memory_mb = 0;                  ///< private memory of a worker; 0 = no limit
  std::string golden_file;         ///< .npz of inputs and outputs; a version must reproduce them before it serves; may be empty
  double golden_tolerance = 1e-4;  ///< largest error, as a share of max(1, max|expected|)
  VersionPolicy versions;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// The most bytes of tensors that one message to a lane may bring: an eighth of `memory_mb` for all contexts together. An idle
/// worker uses at most half of `memory_mb`, and the messages that a lane holds bring at most twice as much: one that it answers,
/// the next one, and more only if all of them are smaller. The largest number if there is no limit.
std::uint64_t lane_message_bytes(const ModelConfig& config);

/// Only the keys that one source gives: one file, one `[models.NAME]`, or one command line.
struct ModelOverrides {
  std::optional<std::vector<TensorSpec>> inputs;
  std::optional<std::vector<std::string>> outputs;
  std::optional<std::vector<StatePair>> state;
  std::optional<std::string> labels_file;
  std::optional<Preprocess> preprocess;
  std::optional<std::vector<std::vector<TensorSpec>>> shapes;
  std::optional<std::vector<Buckets>> buckets;
  std::optional<std::map<std::string, std::string>> sparse;
  std::optional<std::string> device, fallback, precision;
  std::optional<int> tuning_ms, workers, contexts, threads, queue_limit, import_mb, cache_mb, max_batch, run_limit_ms,
      quarantine_ms, load_timeout_s, memory_mb;
  std::optional<double> max_error, max_delay_ms, golden_tolerance;
  std::optional<std::string> golden_file;
  std::optional<VersionPolicy> versions;
  std::optional<std::uint64_t> timeout_ms;
};
/// Sets the given keys. `inputs` without `shapes` clears the earlier `shapes`, which belong to other inputs.
void apply_overrides(const ModelOverrides& overrides, ModelConfig& config);

/// Reads model.toml text (`where` names it in errors). Unknown keys are errors that name the key and line.
Result<ModelConfig> parse_model_config(const std::string& text, const std::string& where);
/// Reads model.toml beside the model or beside its version directories, else prefix-shapes.json, else nothing.
Result<ModelConfig> read_model_config(const ModelFiles& files);
/// Where the labels file of a version is, or would be.
std::filesystem::path labels_path(const ModelFiles& files, const ModelConfig& config);
/// The lines of the labels file; empty if there is none. Errors: kNotFound (the configuration names a file that is missing).
Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config);
/// The preset of that name: "imagenet", "imagenet-bgr-caffe", "cifar10", "mnist", "none". Errors: kNotFound (lists the names).
Result<Preprocess> preprocess_preset(const std::string& name);

/// The inputs of a model, and the input sets that are compiled when it is loaded.
struct InputPlan {
  std::vector<TensorSpec> inputs;                   ///< the model's order; shape -1 = any
  std::vector<std::vector<TensorSpec>> input_sets;  ///< without open dimensions, in the model's order; at least one
};
/// Combines the configuration with the inputs of the graph (names and order; Shape::any() = not known). A first dimension that
/// only the graph gives is the batch of its training; the model takes any batch. Without `shapes`, one set is made from the
/// inputs: a first dimension of -1 becomes 1, the graph's first dimension is used, and a range becomes its smallest size. A set
/// that leaves out a state gets the shape that zero_state() gives it.
///   where   names the model in errors, and the file for a missing line: "model 'shapes' (models/shapes/model.toml)"
///   Errors  kInvalidArgument: an input without a shape (the message has the line to write), another open dimension with neither
///           range nor `shapes`, `shapes` outside a range, names or dtypes that the graph does not have
Result<InputPlan> plan_inputs(const ModelConfig& config, std::span<const TensorSpec> graph_inputs, const std::string& where);
/// The inputs that `inputs`, `state` and `shapes` name. They are data, even if the graph uses them like parameters.
std::set<std::string> named_inputs(const ModelConfig& config);

/// A request to the daemon to serve a model.
struct ModelRequest {
  std::string name;
  std::string path;
  ModelOverrides overrides;
};
/// Limits of clients: the table [limits] of the daemon's configuration. 0 = no limit.
struct ClientLimits {
  int client_requests = 4096;     ///< unanswered requests of one client
  int client_message_mb = 256;    ///< MiB of one client's requests and of its unread answers; arenas do not count
  int total_message_mb = 4096;    ///< MiB of all clients' requests and unread answers; a quarter is divided among their processes
  int total_arena_gb = 65536;     ///< GiB of all clients' arenas, which each worker maps; a quarter is divided likewise
  int client_queue_percent = 75;  ///< one client's share of a queue that is more than half full; less if others wait, too
  int client_rate = 0;            ///< requests per second of one client
  int client_bad_messages = 16;   ///< messages against the protocol; one more disconnects the client
  int connections = 0;            ///< clients at the same time; 0 or too many = as many as descriptors allow, at most 4096
  int connection_rate = 500;      ///< new clients per second; a burst may use two seconds' worth, the others wait
  int models = 1024;              ///< of the daemon; with so many, no client may load another one
  friend bool operator==(const ClientLimits&, const ClientLimits&) = default;
};
struct DaemonConfig {
  std::vector<ModelRequest> models;
  ClientLimits limits;
  AccessRules access;
};
/// Reads the daemon's configuration: `socket_group`, tables [models.NAME] with `path` and any key of model.toml, [limits] and
/// [roles]. A relative path is relative to `directory`. Unknown keys are errors that name the key and the line. Names of users
/// and groups are looked up in /etc/passwd and /etc/group.
Result<DaemonConfig> parse_daemon_config(const std::string& text, const std::string& where,
                                         const std::filesystem::path& directory);
/// "NAME=PATH[,workers=4,contexts=1,threads=2,device=cpu,queue_limit=64,timeout_ms=500,labels=FILE,preset=imagenet,
/// cache_mb=64,buckets=1:2:4:8,versions=latest:2,input=data:?x3x224..640x224..640[:float32],shape=data:4x3x224x224]". `input` and
/// `shape` may be repeated. At most 16 KiB.
///   Errors  kInvalidArgument (names the model, its path and the key)
Result<ModelRequest> parse_model_argument(const std::string& text);

/// One model of the daemon: its name, its files, and its effective configuration.
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
/// Finds the versions to serve, the lowest first. Reads model.toml and labels; the request's keys override those of the file. The
/// request's `versions` decides which versions are served, else that of the model.toml beside the version directories.
///   Errors  those of find_versions(); in each version: those of find_model(), read_model_config() and read_labels(). They name
///           the model
Result<std::vector<ServedVersion>> resolve_versions(const ModelRequest& request);

}  // namespace shoal
