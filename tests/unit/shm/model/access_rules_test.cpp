#include "shm/model/access_rules.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "shm/model/version_entry.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;

Result<DaemonConfig> parse(const std::string& text) { return parse_daemon_config(text, "d.toml", "/etc/shoal"); }
std::string error(const std::string& text) { return parse(text).status().message(); }

const Accounts& of(const AccessRules& rules, Role role) { return rules.roles[static_cast<std::size_t>(role)]; }

TEST(AccessRules, WithoutAnyKeyNobodyIsNamed) {
  const AccessRules rules = parse("[limits]\nmodels = 1\n").value().access;
  EXPECT_EQ(rules, AccessRules());
  EXPECT_FALSE(rules.has_roles());
}

TEST(AccessRules, AreReadByNumber) {
  const AccessRules rules = parse(
                                "socket_group = \"gid:33\"\n[roles]\nuser = [\"uid:9\", \"uid:7\"]\n"
                                "gateway = [\"gid:4\"]\noperator = [\"uid:0\", \"gid:4294967294\"]\nnone = [\"uid:8\"]\n")
                                .value()
                                .access;
  EXPECT_EQ(rules.socket_group, 33u);
  EXPECT_EQ(of(rules, Role::kUser), (Accounts{.users = {7, 9}, .groups = {}})) << "ascending";
  EXPECT_EQ(of(rules, Role::kGateway), (Accounts{.users = {}, .groups = {4}}));
  EXPECT_EQ(of(rules, Role::kOperator), (Accounts{.users = {0}, .groups = {4'294'967'294}}));
  EXPECT_EQ(rules.none, (Accounts{.users = {8}, .groups = {}}));
  EXPECT_TRUE(rules.has_roles());
}

// Every system has these two.
TEST(AccessRules, NamesAreLookedUp) {
  const AccessRules rules =
      parse("socket_group = \"root\"\n[roles]\noperator = [\"user:root\", \"group:root\"]\n").value().access;
  EXPECT_EQ(rules.socket_group, 0u);
  EXPECT_EQ(of(rules, Role::kOperator), (Accounts{.users = {0}, .groups = {0}}));
  EXPECT_EQ(parse("socket_group = \"12\"\n").value().access.socket_group, 12u);
}

TEST(AccessRules, AccountNumberReadsOnlyTheFile) {
  const test::ScratchDirectory files;
  files.write("group", "# users\n\nbroken:x\nbroken:x:abc:\nops:x:27:alice,bob\nopsx:x:28:\nlarge:x:4294967295:\n");
  const std::string file = files.path("group");
  EXPECT_EQ(account_number("ops", file).value(), 27u);
  EXPECT_EQ(account_number("opsx", file).value(), 28u);
  EXPECT_EQ(account_number("77", "/no/such/file").value(), 77u);
  for (const char* name : {"op", "alice", "broken", "large", ""}) {
    const Status missing = account_number(name, file).status();
    EXPECT_EQ(missing.code(), StatusCode::kNotFound) << name;
    EXPECT_TRUE(says(missing.message(), {file, "number"})) << name;
  }
  for (const char* number : {"4294967295", "99999999999999999999999"})
    EXPECT_EQ(account_number(number, file).status().code(), StatusCode::kInvalidArgument) << number;
}

TEST(AccessRules, ErrorsNameKeyAndLine) {
  EXPECT_TRUE(says(error("[roles]\nadmin = []"), {"d.toml:2:", "'roles.admin'", "operator"}));
  EXPECT_TRUE(says(error("[roles]\nuser = \"uid:1\""), {"d.toml:2:", "'roles.user'", "list"}));
  EXPECT_TRUE(says(error("[roles]\nuser = [1]"), {"d.toml:2:", "'roles.user'", "strings"}));
  for (const char* entry : {"alice", "uid:alice", "user:7", "gid:", "uid:-1", "", ":", "uid:1 "})
    EXPECT_TRUE(says(error(std::string("[roles]\nuser = [\"") + entry + "\"]"), {"d.toml:2:", entry, "uid:N"})) << entry;
  EXPECT_TRUE(says(error("[roles]\nuser = [\"user:no-such-user\"]"), {"d.toml:2:", "/etc/passwd", "no-such-user"}));
  EXPECT_TRUE(says(error("[roles]\nuser = [\"uid:4294967295\"]"), {"d.toml:2:", "too large"}));
  EXPECT_TRUE(says(error("socket_group = 33"), {"d.toml:1:", "'socket_group'", "gid:N"}));
  EXPECT_TRUE(says(error("socket_group = \"no-such-group\""), {"d.toml:1:", "/etc/group"}));
  EXPECT_TRUE(says(error("roles = 1"), {"d.toml:1:", "[roles]"}));
  EXPECT_TRUE(says(error("rolls = 1"), {"d.toml:1:", "'rolls'", "[roles]", "socket_group"}));
}

TEST(AccessRules, TravelAsNumbers) {
  const test::ScratchDirectory files;
  files.write("d.toml",
              "socket_group = \"root\"\n[roles]\nuser = [\"user:root\", \"gid:5\"]\ngateway = [\"uid:6\"]\nnone = [\"gid:8\"]\n");
  const std::string text = answer({.model = {}, .configuration = files.path("d.toml")});
  EXPECT_EQ(text.find("user:root"), text.npos) << text;
  const auto carried = parse_configuration(text);
  ASSERT_TRUE(carried.ok()) << carried.status().to_string();
  EXPECT_EQ(carried->access,
            (AccessRules{.socket_group = 0,
                         .roles = {Accounts{.users = {0}, .groups = {5}}, Accounts{.users = {6}, .groups = {}}, {}},
                         .none = {.users = {}, .groups = {8}}}));
}

// The supervisor looks up no names, and believes no number that it did not check.
TEST(AccessRules, AnAnswerIsChecked) {
  const auto with = [](const std::string& access) {
    return parse_configuration(R"({"models": [], "limits": {}, "access": )" + access + "}");
  };
  EXPECT_TRUE(with(R"({"roles": {"user": ["uid:4"]}, "socket_group": "gid:5"})").ok());
  for (const char* bad : {"{}", "[]", "null", R"({"roles": []})", R"({"roles": {"root": []}})", R"({"roles": {"user": "uid:4"}})",
                          R"({"roles": {"user": ["user:root"]}})", R"({"roles": {"user": ["uid:4294967295"]}})",
                          R"({"roles": {"user": [4]}})", R"({"roles": {}, "socket_group": "root"})",
                          R"({"roles": {}, "socket_group": 5})", R"({"roles": {}, "socket_group": "gid:4294967295"})"})
    EXPECT_EQ(with(bad).status().code(), StatusCode::kInternal) << bad;
  EXPECT_FALSE(parse_configuration(R"({"models": [], "limits": {}})").ok());
}

}  // namespace
}  // namespace shoal
