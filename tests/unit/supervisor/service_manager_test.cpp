#include "supervisor/service_manager.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>

#include "shm/base/unique_fd.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::supervisor {
namespace {

class ServiceManagerTest : public testing::Test {
 protected:
  ServiceManagerTest() {
    const std::string path = directory_.path("notify");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    manager_ = ServiceManager::from_environment();
  }
  std::string heard() const {
    char text[8192];
    const ssize_t size = ::recv(socket_.get(), text, sizeof text, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<std::size_t>(size));
  }

  const test::ScratchDirectory directory_;
  UniqueFd socket_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ServiceManager manager_;
};

TEST_F(ServiceManagerTest, HearsWhatIsSaidAndTheEnvironmentIsClean) {
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_TRUE(manager_.notify("READY=1"));
  EXPECT_EQ(heard(), "READY=1");
}

TEST_F(ServiceManagerTest, AStatusIsOneShortLineWhateverItQuotes) {
  EXPECT_TRUE(manager_.notify_status("node 'x\nWATCHDOG=trigger\r\n' is unknown"));
  EXPECT_EQ(heard(), "STATUS=node 'x WATCHDOG=trigger  ' is unknown");
  EXPECT_TRUE(manager_.notify_status(std::string(100'000, 'y')));
  EXPECT_LE(heard().size(), ServiceManager::kLongestStatus + 7);
}

TEST_F(ServiceManagerTest, WhoDoesNotListenHasNotTakenIt) {
  int sent = 0;
  while (sent < 100'000 && manager_.notify("WATCHDOG=1")) ++sent;
  EXPECT_LT(sent, 100'000) << "its socket is full";
  while (!heard().empty()) {
  }
  EXPECT_TRUE(manager_.notify("READY=1"));
  EXPECT_TRUE(ServiceManager().notify("READY=1")) << "nobody is to hear it";
}

}  // namespace
}  // namespace shoal::supervisor
