#include "supervisor/process/spawn.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "shm/wire/control.hpp"
#include "supervisor/process/backoff.hpp"
#include "tests/support/child_process.hpp"

namespace shoal::supervisor {
namespace {

std::optional<std::string> wait_for_end(const Child& child) {
  pollfd waited{child.pidfd.get(), POLLIN, 0};
  if (::poll(&waited, 1, 5000) != 1) return std::nullopt;
  const auto status = exit_status(child.pidfd);
  reap(child.pidfd);
  return status ? std::optional(describe_wait_status(*status)) : std::nullopt;
}

TEST(Spawn, ReportsHowAChildEnded) {
  const auto child = spawn({.program = "/bin/sh", .arguments = {"-c", "exit 7"}});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(wait_for_end(*child), "exited with 7");
  const auto killed = spawn({.program = "/bin/sleep", .arguments = {"60"}});
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ(exit_status(killed->pidfd), std::nullopt);
  send_signal(killed->pidfd, SIGKILL);
  EXPECT_EQ(wait_for_end(*killed), "killed by signal 9");
}

TEST(Spawn, GivesTheChildDescriptorThreeTheEnvironmentAndNothingElse) {
  wire::ControlPair pair = wire::make_control_pair().value();
  const auto child = spawn({.program = "/bin/sh",
                            .arguments = {"-c", "ls /proc/self/fd | wc -l >&3; echo $SHOAL_DIR >&3"},
                            .environment = {"SHOAL_DIR=/x"},
                            .control = pair.theirs.get()});
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(wait_for_end(*child), "exited with 0");
  char text[32] = {};
  ASSERT_GT(::recv(pair.ours.get(), text, sizeof text, 0), 0);
  EXPECT_EQ(std::stoi(text), 5);  // 0 to 3, and the directory that ls reads
  const ssize_t size = ::recv(pair.ours.get(), text, sizeof text, 0);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), "/x\n");
}

TEST(Spawn, TheChildEndsWithItsParentWhateverItIsDoing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto child = spawn({.program = "/bin/sleep", .arguments = {"60"}});
    const pid_t pid = child.ok() ? child->pid : -1;
    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    ::pause();
  }
  pid_t orphan = -1;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof orphan), ssize_t{sizeof orphan});
  const UniqueFd pidfd = open_pidfd(orphan);
  ASSERT_TRUE(pidfd);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  pollfd ended{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 5000), 1);
  ::kill(orphan, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

// A child is in the background of the terminal: SIGTTIN or SIGTTOU would stop it when it reads or writes there.
TEST(Spawn, AChildNeitherReadsFromTheTerminalNorStopsForIt) {
  wire::ControlPair pair = wire::make_control_pair().value();
  const auto child = spawn({.program = "/bin/sh",
                            .arguments = {"-c", "readlink /proc/self/fd/0 >&3; grep SigIgn /proc/self/status >&3"},
                            .control = pair.theirs.get()});
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(wait_for_end(*child), "exited with 0");
  char text[64] = {};
  ASSERT_GT(::recv(pair.ours.get(), text, sizeof text - 1, 0), 0);
  EXPECT_STREQ(text, "/dev/null\n");
  std::memset(text, 0, sizeof text);
  ASSERT_GT(::recv(pair.ours.get(), text, sizeof text - 1, 0), 0);
  const unsigned long ignored = std::stoul(std::string(text).substr(std::strlen("SigIgn:")), nullptr, 16);
  for (const int signal : {SIGTTIN, SIGTTOU}) EXPECT_NE(ignored >> (signal - 1) & 1, 0u) << "signal " << signal << ": " << text;
}

// Otherwise it would have to close them, which can take as long as a stranger likes.
TEST(Spawn, AChildHasNoDescriptorsOfItsParentNotEvenBeforeItExecutes) {
  std::vector<UniqueFd> opened(20);
  for (UniqueFd& fd : opened) fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto child = spawn({.program = "/bin/true"});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(wait_for_end(*child), "exited with 0");
  std::size_t of_spawner = 0, of_this = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    const auto descriptors = std::filesystem::directory_iterator(task.path() / "fd");
    std::size_t& count = name == "shoal-spawner" ? of_spawner : of_this;
    count = static_cast<std::size_t>(std::distance(begin(descriptors), end(descriptors)));
  }
  EXPECT_EQ(of_spawner, 4u) << "stdin, stdout, stderr, and where it hears what to do";
  EXPECT_GE(of_this, 24u);
}

