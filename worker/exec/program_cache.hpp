// ProgramCache: the programs of a model, by input shapes. Programs that are compiled on demand share a byte budget; the least
// recently used is evicted first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "shm/base/mutex.hpp"
#include "shoal/result.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Counts the programs of a model in this process.
struct ProgramCounters {
  std::uint64_t pinned = 0;     ///< of configured shapes, compiled at load
  std::uint64_t programs = 0;   ///< made on demand, in the cache now
  std::uint64_t bytes = 0;      ///< size of these
  std::uint64_t compiled = 0;   ///< on demand so far, with machine code for their shapes
  std::uint64_t codeless = 0;   ///< made on demand so far, without any: Program::has_code()
  std::uint64_t evicted = 0;    ///< of both
  std::uint64_t failed = 0;     ///< compilations without a program
  std::uint64_t compiling = 0;  ///< now
};

/// A request for a shape that is being compiled waits for that compilation. A request for a shape in the cache never waits.
///   Threads  thread-safe
class ProgramCache {
 public:
  using ProgramPointer = std::shared_ptr<const Program>;
  using Compile = std::function<Result<ProgramPointer>()>;
  explicit ProgramCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  /// A configured program: never evicted, not counted.
  void pin(const std::string& key, ProgramPointer program) SHOAL_EXCLUDES(mutex_);
  /// The program if it is in the cache; null otherwise, also while it is being compiled. Never waits.
  ProgramPointer find(const std::string& key) SHOAL_EXCLUDES(mutex_);
  /// The program from the cache, or the outcome of `compile`, which runs without the lock. A failure goes to all callers that
  /// wait for this shape, and is not remembered. Throws what `compile` throws, and std::bad_alloc: the entry is removed then, and
  /// the callers that wait get a Status. Evicted programs are destroyed without the lock.
  Result<ProgramPointer> get(const std::string& key, const Compile& compile) SHOAL_EXCLUDES(mutex_);

  ProgramCounters counters() const SHOAL_EXCLUDES(mutex_);

 private:
  // compiling -> ready | failed (forgotten)
  struct Entry {
    ProgramPointer program;  ///< null while it is compiled, and if that fails
    Status failure;          ///< for the callers that wait, if there is no program
    bool compiling = true, pinned = false;
    std::size_t bytes = 0;
    std::list<std::string> place;              ///< holds the key; this node moves into recency_ when the program is ready
    std::list<std::string>::iterator recency;  ///< in recency_; valid once the program is ready, unless it is pinned
  };
  using Entries = std::map<std::string, std::shared_ptr<Entry>, std::less<>>;

  std::optional<Result<ProgramPointer>> wait_for(const std::string& key) SHOAL_REQUIRES(mutex_);
  Entries conclude(const std::string& key, Entry& entry, ProgramPointer program) noexcept SHOAL_EXCLUDES(mutex_);
  void touch(const std::string& key, const std::shared_ptr<Entry>& entry) SHOAL_REQUIRES(mutex_);
  Entries evict_beyond_budget(const std::string& keep) SHOAL_REQUIRES(mutex_);

  const std::size_t budget_bytes_;
  mutable Mutex mutex_;
  Condition compiled_;
  Entries entries_ SHOAL_GUARDED_BY(mutex_);
  std::list<std::string> recency_ SHOAL_GUARDED_BY(mutex_);  ///< keys of the programs that may be evicted, latest first
  ProgramCounters counters_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::worker
