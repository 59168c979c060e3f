#include "shoal/pool.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "shm/wire/control.hpp"

namespace shoal {
namespace {

// A directory with an attach socket that behaves as the test wants.
class PoolTest : public testing::Test {
 protected:
  PoolTest() {
    char name[] = "/tmp/shoal-pool-test-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~PoolTest() override { std::filesystem::remove_all(directory_); }

  UniqueFd listen() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/attach").c_str());
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    return fd;
  }

  std::string directory_;
};

TEST_F(PoolTest, WithoutADaemonTheErrorNamesTheSocketAndHowToStartOne) {
  const auto pool = Pool::connect({.directory = directory_});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(pool.status().message().find(directory_ + "/attach"), std::string::npos);
  EXPECT_NE(pool.status().message().find("shoald --model"), std::string::npos);
}

TEST_F(PoolTest, ARefusalArrivesWithItsCode) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    const auto attach = wire::receive_control(client.get(), true);
    EXPECT_EQ((*attach)->fds.size(), 2u);
    EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kRefused, .a = 12, .text = "not your daemon"}).ok());
  });
  const auto pool = Pool::connect({.directory = directory_});
  EXPECT_EQ(pool.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(pool.status().message().find("not your daemon"), std::string::npos);
}

TEST_F(PoolTest, ADaemonThatSaysNothingIsGivenUp) {
  const UniqueFd listener = listen();
  const auto pool = Pool::connect({.directory = directory_, .connect_timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable);
}

TEST_F(PoolTest, ADirectoryWhosePathIsTooLongIsRefused) {
  const auto pool = Pool::connect({.directory = directory_ + std::string(100, 'x')});
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
