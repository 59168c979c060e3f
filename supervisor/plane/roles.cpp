#include "supervisor/plane/roles.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "shm/base/errors.hpp"

namespace shoal::supervisor {
namespace {

bool names(const Accounts& accounts, const Identity& who) {
  return std::ranges::binary_search(accounts.users, who.user) ||
         std::ranges::any_of(who.groups, [&](gid_t group) { return std::ranges::binary_search(accounts.groups, group); });
}

Result<ucred> credentials_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return status_from_errno("ask who", "a client is", errno);
  return peer;
}

}  // namespace

std::string RoleSet::text() const {
  std::string text;
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (has(static_cast<Role>(role))) text += format("{}{}", text.empty() ? "" : ", ", kRoleNames[role]);
  }
  return text.empty() ? "none" : text;
}

Result<uid_t> user_of(int socket) {
  SHOAL_ASSIGN_OR_RETURN(const ucred peer, credentials_of(socket));
  return peer.uid;
}

Result<Identity> identity_of(int socket) {
  SHOAL_ASSIGN_OR_RETURN(const ucred peer, credentials_of(socket));
  Identity who{.pid = peer.pid, .user = peer.uid, .groups = {peer.gid}};
  // Root and the daemon's user may do everything, whatever their groups.
  if (peer.uid == 0 || peer.uid == ::geteuid()) return who;
  // A process may have 65 536 groups. To copy and to compare them would take long.
  std::array<gid_t, Identity::kMostGroups> groups{};
  socklen_t size = sizeof groups;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    if (errno != ERANGE) return status_from_errno("ask for the groups of", "a client", errno);
    return permission_denied("a process of user {} is in {} groups, and one that attaches may be in {} at most", peer.uid,
                             size / sizeof(gid_t), groups.size());
  }
  who.groups.insert(who.groups.end(), groups.begin(), groups.begin() + size / sizeof(gid_t));
  return who;
}

RoleSet roles_of(const Identity& who, const AccessRules& rules, uid_t daemon) {
  if (who.user == daemon || who.user == 0) return RoleSet::all();
  RoleSet roles;
  if (names(rules.none, who)) return roles;
  if (rules.socket_group && std::ranges::count(who.groups, *rules.socket_group) > 0) roles.add(Role::kUser);
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (!names(rules.roles[role], who)) continue;
    roles.add(static_cast<Role>(role));
    roles.add(Role::kUser);
  }
  return roles;
}

Status check_may_attach(const Identity& who, RoleSet roles, const AccessRules& rules, uid_t daemon) {
  if (!roles.empty()) return {};
  if (names(rules.none, who))
    return permission_denied("user {} may not use this daemon: `none` of [roles] in its configuration names it", who.user);
  return permission_denied(
      "user {} may not use the daemon of user {}: add it to the group that the daemon lets in ({}), or name \"uid:{}\" in "
      "[roles] "
      "of the daemon's configuration",
      who.user, daemon,
      rules.socket_group ? format("socket_group, {}", *rules.socket_group)
                         : std::string("`socket_group` of its configuration, which is not set"),
      who.user);
}

Status lacks_role(std::string_view what, std::initializer_list<Role> any_of, uid_t user, RoleSet has) {
  std::string wanted;
  for (const Role role : any_of) wanted += format("{}{}", wanted.empty() ? "" : " or ", role_name(role));
  return permission_denied(
      "{} needs the role {}, and this client of user {} has: {}. Name \"uid:{}\", or one of its groups, as {} in [roles] of the "
      "daemon's configuration",
      what, wanted, user, has.text(), user, wanted);
}

}  // namespace shoal::supervisor
