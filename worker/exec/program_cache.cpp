#include "worker/exec/program_cache.hpp"

namespace shoal::worker {

void ProgramCache::pin(const std::string& key, std::shared_ptr<const PlannedProgram> program) {
  MutexLock lock(mutex_);
  auto entry = std::make_shared<Entry>();
  entry->program = std::move(program);
  entry->compiling = false;
  entry->pinned = true;
  entries_.emplace(key, std::move(entry));
}

Result<std::shared_ptr<const PlannedProgram>> ProgramCache::get(const std::string& key, const Compile& compile) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      entry = found->second;
      compiled_.wait(mutex_, [&] { return !entry->compiling; });
      if (entry->program == nullptr) return entry->failure;
      if (!entry->pinned && entries_.count(key) != 0 && entries_.find(key)->second == entry) {
        recency_.splice(recency_.begin(), recency_, entry->recency);
      }
      return entry->program;
    }
    entry = std::make_shared<Entry>();
    entries_.emplace(key, entry);
  }
  auto program = compile();
  MutexLock lock(mutex_);
  entry->compiling = false;
  if (program.ok()) {
    admit(key, *entry, *program);
  } else {
    entry->failure = program.status();
    entries_.erase(key);
  }
  compiled_.notify_all();
  return program;
}

void ProgramCache::admit(const std::string& key, Entry& entry, std::shared_ptr<const PlannedProgram> program) {
  entry.bytes = program->resident_bytes();
  entry.program = std::move(program);
  entry.recency = recency_.insert(recency_.begin(), key);
  bytes_ += entry.bytes;
  evict_beyond_budget(key);
}

void ProgramCache::evict_beyond_budget(const std::string& keep) {
  // The newest stays even if it alone is over the budget: its request is waiting for it.
  while (bytes_ > budget_bytes_ && recency_.back() != keep) {
    const auto victim = entries_.find(recency_.back());
    bytes_ -= victim->second->bytes;
    entries_.erase(victim);
    recency_.pop_back();
  }
}

std::size_t ProgramCache::resident_bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

std::size_t ProgramCache::program_count() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace shoal::worker
