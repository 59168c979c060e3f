// What the daemon serves.
#include <cstdlib>
#include <cstring>
#include <new>

#include "client/c/src/pool_handles.hpp"
#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"
#include "shoal/pool.hpp"

namespace shoal::c {
namespace {

Status give_text(const Result<std::string>& result, char** text) {
  if (!result.ok()) return result.status();
  const std::size_t size = result.value().size() + 1;
  *text = static_cast<char*>(std::malloc(size));
  if (!*text) throw std::bad_alloc();
  std::memcpy(*text, result.value().c_str(), size);
  return {};
}

/// `change` may be null: the caller does not want it.
Status give_change(Result<ModelChange> result, shoal_change** change) {
  return change ? give(std::move(result), change) : std::move(result).status();
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

std::size_t shoal_names_count(const shoal_names* names) { return names ? object_of(names).size() : 0; }
const char* shoal_names_at(const shoal_names* names, std::size_t index) {
  return index < shoal_names_count(names) ? object_of(names)[index].c_str() : "";
}
void shoal_names_free(shoal_names* names) { free_handle(names); }

shoal_status* shoal_pool_list(shoal_pool* pool, shoal_names** names) {
  SHOAL_C_GIVES(names);
  SHOAL_C_NEEDS(pool);
  return call([&] { return give(object_of(pool).pool.list(), names); });
}

shoal_status* shoal_pool_stats(shoal_pool* pool, char** json) {
  SHOAL_C_GIVES(json);
  SHOAL_C_NEEDS(pool);
  return call([&] { return give_text(object_of(pool).pool.stats(), json); });
}

shoal_status* shoal_pool_crashes(shoal_pool* pool, const char* model, char** json) {
  SHOAL_C_GIVES(json);
  SHOAL_C_NEEDS(pool);
  return call([&] { return give_text(object_of(pool).pool.crashes(text_or_empty(model)), json); });
}

const char* shoal_change_outcome(const shoal_change* change) { return change ? object_of(change).outcome.c_str() : ""; }
std::uint64_t shoal_change_version(const shoal_change* change) { return change ? object_of(change).version : 0; }
std::size_t shoal_change_version_count(const shoal_change* change) { return change ? object_of(change).versions.size() : 0; }
std::uint64_t shoal_change_version_at(const shoal_change* change, std::size_t index) {
  return index < shoal_change_version_count(change) ? object_of(change).versions[index] : 0;
}
std::int64_t shoal_change_workers(const shoal_change* change) { return change ? object_of(change).workers : 0; }
std::int64_t shoal_change_took_ns(const shoal_change* change) {
  return change ? std::chrono::nanoseconds(object_of(change).took).count() : 0;
}
void shoal_change_free(shoal_change* change) { free_handle(change); }

shoal_status* shoal_pool_load(shoal_pool* pool, const char* name, const char* path, shoal_change** change) {
  if (change) *change = nullptr;
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(name);
  SHOAL_C_NEEDS(path);
  return call([&] { return give_change(object_of(pool).pool.load(name, path), change); });
}

shoal_status* shoal_pool_reload(shoal_pool* pool, const char* name, const char* path, bool force, shoal_change** change) {
  if (change) *change = nullptr;
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(name);
  return call([&] { return give_change(object_of(pool).pool.reload(name, text_or_empty(path), force), change); });
}

shoal_status* shoal_pool_unload(shoal_pool* pool, const char* name, shoal_change** change) {
  if (change) *change = nullptr;
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(name);
  return call([&] { return give_change(object_of(pool).pool.unload(name), change); });
}

shoal_status* shoal_pool_scale(shoal_pool* pool, const char* name, std::int64_t workers, shoal_change** change) {
  if (change) *change = nullptr;
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(name);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const int count, number_of("workers", workers, 0, 1));
    return give_change(object_of(pool).pool.scale(name, count), change);
  });
}

shoal_status* shoal_pool_drain(shoal_pool* pool, const char* name, shoal_change** change) {
  if (change) *change = nullptr;
  SHOAL_C_NEEDS(pool);
  SHOAL_C_NEEDS(name);
  return call([&] { return give_change(object_of(pool).pool.drain(name), change); });
}

shoal_status* shoal_pool_stop(shoal_pool* pool) {
  SHOAL_C_NEEDS(pool);
  return call([&] { return object_of(pool).pool.stop(); });
}
