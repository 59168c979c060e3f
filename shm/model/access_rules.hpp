// Who may use a daemon, and for what: `socket_group` and the table [roles] of its configuration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

/// What a client may do. Whoever has a role also has kUser.
enum class Role : std::uint8_t {
  kUser,      ///< submit requests; describe, list, ping, stats
  kGateway,   ///< requests for others: with a flow, and with a priority above normal
  kOperator,  ///< all control requests, and requests with a priority above normal
};
inline constexpr std::size_t kRoles = 3;
/// As keys of [roles], in the order of Role.
inline constexpr std::array<std::string_view, kRoles> kRoleNames = {"user", "gateway", "operator"};
constexpr std::string_view role_name(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

/// Numbers of users and groups, ascending.
struct Accounts {
  std::vector<std::uint32_t> users, groups;
  bool empty() const { return users.empty() && groups.empty(); }
  friend bool operator==(const Accounts&, const Accounts&) = default;
};

struct AccessRules {
  std::optional<std::uint32_t> socket_group;  ///< its members may attach, and have the role kUser
  std::array<Accounts, kRoles> roles;         ///< by Role
  Accounts none;                              ///< may not attach, whatever else names them
  /// Whether the table [roles] names anybody.
  bool has_roles() const;
  friend bool operator==(const AccessRules&, const AccessRules&) = default;
};

/// The number of a user ("1000", or a name of `accounts_file`, which has the format of /etc/passwd) or of a group (likewise,
/// /etc/group). Reads that file and nothing else: no other service is asked for names.
///   Errors  kInvalidArgument (too large a number), kNotFound (names the file)
Result<std::uint32_t> account_number(std::string_view text, const std::string& accounts_file);

}  // namespace shoal