// SIGURG: who has no handler ignores it, for example the programs that run this test.
TEST(Spawn, ASignalToTheGroupOfAChildDoesNotReachItsParent) {
  static volatile sig_atomic_t received = 0;
  ::signal(SIGURG, [](int) { received = 1; });
  const auto child = spawn({.program = "/bin/sh", .arguments = {"-c", "kill -URG 0; exit 7"}});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(wait_for_end(*child), "exited with 7");
  ::signal(SIGURG, SIG_DFL);
  EXPECT_EQ(received, 0);
}

bool nobody(pid_t) { return false; }
void at_once(pid_t, UniqueFd pidfd) { reap(pidfd); }

class ReapChildren : public testing::Test {
 protected:
  ReapChildren() {
    while (!reap_children(nobody, at_once)) {  // children of other tests
    }
  }
};

TEST_F(ReapChildren, LeavesAChildToItsWatcher) {
  const Child watched = spawn({.program = "/bin/sh", .arguments = {"-c", "exit 7"}}).value();
  pollfd ended{watched.pidfd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ended, 1, 5000), 1);
  const auto never = [](pid_t, UniqueFd) { ADD_FAILURE() << "it is watched"; };
  EXPECT_FALSE(reap_children([&](pid_t pid) { return pid == watched.pid; }, never));
  EXPECT_EQ(wait_for_end(watched), "exited with 7");

  const Child orphan = spawn({.program = "/bin/sh", .arguments = {"-c", "exit 7"}}).value();
  ended.fd = orphan.pidfd.get();
  ASSERT_EQ(::poll(&ended, 1, 5000), 1);
  EXPECT_TRUE(reap_children(nobody, at_once));
  EXPECT_EQ(::kill(orphan.pid, 0), -1) << "it is not reaped";
}

// The kernel names one of them at a time, until it is reaped.
TEST_F(ReapChildren, DoesNotWaitForWhoReapsOnAnotherThread) {
  const Child first = spawn({.program = "/bin/true"}).value(), second = spawn({.program = "/bin/true"}).value();
  for (const Child* child : {&first, &second}) {
    pollfd ended{child->pidfd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ended, 1, 5000), 1);
  }
  std::map<pid_t, UniqueFd> dead;
  const auto is_dead = [&](pid_t pid) { return dead.contains(pid); };
  const auto later = [&](pid_t pid, UniqueFd pidfd) { EXPECT_TRUE(dead.emplace(pid, std::move(pidfd)).second); };
  for (int look = 0; look < 2; ++look) {
    EXPECT_FALSE(reap_children(is_dead, later));
    EXPECT_EQ(dead.size(), 1u);
  }
  reap(dead.begin()->second);
  EXPECT_FALSE(reap_children(is_dead, later));
  ASSERT_EQ(dead.size(), 2u);
  for (const auto& child : dead) reap(child.second);
  EXPECT_TRUE(reap_children(is_dead, later));
  for (const Child* child : {&first, &second}) EXPECT_EQ(::kill(child->pid, 0), -1) << "it is not reaped";
}

TEST_F(ReapChildren, LeavesTheOthersToTheNextCallIfThereAreTooMany) {
  std::vector<pid_t> children;
  for (int i = 0; i <= kMostReaped; ++i) children.push_back(test::start_child([] { return 0; }));
  siginfo_t ended{};
  for (const pid_t child : children) ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(reap_children(nobody, at_once));
  EXPECT_TRUE(reap_children(nobody, at_once));
  for (const pid_t child : children) EXPECT_EQ(::kill(child, 0), -1) << "it is not reaped";
}

TEST(Spawn, NamesAProgramThatIsNotThere) {
  const auto child = spawn({.program = "/nowhere/shoal-worker"});
  EXPECT_EQ(child.status().code(), StatusCode::kNotFound);
  EXPECT_NE(child.status().message().find("/nowhere/shoal-worker"), std::string::npos);
}

TEST(Backoff, DoublesToItsLimitAndStartsAgainAfterSuccess) {
  Backoff backoff;
  EXPECT_EQ(backoff.failed(0), 100'000'000u);
  EXPECT_EQ(backoff.failed(0), 200'000'000u);
  for (int i = 0; i < 20; ++i) backoff.failed(0);
  EXPECT_EQ(backoff.failed(0), Backoff::kLongestNs);
  backoff.succeeded();
  EXPECT_EQ(backoff.failed(0), 100'000'000u);
}

}  // namespace
}  // namespace shoal::supervisor
