#include "worker/exec/program_cache.hpp"

#include <exception>

#include "shm/base/errors.hpp"

namespace shoal::worker {

void ProgramCache::pin(const std::string& key, ProgramPointer program) {
  MutexLock lock(mutex_);
  auto entry = std::make_shared<Entry>();
  entry->program = std::move(program);
  entry->compiling = false;
  entry->pinned = true;
  if (entries_.emplace(key, std::move(entry)).second) ++counters_.pinned;
}

ProgramCache::ProgramPointer ProgramCache::find(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second->compiling) return nullptr;
  touch(key, found->second);
  return found->second->program;
}

Result<ProgramCache::ProgramPointer> ProgramCache::get(const std::string& key, const Compile& compile) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      entry = found->second;
      while (entry->compiling) compiled_.wait(mutex_);
      if (entry->program == nullptr) return entry->failure;
      touch(key, entry);
      return entry->program;
    }
    entry = std::make_shared<Entry>();
    entries_.emplace(key, entry);
    ++counters_.compiling;
  }
  Result<ProgramPointer> program = Status(internal_error("its compilation threw an exception"));
  std::exception_ptr thrown;
  try {
    program = compile();
  } catch (...) {
    thrown = std::current_exception();
  }
  MutexLock lock(mutex_);
  entry->compiling = false;
  --counters_.compiling;
  if (program.ok()) {
    admit(key, *entry, *program);
  } else {
    ++counters_.failed;
    entry->failure = program.status();
    entries_.erase(key);
  }
  compiled_.notify_all();
  if (thrown) std::rethrow_exception(thrown);
  return program;
}

// An entry that others waited for may have been thrown out before they looked at it.
void ProgramCache::touch(const std::string& key, const std::shared_ptr<Entry>& entry) {
  if (entry->pinned) return;
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second == entry) recency_.splice(recency_.begin(), recency_, entry->recency);
}

void ProgramCache::admit(const std::string& key, Entry& entry, ProgramPointer program) {
  entry.bytes = program->resident_bytes();
  entry.program = std::move(program);
  entry.recency = recency_.insert(recency_.begin(), key);
  counters_.bytes += entry.bytes;
  ++counters_.compiled;
  ++counters_.programs;
  evict_beyond_budget(key);
}

void ProgramCache::evict_beyond_budget(const std::string& keep) {
  // The newest stays even if it alone is over the budget: its request is waiting for it.
  while (counters_.bytes > budget_bytes_ && recency_.back() != keep) {
    const auto victim = entries_.find(recency_.back());
    counters_.bytes -= victim->second->bytes;
    --counters_.programs;
    ++counters_.evicted;
    entries_.erase(victim);
    recency_.pop_back();
  }
}

ProgramCounters ProgramCache::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace shoal::worker
