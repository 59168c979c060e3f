// Model: a loaded model version: packed weights in one sealed memfd, and the programs compiled against them.
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

/// How far results may be from those of direct algorithms in float32: docs/performance.md states the bounds.
enum class Precision {
  kF32,      ///< not at all
  kF32Fast,  ///< Winograd's convolutions may be chosen
};
///   Errors  kInvalidArgument: names the words there are
Result<Precision> parse_precision(const std::string& word);

/// Hears, about ten times a second while algorithms are measured, how much of the time for it is spent.
using TuningProgress = std::function<void(std::chrono::milliseconds spent, std::chrono::milliseconds budget)>;

struct ModelOptions {
  std::string device = "cpu";                        ///< "cpu" or "cpu-reference"
  int threads = 1;                                   ///< the width: cores per run, baked into every Program
  /// Concrete shapes to compile at load, all of the same types; the first decides the weight layouts.
  std::vector<std::vector<TensorSpec>> input_sets;
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< bound of the programs compiled on demand
  Precision precision = Precision::kF32;
  /// How long measuring the algorithms may take where no record of an earlier measurement is found; 0: the device's guess is
  /// taken, no record is read or written.
  std::chrono::milliseconds tuning_budget{0};
  TuningProgress tuning_progress = {};           ///< may be empty
  std::optional<Choices> choices = {};           ///< these, whatever was measured: how each of a device's variants is tested
  std::filesystem::path cache_directory;         ///< of those records; empty: default_cache_directory(), and none without that
  std::vector<Buckets> buckets;                  ///< sizes that requests are padded to
  std::vector<TensorSpec> declared_inputs = {};  ///< for `buckets` and `max_batch`: the model's order, -1 where any size is taken
  int max_batch = 1;                             ///< rows that requests may be joined to; the programs are compiled at load
  bool fuse = true;                              ///< false: every node by itself, to find which fused form errs
};

/// Where the choice of algorithms comes from.
struct TuningInfo {
  enum class Source {
    kOff,       ///< not asked for, or nothing to choose, or no directory for a record
    kPacked,    ///< of the load that packed the weights
    kRecord,    ///< measured by an earlier load
    kMeasured,  ///< now
    kFailed,    ///< what the device guesses; `problem` says why
  };
  Source source = Source::kOff;
  std::string layout;  ///< of whole regions, in the device's words; empty: its guess
  double measured_ms = 0;
  std::string problem;  ///< also of a record that could not be read or written
};

/// "off", "packed LAYOUT", "record LAYOUT", "measured LAYOUT in 1234 ms", "failed: why". The layout is "default" where nothing
/// was chosen.
std::string to_text(const TuningInfo& tuning);

/// Thread-safe once loaded. Loading leaves the process single-threaded (design.md: it happens in a zygote before fork()).
class Model {
 public:
  /// Optimises, packs the weights into a new sealed memfd (or maps `packed`, made by an equal load before), compiles the input
  /// sets.
  ///   Errors  kInvalidArgument, kUnimplemented: operator and node named; kFailedPrecondition: `packed` is of another model or
  ///   build
  static Result<std::unique_ptr<Model>> load(Graph graph, ModelOptions options, UniqueFd packed = {});
  virtual ~Model() = default;

  /// The Program for these inputs (any order; dtype and shape count): compiled at load, cached, or compiled now.
  /// Every thread calls omp_set_num_threads-like set-up through enter_thread() first.
  virtual Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) = 0;
  /// The same without compiling: null when the program must be compiled first.
  virtual Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) { return program(inputs); }
  /// Sizes of the batches that requests are joined to, ascending; none: each runs alone.
  virtual const std::vector<std::int64_t>& joined_sizes() const = 0;
  /// Once per thread that runs or compiles: sets the thread's width.
  virtual void enter_thread() const = 0;
  virtual int packed_fd() const = 0;  ///< borrowed; -1 when the model has no constants
  virtual std::size_t packed_bytes() const = 0;
  virtual ProgramCounters program_counters() const { return {}; }
  virtual TuningInfo tuning() const { return {}; }
  virtual std::vector<TensorSpec> input_specs() const = 0;  ///< as the graph says, model order
  virtual const std::vector<std::string>& output_names() const = 0;
  virtual const std::vector<std::string>& ignored_inputs() const = 0;
};

}  // namespace shoal::worker
