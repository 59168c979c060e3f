#include "worker/exec/program_cache.hpp"

#include <exception>

#include "shm/base/errors.hpp"

namespace shoal::worker {

void ProgramCache::pin(const std::string& key, ProgramPointer program) {
  auto entry = std::make_shared<Entry>();
  entry->program = std::move(program);
  entry->compiling = false;
  entry->pinned = true;
  Entries made;  // its node is allocated without the lock
  made.emplace(key, std::move(entry));
  Entries::insert_return_type placed;  // holds the entry if the key is taken, and destroys it without the lock
  const MutexLock lock(mutex_);
  placed = entries_.insert(made.extract(made.begin()));
  if (placed.inserted) ++counters_.pinned;
}

ProgramCache::ProgramPointer ProgramCache::find(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second->compiling) return nullptr;
  touch(key, found->second);
  return found->second->program;
}

// What became of the entry; none if there is no entry. Waits for its compilation.
std::optional<Result<ProgramCache::ProgramPointer>> ProgramCache::wait_for(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  const std::shared_ptr<Entry> entry = found->second;
  while (entry->compiling) compiled_.wait(mutex_);
  if (entry->program == nullptr) return Result<ProgramPointer>(entry->failure);
  touch(key, entry);
  return Result<ProgramPointer>(entry->program);
}

Result<ProgramCache::ProgramPointer> ProgramCache::get(const std::string& key, const Compile& compile) {
  {
    const MutexLock lock(mutex_);
    if (auto known = wait_for(key)) return *std::move(known);
  }
  // Whatever has to be allocated for the entry is allocated without the lock, and before anybody can see the entry: conclude()
  // must not fail.
  const auto entry = std::make_shared<Entry>();
  entry->failure = internal_error("its compilation threw an exception");
  entry->place.push_back(key);
  Entries made;
  made.emplace(key, entry);
  {
    const MutexLock lock(mutex_);
    if (auto known = wait_for(key)) return *std::move(known);  // another thread was faster
    entries_.insert(made.extract(made.begin()));
    ++counters_.compiling;
  }
  Result<ProgramPointer> program{ProgramPointer()};
  std::exception_ptr thrown;
  try {
    program = compile();
    if (!program.ok()) {
      Status failure = program.status();
      const MutexLock lock(mutex_);
      entry->failure = std::move(failure);
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  const Entries evicted = conclude(key, *entry, !thrown && program.ok() ? *program : nullptr);  // destroyed without the lock
  if (thrown) std::rethrow_exception(thrown);
  return program;
}

// Wakes the threads that wait. Allocates nothing. Returns the evicted entries.
ProgramCache::Entries ProgramCache::conclude(const std::string& key, Entry& entry, ProgramPointer program) noexcept {
  const MutexLock lock(mutex_);
  entry.compiling = false;
  --counters_.compiling;
  compiled_.notify_all();
  if (program == nullptr) {
    ++counters_.failed;
    entries_.erase(key);
    return {};
  }
  ++(program->has_code() ? counters_.compiled : counters_.codeless);
  entry.bytes = program->resident_bytes();
  entry.program = std::move(program);
  entry.recency = entry.place.begin();
  recency_.splice(recency_.begin(), entry.place);
  counters_.bytes += entry.bytes;
  ++counters_.programs;
  return evict_beyond_budget(key);
}

// An entry may be evicted before the threads that waited for it look at it.
void ProgramCache::touch(const std::string& key, const std::shared_ptr<Entry>& entry) {
  if (entry->pinned) return;
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second == entry) recency_.splice(recency_.begin(), recency_, entry->recency);
}

// Moves map nodes and makes no new ones, so it allocates nothing.
ProgramCache::Entries ProgramCache::evict_beyond_budget(const std::string& keep) {
  Entries evicted;
  // The newest stays even if it alone is over the budget: its request is waiting for it.
  while (counters_.bytes > budget_bytes_ && recency_.back() != keep) {
    auto victim = entries_.extract(recency_.back());
    counters_.bytes -= victim.mapped()->bytes;
    --counters_.programs;
    ++counters_.evicted;
    evicted.insert(std::move(victim));
    recency_.pop_back();
  }
  return evicted;
}

ProgramCounters ProgramCache::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

}  // namespace shoal::worker
