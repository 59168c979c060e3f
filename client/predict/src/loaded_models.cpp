#include "client/predict/src/loaded_models.hpp"

#include <cstring>
#include <random>

namespace shoal::predict {

LoadedModels::LoadedModels() {
  std::random_device random;
  for (std::size_t at = 0; at < secret_.size(); at += sizeof(unsigned)) {
    const unsigned word = random();
    std::memcpy(secret_.data() + at, &word, sizeof word);
  }
}

Result<std::shared_ptr<SharedModel>> LoadedModels::get(const ModelKey& key, const Load& load) {
  const std::shared_ptr<Entry> entry = entry_of(key);
  const MutexLock lock(entry->mutex);
  if (auto known = entry->model.lock()) return known;
  SHOAL_ASSIGN_OR_RETURN(auto loaded, load());
  entry->model = loaded;
  return loaded;
}

std::shared_ptr<LoadedModels::Entry> LoadedModels::entry_of(const ModelKey& key) {
  const MutexLock lock(mutex_);
  std::erase_if(entries_, [](const auto& known) {
    Entry& entry = *known.second;
    if (known.second.use_count() > 1) return false;  // a thread is in get(); others come here first
    const MutexLock entry_lock(entry.mutex);
    return entry.model.expired();
  });
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

}  // namespace shoal::predict
