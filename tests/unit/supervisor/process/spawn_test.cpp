#include "supervisor/process/spawn.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
#include "tests/support/scratch_directory.hpp"

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

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHOAL_TEST_VFORK_IS_FORK 1
#endif
#endif
#if !defined(SHOAL_TEST_VFORK_IS_FORK) && !defined(__SANITIZE_THREAD__)
// fork() copies the page tables of all memory, and write-protects the pages: each has a fault when it is written again. How long
// spawn() takes must not depend on how much memory there is.
TEST(Spawn, CopiesNoPageTables) {
  constexpr std::size_t kPages = 16 * 1024;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, kPages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::madvise(memory, kPages * page_bytes, MADV_NOHUGEPAGE);
  const auto write_each_page = [&] {
    for (std::size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(memory)[page * page_bytes] = 1;
  };
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  write_each_page();
  const auto child = spawn({.program = "/bin/sleep", .arguments = {"60"}});
  ASSERT_TRUE(child.ok());
  const long before = faults();
  write_each_page();
  EXPECT_LT(faults() - before, static_cast<long>(kPages / 4)) << "of " << kPages << " pages";
  send_signal(child->pidfd, SIGKILL);
  EXPECT_EQ(wait_for_end(*child), "killed by signal 9");
  ::munmap(memory, kPages * page_bytes);
}
#endif

// execve() waits for who has a lease on the program, as it waits for a file system.
TEST(Spawn, AProgramThatCannotBeReadYetDelaysNobody) {
  const test::ScratchDirectory directory;
  const std::string program = directory.path("program");
  std::filesystem::copy_file("/bin/sleep", program);
  const UniqueFd lease(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  ::signal(SIGIO, SIG_IGN);  // tells that somebody waits
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "this file system has no leases: " << std::strerror(errno);
  const auto is_executed = [&](const Child& child) {
    std::error_code none;
    return std::filesystem::read_symlink("/proc/" + std::to_string(child.pid) + "/exe", none) == std::filesystem::path(program);
  };
  std::vector<Child> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(spawn({.program = program, .arguments = {"60"}}).value());
  const auto other = spawn({.program = "/bin/sh", .arguments = {"-c", "exit 7"}});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(wait_for_end(*other), "exited with 7");
  for (int i = 0; i < 2'000 && ::fcntl(lease.get(), F_GETLEASE) != F_RDLCK; ++i) ::poll(nullptr, 0, 5);
  EXPECT_EQ(::fcntl(lease.get(), F_GETLEASE), F_RDLCK) << "nobody waits for the lease";
  for (const Child& child : waiting) EXPECT_FALSE(is_executed(child));
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  for (const Child& child : waiting) {
    for (int i = 0; i < 2'000 && !is_executed(child); ++i) ::poll(nullptr, 0, 5);
    EXPECT_TRUE(is_executed(child));
    send_signal(child.pidfd, SIGKILL);
    EXPECT_EQ(wait_for_end(child), "killed by signal 9");
  }
  ::signal(SIGIO, SIG_DFL);
}

// Until execve() it runs in our memory, and a thread waits for it.
TEST(Spawn, ChildrenMayBeKilledBeforeTheyExecute) {
  const test::ScratchDirectory directory;
  const std::string program = directory.path("program");
  std::filesystem::copy_file("/bin/sleep", program);
  const UniqueFd lease(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  ::signal(SIGIO, SIG_IGN);
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "this file system has no leases: " << std::strerror(errno);
  for (int i = 0; i < 100; ++i) {
    const auto child = spawn({.program = program, .arguments = {"60"}});
    ASSERT_TRUE(child.ok());
    send_signal(child->pidfd, SIGKILL);
    EXPECT_EQ(wait_for_end(*child), "killed by signal 9");
  }
  ::fcntl(lease.get(), F_SETLEASE, F_UNLCK);
  ::signal(SIGIO, SIG_DFL);
}

TEST(Spawn, AChildBlocksNoSignalsAndChangesNoneOfItsParent) {
  ::signal(SIGUSR1, [](int) {});
  ::signal(SIGUSR2, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  wire::ControlPair pair = wire::make_control_pair().value();
  const auto child = spawn({.program = "/bin/sh",
                            .arguments = {"-c", "exec grep -E '^Sig(Blk|Ign)' /proc/self/status >&3"},
                            .control = pair.theirs.get()});
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(wait_for_end(*child), "exited with 0");
  char text[128] = {};
  ASSERT_GT(::recv(pair.ours.get(), text, sizeof text - 1, 0), 0);
  const std::string lines(text);
  EXPECT_EQ(std::stoul(lines.substr(lines.find("SigBlk:") + 7), nullptr, 16), 0u) << lines;
  const unsigned long ignored = std::stoul(lines.substr(lines.find("SigIgn:") + 7), nullptr, 16);
  EXPECT_NE(ignored >> (SIGUSR2 - 1) & 1, 0u) << lines;
  EXPECT_EQ(ignored >> (SIGPIPE - 1) & 1, 0u) << lines;
  for (const int signal : {SIGUSR2, SIGPIPE}) EXPECT_EQ(::signal(signal, SIG_DFL), SIG_IGN) << "signal " << signal;
  EXPECT_EQ(::signal(SIGTTIN, SIG_DFL), SIG_DFL);
  EXPECT_NE(::signal(SIGUSR1, SIG_DFL), SIG_DFL);
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
