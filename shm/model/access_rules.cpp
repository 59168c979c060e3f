#include "shm/model/access_rules.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "shm/base/errors.hpp"
#include "shm/model/toml_keys.hpp"

namespace shoal {
namespace {

constexpr const char* kUsersFile = "/etc/passwd";
constexpr const char* kGroupsFile = "/etc/group";
constexpr std::uint32_t kNoAccount = 0xffffffff;  // (uid_t)-1 and (gid_t)-1 stand for none

// The number that `text` consists of; nothing when it is no number.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return error == std::errc() ? number : kNoAccount;
}

Status add(Accounts& accounts, const std::string& entry, bool may_name) {
  const auto has = [&](std::string_view prefix) { return entry.starts_with(prefix); };
  const std::string rest = entry.substr(entry.find(':') + 1);
  const bool is_number = has("uid:") || has("gid:"), is_name = may_name && (has("user:") || has("group:"));
  const bool is_user = has("uid:") || has("user:");
  if ((!is_number && !is_name) || rest.empty() || is_number != parse_number(rest).has_value())
    return invalid_argument("\"{}\" must be \"uid:N\", \"gid:N\", \"user:NAME\" or \"group:NAME\"", entry);
  SHOAL_ASSIGN_OR_RETURN(const std::uint32_t number, account_number(rest, is_user ? kUsersFile : kGroupsFile));
  (is_user ? accounts.users : accounts.groups).push_back(number);
  return {};
}

}  // namespace

bool AccessRules::has_roles() const { return !none.empty() || !std::ranges::all_of(roles, &Accounts::empty); }

Result<std::uint32_t> account_number(std::string_view text, const std::string& accounts_file) {
  if (const auto number = parse_number(text)) {
    if (*number < kNoAccount) return static_cast<std::uint32_t>(*number);
    return invalid_argument("{} is too large for the number of a user or a group", text);
  }
  std::ifstream file(accounts_file);
  for (std::string line; std::getline(file, line);) {  // NAME:PASSWORD:NUMBER:...
    const std::size_t first = line.find(':'), second = line.find(':', first + 1), third = line.find(':', second + 1);
    if (first == line.npos || second == line.npos || third == line.npos || line.compare(0, first, text) != 0) continue;
    const auto number = parse_number(std::string_view(line).substr(second + 1, third - second - 1));
    if (number && *number < kNoAccount) return static_cast<std::uint32_t>(*number);
  }
  return not_found("{} has no '{}': write its number instead (`getent {} {}` tells it)", accounts_file, text,
                   accounts_file.ends_with("group") ? "group" : "passwd", text);
}

namespace internal {

Status read_roles(const std::string& where, const toml::table& table, bool may_name, AccessRules& rules) {
  for (const auto& [key, node] : table) {
    const auto role = std::ranges::find(kRoleNames, key.str());
    if (role == kRoleNames.end() && key != "none") {
      return error_at(where, node, format("'roles.{}' is not a role; there are user, gateway, operator and none", key.str()));
    }
    Accounts& accounts = role == kRoleNames.end() ? rules.none : rules.roles[static_cast<std::size_t>(role - kRoleNames.begin())];
    const toml::array* array = node.as_array();
    if (!array || array->size() > kMostEntries) {
      return error_at(where, node,
                      format("'roles.{}' must be a list of at most {} users and groups such as [\"uid:1000\", \"group:staff\"]",
                             key.str(), kMostEntries));
    }
    for (const toml::node& element : *array) {
      const auto entry = element.value_exact<std::string>();
      if (!entry) return error_at(where, element, format("'roles.{}' must have strings such as \"uid:1000\"", key.str()));
      if (const Status added = add(accounts, *entry, may_name); !added.ok())
        return error_at(where, element, format("'roles.{}': {}", key.str(), added.message()));
    }
    std::ranges::sort(accounts.users);
    std::ranges::sort(accounts.groups);
  }
  return {};
}

Status read_socket_group(const std::string& where, const toml::node& node, bool may_name, AccessRules& rules) {
  const auto text = node.value_exact<std::string>();
  const std::string group = text && text->starts_with("gid:") ? text->substr(4) : text.value_or("");
  if (group.empty() || (!may_name && !parse_number(group)))
    return error_at(where, node, "'socket_group' must be the name of a group, or \"gid:N\"");
  const auto number = account_number(group, kGroupsFile);
  if (!number.ok()) return error_at(where, node, format("'socket_group': {}", number.status().message()));
  rules.socket_group = *number;
  return {};
}

}  // namespace internal
}  // namespace shoal
