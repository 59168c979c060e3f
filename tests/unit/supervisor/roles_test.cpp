#include "supervisor/plane/roles.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/child_process.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

using test::says;

constexpr uid_t kDaemon = 900;

Identity who(uid_t user, std::vector<gid_t> groups) { return {.pid = 1, .user = user, .groups = std::move(groups)}; }

AccessRules rules() {
  AccessRules rules{.socket_group = 33, .roles = {}, .none = {.users = {6}, .groups = {66}}};
  rules.roles[static_cast<std::size_t>(Role::kUser)] = {.users = {5}, .groups = {}};
  rules.roles[static_cast<std::size_t>(Role::kGateway)] = {.users = {7}, .groups = {70, 71}};
  rules.roles[static_cast<std::size_t>(Role::kOperator)] = {.users = {8}, .groups = {71}};
  return rules;
}

TEST(Roles, WithoutRulesOnlyTheDaemonsUserAndRootHaveAny) {
  const AccessRules none;
  for (const uid_t user : {kDaemon, uid_t{0}}) EXPECT_EQ(roles_of(who(user, {1}), none, kDaemon), RoleSet::all()) << user;
  EXPECT_TRUE(roles_of(who(5, {0, 900}), none, kDaemon).empty()) << "a group is no user";
}

TEST(Roles, ComeFromUserAndAllGroups) {
  const auto of = [](uid_t user, std::vector<gid_t> groups) { return roles_of(who(user, std::move(groups)), rules(), kDaemon); };
  const RoleSet user{Role::kUser}, gateway{Role::kUser, Role::kGateway}, operators{Role::kUser, Role::kOperator};
  EXPECT_TRUE(of(1000, {1000}).empty());
  EXPECT_EQ(of(1000, {1000, 33}), user);
  EXPECT_EQ(of(1000, {33}), user) << "the effective group";
  EXPECT_EQ(of(5, {5}), user);
  EXPECT_EQ(of(7, {7}), gateway) << "who has a role is a user, too";
  EXPECT_EQ(of(8, {33}), operators);
  EXPECT_EQ(of(1000, {1, 2, 70}), gateway);
  EXPECT_EQ(of(1000, {71}), RoleSet::all());
  EXPECT_EQ(of(70, {7}), RoleSet()) << "numbers of users are not those of groups";
}

TEST(Roles, WhoIsNamedUnderNoneHasNoneWhateverElseNamesIt) {
  AccessRules all = rules();
  for (Accounts& accounts : all.roles) accounts = {.users = {0, 6, kDaemon}, .groups = {33}};
  all.none = {.users = {0, 6, kDaemon}, .groups = {66}};
  EXPECT_TRUE(roles_of(who(6, {33}), all, kDaemon).empty());
  EXPECT_TRUE(roles_of(who(1000, {33, 66}), all, kDaemon).empty());
  EXPECT_EQ(roles_of(who(0, {66}), all, kDaemon), RoleSet::all()) << "root can do everything anyway";
  EXPECT_EQ(roles_of(who(kDaemon, {66}), all, kDaemon), RoleSet::all());
}

TEST(Roles, RefusalsSayWhatToConfigure) {
  const auto refusal = [](const Identity& one, const AccessRules& by) {
    const Status status = check_may_attach(one, roles_of(one, by, kDaemon), by, kDaemon);
    EXPECT_EQ(status.code(), status.ok() ? StatusCode::kOk : StatusCode::kPermissionDenied);
    return status.message();
  };
  EXPECT_EQ(refusal(who(1000, {33}), rules()), "");
  EXPECT_TRUE(says(refusal(who(1000, {1}), rules()), {"user 1000", "user 900", "socket_group, 33", "\"uid:1000\"", "[roles]"}));
  EXPECT_TRUE(says(refusal(who(1000, {1}), {}), {"user 1000", "`socket_group`", "not set"}));
  EXPECT_TRUE(says(refusal(who(6, {33}), rules()), {"user 6", "`none`", "[roles]"}));
  const Status lacks = lacks_role("'reload'", {Role::kOperator}, 1000, {Role::kUser});
  EXPECT_EQ(lacks.code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(says(lacks.message(), {"'reload'", "the role operator", "has: user.", "\"uid:1000\"", "as operator in [roles]"}));
  EXPECT_TRUE(says(lacks_role("x", {Role::kGateway, Role::kOperator}, 1, {}).message(), {"gateway or operator", "has: none"}));
}

/// Who the kernel says a child is that connects with those groups.
Identity identity_of_a_child(uid_t user, gid_t group, const std::vector<gid_t>& groups) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch.path("socket");
  EXPECT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  const UniqueFd listener = test::bound_socket(path, SOCK_SEQPACKET);
  EXPECT_EQ(::chmod(path.c_str(), 0777), 0);
  const pid_t child = test::start_child([&] {
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(group) != 0 || ::setuid(user) != 0) return 1;
    const UniqueFd socket = test::connected_socket(path, SOCK_SEQPACKET);
    char byte;
    return socket && ::read(socket.get(), &byte, 1) == 0 ? 0 : 2;
  });
  Identity who;
  {
    const UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto asked = identity_of(connection.get());
    EXPECT_TRUE(asked.ok()) << asked.status().to_string();
    if (asked.ok()) who = *asked;
    EXPECT_EQ(who.pid, child);
  }
  EXPECT_EQ(test::exit_code_of(child), 0);
  return who;
}

TEST(Roles, TheKernelTellsUserAndGroups) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  const Identity plain = identity_of_a_child(64321, 64322, {});
  EXPECT_EQ(plain.user, 64321u);
  EXPECT_EQ(plain.groups, (std::vector<gid_t>{64322}));
  EXPECT_EQ(identity_of_a_child(64321, 64322, {33, 44}).groups, (std::vector<gid_t>{64322, 33, 44}));
  std::vector<gid_t> many(1000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<gid_t>(i + 5);
  EXPECT_EQ(identity_of_a_child(64321, 64322, many).groups.size(), 1001u);
}

TEST(Roles, WhatIsNoConnectionHasNoIdentity) {
  EXPECT_FALSE(identity_of(-1).ok());
  EXPECT_FALSE(identity_of(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()).ok());
}

}  // namespace
}  // namespace shoal::supervisor
