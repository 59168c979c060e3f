// The keys of model.toml, read from a TOML table. Private to shm/model.
#pragma once

#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "shm/model/model_config.hpp"

namespace shoal::internal {

/// Errors: kInvalidArgument, "where:line: what".
Result<toml::table> parse_toml(const std::string& text, const std::string& where);
/// "where:line: what" for the place where `node` stands.
Status error_at(const std::string& where, const toml::node& node, const std::string& what);
/// Sets the member that `key` names. Errors: unknown key (all known ones listed), wrong type, value out of range.
Status read_key(const std::string& where, std::string_view key, const toml::node& value, ModelOverrides& overrides);
/// A whole table of such keys.
Result<ModelOverrides> read_keys(const std::string& where, const toml::table& table);
/// The daemon's table [limits].
Result<ClientLimits> read_limits(const std::string& where, const toml::table& table);

}  // namespace shoal::internal
