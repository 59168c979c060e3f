// Processes of other users, and a daemon that lets them in.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {

inline constexpr uid_t kAlice = 64401, kBob = 64402, kGatewayUser = 64403, kOperatorUser = 64404, kDaemonUser = 64400;
inline constexpr gid_t kGroup = 64410, kOperators = 64411, kOther = 64412;

/// A process of that user and those groups (its own group is no other's). It runs `work` and tells what that returns.
class ProcessOf {
 public:
  ProcessOf(uid_t user, const std::vector<gid_t>& groups, const std::function<std::string()>& work) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    said_.reset(ends[0]);
    const UniqueFd say(ends[1]);
    pid_ = start_child([&] {
      if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) return 1;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // setuid() has cleared it
      const std::string text = work();
      return ::write(say.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
    });
  }
  ~ProcessOf() {
    if (pid_ > 0) kill();
  }
  ProcessOf(const ProcessOf&) = delete;
  ProcessOf& operator=(const ProcessOf&) = delete;

  pid_t pid() const { return pid_; }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  /// Waits for its end.
  std::string said() {
    std::string text;
    char part[4096];
    for (ssize_t size; (size = ::read(said_.get(), part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(size));
    EXPECT_EQ(exit_code_of(std::exchange(pid_, -1)), 0) << text;
    return text;
  }

 private:
  UniqueFd said_;
  pid_t pid_ = -1;
};

inline std::string as(uid_t user, const std::vector<gid_t>& groups, const std::function<std::string()>& work) {
  return ProcessOf(user, groups, work).said();
}

/// "OK", or the status.
template <typename T>
std::string text_of(const Result<T>& result) {
  return result.ok() ? "OK" : result.status().to_string();
}
inline std::string text_of(const Status& status) { return status.ok() ? "OK" : status.to_string(); }

inline std::string predict(Pool& pool, std::int8_t priority = 0) {
  const Prediction prediction = pool.submit("echo", {{"data", counting({4})}}, {.priority = priority});
  const Outcome& outcome = prediction.outcome();
  if (!outcome.outputs.ok() && outcome.ran != Ran::kNo) return "it ran: " + outcome.outputs.status().to_string();
  return text_of(outcome.outputs);
}

inline std::string attach_and_predict(const std::string& directory) {
  auto pool = Pool::connect({.directory = directory});
  return pool.ok() ? predict(*pool) : text_of(pool.status());
}

class RolesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
    std::filesystem::permissions(files_.path(), std::filesystem::perms(0755));
  }
  std::string configuration() const { return files_.path("shoal.toml"); }
  void configure(const std::string& text) const {
    files_.write("shoal.toml", text);
    std::filesystem::permissions(configuration(), std::filesystem::perms(0644));
  }
  DaemonSettings settings(const std::string& text, uid_t user = 0, std::vector<gid_t> groups = {}) const {
    configure(text);
    return {.arguments = {"--config", configuration()}, .user = user, .groups = std::move(groups)};
  }
  // The daemon, with a group that may attach, and a user for each role.
  const std::string usual_ = "socket_group = \"gid:64410\"\n[roles]\ngateway = [\"uid:64403\"]\noperator = [\"gid:64411\"]\n";

  const ScratchDirectory files_;
};

}  // namespace shoal::test
