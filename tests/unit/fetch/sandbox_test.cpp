#include "fetch/sandbox.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <thread>

#include "shm/sandbox/sandbox_parts.hpp"
#include "tests/support/landlock.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::fetch {
namespace {

class FetchSandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = sandbox::why_none(); !why.empty()) GTEST_SKIP() << why;
  }
  /// How a process ends that calls this in the sandbox.
  int status_of(const std::function<int()>& call) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (!enter_sandbox(cache_.path(""), readable_).ok()) ::_exit(99);
      ::_exit(call());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  bool is_killed(const std::function<int()>& call) const {
    const int status = status_of(call);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
  }
  int exit_of(const std::function<int()>& call) const {
    const int status = status_of(call);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  test::ScratchDirectory cache_, other_;
  std::vector<std::filesystem::path> readable_;
};

TEST_F(FetchSandboxTest, ExecutesNothingAndStartsNobody) {
  EXPECT_TRUE(is_killed([] {
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    return ::execv(name, arguments);
  }));
  EXPECT_TRUE(is_killed([] { return ::fork() == 0 ? 0 : 1; }));
  EXPECT_TRUE(is_killed([] { return ::kill(::getppid(), SIGTERM); }));
}

TEST_F(FetchSandboxTest, ConnectsAndListensToNobody) {
  EXPECT_EQ(exit_of([] {
              sockaddr_in address{
                  .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
              const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
              (void)::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
              return errno == ECONNREFUSED ? 0 : 1;
            }),
            0);
  EXPECT_EQ(exit_of([] { return ::socket(AF_INET6, SOCK_DGRAM, 0) >= 0 || errno == EAFNOSUPPORT ? 0 : 1; }), 0) << "name servers";
  EXPECT_TRUE(is_killed([] { return ::socket(AF_PACKET, SOCK_RAW, 0); }));
  EXPECT_TRUE(is_killed([] { return ::listen(::socket(AF_INET, SOCK_STREAM, 0), 1); }));
}

TEST_F(FetchSandboxTest, HasThreads) {
  EXPECT_EQ(exit_of([] {
              std::thread([] {}).join();
              return 0;
            }),
            0);
}

TEST_F(FetchSandboxTest, SeesItsCacheAndNoOtherFilesOfTheUser) {
  if (test::landlock_version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  const std::string own = cache_.path("own"), secret = other_.path("secret");
  std::ofstream(secret) << "secret";
  EXPECT_EQ(exit_of([&] { return ::open(own.c_str(), O_WRONLY | O_CREAT, 0600) >= 0 ? 0 : errno; }), 0);
  EXPECT_EQ(exit_of([&] { return ::link(own.c_str(), cache_.path("link").c_str()) == 0 ? 0 : errno; }), 0);
  EXPECT_EQ(exit_of([&] { return ::open(secret.c_str(), O_RDONLY) >= 0 ? 0 : errno; }), EACCES);
  EXPECT_EQ(exit_of([&] { return ::open(other_.path("new").c_str(), O_WRONLY | O_CREAT, 0600) >= 0 ? 0 : errno; }), EACCES);
  readable_ = {secret};  // as a file of certificates
  EXPECT_EQ(exit_of([&] { return ::open(secret.c_str(), O_RDONLY) >= 0 ? 0 : errno; }), 0);
  EXPECT_EQ(exit_of([&] { return ::open(secret.c_str(), O_WRONLY) >= 0 ? 0 : errno; }), EACCES);
  EXPECT_EQ(exit_of([] { return ::open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno; }), 0) << "name services read it";
}

}  // namespace
}  // namespace shoal::fetch
