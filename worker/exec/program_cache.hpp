// ProgramCache: the programs of a model by input shapes; those compiled on demand within a byte budget, least recently used out
// first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "shm/base/mutex.hpp"
#include "shoal/result.hpp"
#include "worker/exec/planned_program.hpp"

namespace shoal::worker {

/// Requests for a shape that is being compiled wait for that compilation; a shape already here never waits for another's.
///   Threads  thread-safe
class ProgramCache {
 public:
  using Compile = std::function<Result<std::shared_ptr<const PlannedProgram>>()>;
  explicit ProgramCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  /// A configured program: never thrown out, not counted.
  void pin(const std::string& key, std::shared_ptr<const PlannedProgram> program) SHOAL_EXCLUDES(mutex_);
  /// The program, or the outcome of `compile`, which runs without the lock. A failure is told to all who waited and not
  /// remembered.
  Result<std::shared_ptr<const PlannedProgram>> get(const std::string& key, const Compile& compile) SHOAL_EXCLUDES(mutex_);

  std::size_t resident_bytes() const SHOAL_EXCLUDES(mutex_);  ///< of those compiled on demand
  std::size_t program_count() const SHOAL_EXCLUDES(mutex_);

 private:
  // compiling -> ready | failed (forgotten)
  struct Entry {
    std::shared_ptr<const PlannedProgram> program;  ///< null while it is compiled
    Status failure;
    bool compiling = true, pinned = false;
    std::size_t bytes = 0;
    std::list<std::string>::iterator recency;
  };
  void admit(const std::string& key, Entry& entry, std::shared_ptr<const PlannedProgram> program) SHOAL_REQUIRES(mutex_);
  void evict_beyond_budget(const std::string& keep) SHOAL_REQUIRES(mutex_);

  const std::size_t budget_bytes_;
  mutable Mutex mutex_;
  std::condition_variable_any compiled_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_ SHOAL_GUARDED_BY(mutex_);
  std::list<std::string> recency_ SHOAL_GUARDED_BY(mutex_);  ///< keys of those that may be thrown out, latest first
  std::size_t bytes_ SHOAL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::worker
