// Measuring which algorithms a model runs fastest with on this machine, and remembering it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/device.hpp"
#include "worker/exec/model.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Compiles and runs each of the device's variants, on blank weights and inputs, in a forked child: this process keeps its one
/// thread, and whatever goes wrong there costs the measurement only. A layout is chosen for the network as a whole, so that
/// reorders count; then each node takes the algorithm that was fastest in that layout. What is not clearly faster than the
/// device's first variant is not chosen.
///   budget    about as long as it may take; what was not measured in it is not chosen. Killed after three times that
///   progress  as in ModelOptions
///   Errors    kInternal, kDeadlineExceeded: the child's end; those of compiling
Result<Choices> measure_choices(const Graph& graph, const Device& device, std::chrono::milliseconds budget,
                                const TuningProgress& progress = {});

/// Choices on disk: one small text file per machine, model, shapes and precision, `identity` naming them all. A file is written
/// beside its place and renamed, so that it is there whole or not at all; of two processes that measured at once the first one's
/// record stands. What is read is data from outside: a file of another identity, with a wrong checksum, of another owner or
/// writable by others is no record.
///   Threads  thread-compatible
class TuningRecord {
 public:
  TuningRecord(std::filesystem::path directory, std::string identity);

  ///   Errors  kNotFound; kDataLoss: what is wrong with the file
  Result<Choices> read() const;
  /// Makes the directory where it is missing, and finds out whether write() can do its work there.
  ///   Errors  of the file system, with the path
  Status prepare() const;
  /// Makes the directory where it is missing. Returns the choices that stand: these, or those of a record that somebody else
  /// has written since.
  ///   Errors  of the file system, with the path
  Result<Choices> write(const Choices& choices) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  /// One writer at a time, so the file beside can have one name: until the descriptor is closed, or its owner dead.
  Result<UniqueFd> lock_directory() const;

  std::filesystem::path directory_, file_, beside_;
  std::string identity_;
};

/// What makes one machine's measurements another's: processor, its features, its cores.
std::string describe_machine();

/// $SHOAL_CACHE_DIR, else $XDG_CACHE_HOME/shoal, else $HOME/.cache/shoal; empty when none of them is set.
std::filesystem::path default_cache_directory();

}  // namespace shoal::worker
