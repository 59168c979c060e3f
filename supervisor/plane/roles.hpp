// Who a client is, and what it may do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "shm/model/access_rules.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// A set of roles. Empty: the client may not even attach.
class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) add(role);
  }
  static constexpr RoleSet all() { return {Role::kUser, Role::kGateway, Role::kOperator}; }
  constexpr void add(Role role) { bits_ |= bit(role); }
  constexpr bool has(Role role) const { return (bits_ & bit(role)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  /// "user, gateway"
  std::string text() const;
  friend constexpr bool operator==(RoleSet, RoleSet) = default;

 private:
  static constexpr std::uint8_t bit(Role role) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(role)); }
  std::uint8_t bits_ = 0;
};

/// The process at the other end of a connection, as it was when it connected.
struct Identity {
  static constexpr std::size_t kMostGroups = 1024;  ///< besides the effective one
  pid_t pid = 0;
  uid_t user = 0;
  std::vector<gid_t> groups;  ///< the effective one first, then the others; root and our own user have no others here
};
/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS), which always gives the same answer for one connection. Users and groups that our
/// user namespace does not have appear as 65534.
///   Errors  those of getsockopt(); kPermissionDenied (in more than kMostGroups groups)
Result<Identity> identity_of(int socket);
/// Its user alone, which is known also if it is in too many groups. Errors: those of getsockopt().
Result<uid_t> user_of(int socket);

/// `daemon` is the daemon's user: it has all roles, and so has root. Others have what the rules give them.
RoleSet roles_of(const Identity& who, const AccessRules& rules, uid_t daemon);

/// Errors: kPermissionDenied: `who` has no role. The message says what to configure.
Status check_may_attach(const Identity& who, RoleSet roles, const AccessRules& rules, uid_t daemon);
/// kPermissionDenied: "WHAT needs the role ROLE ...", and which key gives it.
Status lacks_role(std::string_view what, std::initializer_list<Role> any_of, uid_t user, RoleSet has);

}  // namespace shoal::supervisor
