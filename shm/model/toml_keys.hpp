// The keys of model.toml, read from a TOML table. Private to shm/model.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "shm/model/access_rules.hpp"
#include "shm/model/model_config.hpp"

namespace shoal::internal {

/// Entries of one list or table of a model's keys, which the supervisor reads between two requests. A model that runs in process
/// may have more inputs and outputs than a request has room for.
inline constexpr std::size_t kMostEntries = 4096;

/// Errors: kInvalidArgument, "where:line: what".
Result<toml::table> parse_toml(const std::string& text, const std::string& where);
/// "where:line: what", with the line of `node`.
Status error_at(const std::string& where, const toml::node& node, const std::string& what);
/// Sets the member that `key` names. Errors: unknown key (all known ones listed), wrong type, value out of range.
Status read_key(const std::string& where, std::string_view key, const toml::node& value, ModelOverrides& overrides);
/// A whole table of such keys.
Result<ModelOverrides> read_keys(const std::string& where, const toml::table& table);
/// The table [preprocess]. A preset in it comes first, and the other keys change it.
Result<Preprocess> read_preprocess(const std::string& where, const toml::node& node);
/// The daemon's table [limits].
Result<ClientLimits> read_limits(const std::string& where, const toml::table& table);
/// Calls `each` with every key of that table.
void for_each_limit(const std::function<void(std::string_view key, int ClientLimits::*member)>& each);
/// The table [roles], and `socket_group`. Names of users and groups are looked up in files, unless `may_name` is false: then they
/// are errors.
Status read_roles(const std::string& where, const toml::table& table, bool may_name, AccessRules& rules);
Status read_socket_group(const std::string& where, const toml::node& node, bool may_name, AccessRules& rules);
/// Errors: kInvalidArgument: not a valid name of a model.
Status check_name(const std::string& name, const std::string& where);

}  // namespace shoal::internal
