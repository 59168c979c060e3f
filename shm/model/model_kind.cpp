#include "shm/model/model_kind.hpp"

#include <algorithm>
#include <map>
#include <system_error>

#include "shm/base/check.hpp"

namespace shoal {
namespace {

using Kinds = std::map<std::string_view, const ModelKind*>;

// Kinds are registered while static objects are made, in any order of files.
Kinds& kinds() {
  static Kinds by_name;
  return by_name;
}

}  // namespace

void register_model_kind(const ModelKind& kind) {
  for (const auto& [name, other] : kinds()) SHOAL_CHECK(other->graph_suffix != kind.graph_suffix);
  SHOAL_CHECK(!kind.graph_suffix.empty() && kinds().emplace(kind.name, &kind).second);
}

std::vector<const ModelKind*> model_kinds() {
  std::vector<const ModelKind*> all;
  for (const auto& [name, kind] : kinds()) all.push_back(kind);
  return all;
}

const ModelKind* kind_of(std::string_view graph_file) {
  const ModelKind* longest = nullptr;
  for (const auto& [name, kind] : kinds()) {
    const std::string_view suffix = kind->graph_suffix;
    if (graph_file.size() <= suffix.size() || !graph_file.ends_with(suffix)) continue;
    if (!longest || suffix.size() > longest->graph_suffix.size()) longest = kind;
  }
  return longest;
}

bool is_model_prefix(const std::filesystem::path& prefix) {
  return std::ranges::any_of(model_kinds(), [&](const ModelKind* kind) {
    std::error_code error;
    return std::filesystem::exists(prefix.string() + std::string(kind->graph_suffix), error);
  });
}

}  // namespace shoal
