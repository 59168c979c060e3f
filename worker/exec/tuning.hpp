// Measures which algorithms are fastest for a model on this machine, and records it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/model.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// What a precision that is chosen by measuring may cost.
struct AccuracyLimit {
  double max_error = kMaxError;  ///< as ModelOptions::max_error
  /// Inputs to measure it with, in the graph's order; empty: noise.
  std::span<const Tensor> inputs = {};
};

/// Compiles and runs each of the backend's variants, on blank weights and inputs, in a forked child. So this process gets no
/// other threads, and a crash there only loses the measurement. A layout is chosen for the network as a whole, so that reorders
/// count; then each node takes the algorithm that was fastest in that layout. The precision is chosen like the layout: bf16 only
/// where it is faster. A precision below float32 that is chosen runs once on real weights beside float32. If its error is above
/// the limit, the fastest of the other precisions is chosen, if the backend has others. The error of bf16 becomes
/// Choices::bf16_error. A variant must be clearly faster than the backend's first one to be chosen.
///   budget    the time that measuring should take; variants that were not measured in it are not chosen. The child is killed
///             after three budgets
///   progress  as in ModelOptions; if it throws, the child is ended and the exception passes through. load_model() makes it an
///             error
///   Errors    kInternal, kDeadlineExceeded: how the child ended; errors of compiling
Result<Choices> measure_choices(const Graph& graph, const Backend& backend, std::chrono::milliseconds budget,
                                const TuningProgress& progress = {}, const AccuracyLimit& accuracy = {});

/// Waits until `fd`, of another process that measures, is readable. Calls `progress` about ten times a second.
///   start_ns  of CLOCK_MONOTONIC: when that process began
///   limit     from then on; after it the wait is over
///   progress  may throw
///   Errors    kDeadlineExceeded
Status wait_for_measurement(int fd, std::uint64_t start_ns, std::chrono::milliseconds budget, std::chrono::milliseconds limit,
                            const TuningProgress& progress);

/// How far an output is from the wanted one. Of floats: the largest difference as a share of max(1, the largest |want|). Of other
/// types, whose values name things: the share of elements that differ. Infinite if only one of two numbers is finite, if they are
/// other infinities, and if the sizes, which depend on data, differ.
double output_error(const Tensor& got, const Tensor& want);

/// Choices on disk: one small text file per machine, model, shapes and precision. `identity` names all of these. A file is
/// written under another name and renamed, so a record is always whole. If two processes measure at once, the first record
/// stays. A record is read as data from outside: a file with another identity, a wrong checksum, another owner, or write
/// permission for others is refused.
///   Threads  thread-compatible
class TuningRecord {
 public:
  TuningRecord(std::filesystem::path directory, std::string identity);

  ///   Errors  kNotFound; kDataLoss: says what is wrong with the file
  Result<Choices> read() const;
  /// Makes the directory if it is missing, and checks that write() can write there.
  ///   Errors  of the file system, with the path
  Status prepare() const;
  /// Makes the directory if it is missing. Returns the choices that are on disk then: these, or those of a record that another
  /// process has written meanwhile.
  ///   Errors  of the file system, with the path
  Result<Choices> write(const Choices& choices) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  /// Locks out other writers until the descriptor is closed or its owner dies, so one temporary file name is enough.
  ///   Errors  kDeadlineExceeded: another process keeps the directory locked
  Result<UniqueFd> lock_directory() const;

  std::filesystem::path directory_, file_, beside_;
  std::string identity_;
};

/// Processor, its features, number of cores: measurements are valid on machines with the same description.
std::string describe_machine();

}  // namespace shoal::worker
