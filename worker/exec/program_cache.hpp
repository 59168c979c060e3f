// ProgramCache: the programs of a model by input shapes; those compiled on demand within a byte budget, least recently used out
// first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "shm/base/mutex.hpp"
#include "shoal/result.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// What became of the programs of a model in this process so far, and what it holds of them now.
struct ProgramCounters {
  std::uint64_t pinned = 0;     ///< configured, compiled at load
  std::uint64_t programs = 0;   ///< compiled on demand and here now
  std::uint64_t bytes = 0;      ///< of those
  std::uint64_t compiled = 0;   ///< on demand, ever
  std::uint64_t evicted = 0;    ///< of those, thrown out again
  std::uint64_t failed = 0;     ///< attempts that gave no program
  std::uint64_t compiling = 0;  ///< now
};

/// Requests for a shape that is being compiled wait for that compilation; a shape already here never waits for another's.
///   Threads  thread-safe
class ProgramCache {
 public:
  using ProgramPointer = std::shared_ptr<const Program>;
  using Compile = std::function<Result<ProgramPointer>()>;
  explicit ProgramCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  /// A configured program: never thrown out, not counted.
  void pin(const std::string& key, ProgramPointer program) SHOAL_EXCLUDES(mutex_);
  /// The program if it is here; null when it is not, or is being compiled. Never waits for a compilation.
  ProgramPointer find(const std::string& key) SHOAL_EXCLUDES(mutex_);
  /// The program, or the outcome of `compile`, which runs without the lock. A failure is told to all who waited and not
  /// remembered. Throws what `compile` throws; others who waited get a Status.
  Result<ProgramPointer> get(const std::string& key, const Compile& compile) SHOAL_EXCLUDES(mutex_);

  ProgramCounters counters() const SHOAL_EXCLUDES(mutex_);

 private:
  // compiling -> ready | failed (forgotten)
  struct Entry {
    ProgramPointer program;  ///< null while it is compiled
    Status failure;
    bool compiling = true, pinned = false;
    std::size_t bytes = 0;
    std::list<std::string>::iterator recency;
  };
  void admit(const std::string& key, Entry& entry, ProgramPointer program) SHOAL_REQUIRES(mutex_);
  void touch(const std::string& key, const std::shared_ptr<Entry>& entry) SHOAL_REQUIRES(mutex_);
  void evict_beyond_budget(const std::string& keep) SHOAL_REQUIRES(mutex_);

  const std::size_t budget_bytes_;
  mutable Mutex mutex_;
  Condition compiled_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_ SHOAL_GUARDED_BY(mutex_);
  std::list<std::string> recency_ SHOAL_GUARDED_BY(mutex_);  ///< keys of those that may be thrown out, latest first
  ProgramCounters counters_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::worker
