// Model: a loaded model version, that is, its packed weights in one sealed memfd and the programs that read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/model/buckets.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/program.hpp"
#include "worker/exec/program_cache.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// The default of `max_error`.
inline constexpr double kMaxError = 1e-2;

/// What happens when a device refuses or fails at something that it claimed.
enum class Fallback {
  kCpu,    ///< the CPU does it instead
  kError,  ///< it is an error
};
///   Errors  kInvalidArgument: names the known words
Result<Fallback> parse_fallback(const std::string& word);

/// Called about ten times a second while algorithms are measured.
using TuningProgress = std::function<void(std::chrono::milliseconds spent, std::chrono::milliseconds budget)>;

struct ModelOptions {
  std::string device = "cpu";          ///< the name of a backend
  Fallback fallback = Fallback::kCpu;  ///< for devices with memory of their own
  int threads = 1;                     ///< the width: cores per run, baked into every Program
  /// Concrete shapes to compile at load, all of the same types; the first decides the weight layouts.
  std::vector<std::vector<TensorSpec>> input_sets;
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< bound of the programs compiled on demand
  Precision precision = Precision::kF32;
  /// How long measuring the algorithms may take if there is no record of an earlier measurement. 0: the device's default is
  /// taken, and no record is read or written.
  std::chrono::milliseconds tuning_budget{0};
  TuningProgress tuning_progress = {};  ///< may be empty
  /// If given, it is called instead of measuring here, and leaves the record: a process with threads must not fork.
  std::function<Status()> measure_elsewhere = {};
  /// With kAuto: bf16 is taken only if its error is at most this share of max(1, the largest output), measured on
  /// `error_inputs`.
  double max_error = kMaxError;
  std::vector<Tensor> error_inputs = {};  ///< of the first set, in the model's order; empty: noise
  std::optional<Choices> choices = {};    ///< used instead of any measurement, to test each of a device's variants
  std::filesystem::path
      cache_directory;           ///< of those records; empty: default_cache_directory(), or no records if that is empty, too
  std::vector<Buckets> buckets;  ///< sizes that requests are padded to
  std::vector<TensorSpec> declared_inputs = {};  ///< for `buckets` and `max_batch`: the model's order, -1 for any size
  int max_batch = 1;                             ///< the most rows in a joined run; its programs are compiled at load
  bool fuse = true;                              ///< false: every node is a step of its own, to find a fused form that is wrong
  std::optional<std::size_t> core_cache_bytes = {};  ///< instead of kCoreCacheBytes, to run small batches image by image in tests
};

/// The source of the choice of algorithms.
struct TuningInfo {
  enum class Source {
    kOff,       ///< not wanted, nothing to choose, or no directory for a record
    kPacked,    ///< the load that packed the weights
    kRecord,    ///< the record of an earlier load
    kMeasured,  ///< measured by this load
    kFailed,    ///< the device's default; `problem` says why
  };
  Source source = Source::kOff;
  std::string layout;                     ///< of whole regions; a name that the device gives; empty: its default
  Precision precision = Precision::kF32;  ///< in which the model runs; never kAuto
  std::optional<double> bf16_error;       ///< as Choices::bf16_error
  double measured_ms = 0;
  std::string problem;  ///< includes a record that could not be read or written
};

/// "off", "packed LAYOUT", "record LAYOUT", "measured LAYOUT in 1234 ms", "failed: why". The layout is "default" if nothing
/// was chosen. ", error of bf16 0.0031" follows if that was measured.
std::string to_text(const TuningInfo& tuning);

/// Thread-safe once loaded. Loading leaves the process single-threaded, because a zygote forks afterwards.
class Model {
 public:
  /// Optimizes the graph, packs the weights into a new sealed memfd (or maps `packed`, which an equal load made before), compiles
  /// the input sets.
  ///   Errors  kInvalidArgument, kUnimplemented: operator and node named; kFailedPrecondition: `packed` belongs to another
  ///           model or build
  static Result<std::unique_ptr<Model>> load(Graph graph, ModelOptions options, UniqueFd packed = {});
  virtual ~Model() = default;

  /// The Program for these inputs (any order; their dtypes and shapes decide): compiled at load, cached, or compiled now.
  /// Each thread calls enter_thread() first.
  virtual Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) = 0;
  /// Like program(), without compiling: null if the program must be compiled first.
  virtual Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) { return program(inputs); }
  /// Sizes of the batches that requests are joined to, ascending. Empty: each request runs alone.
  virtual const std::vector<std::int64_t>& joined_sizes() const = 0;
  /// Do programs run on a device with memory of its own?
  virtual bool has_devices() const { return false; }
  /// Makes devices ready to run the programs that load() compiled in this Context. After the fork, by the thread that will run
  /// them.
  ///   Errors  what a device says, with Fallback::kError
  virtual Status activate(Context&) const { return {}; }
  /// Sparse tensors that are made dense, with the bytes. Parts of the graph that a device refused at load, and why.
  virtual const std::vector<std::string>& notes() const {
    static const std::vector<std::string> none;
    return none;
  }
  virtual int threads() const { return 1; }  ///< the width: OpenMP threads of a run
  /// Sets the calling thread's width. Called once by each thread that runs or compiles.
  virtual void enter_thread() const = 0;
  virtual int packed_fd() const = 0;  ///< borrowed; -1 if the model has no constants
  virtual std::size_t packed_bytes() const = 0;
  virtual ProgramCounters program_counters() const { return {}; }
  virtual TuningInfo tuning() const { return {}; }
  virtual std::vector<TensorSpec> input_specs() const = 0;  ///< as the graph says, model order
  virtual const std::vector<std::string>& output_names() const = 0;
  virtual const std::vector<std::string>& ignored_inputs() const = 0;
};

}  // namespace shoal::worker
