#include "supervisor/service_manager.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "shm/base/unique_fd.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

class ServiceManagerTest : public testing::Test {
 protected:
  ServiceManagerTest() {
    EXPECT_TRUE(socket_);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    manager_ = ServiceManager::from_environment();
  }
  std::string heard() const {
    char text[8192];
    const ssize_t size = ::recv(socket_.get(), text, sizeof text, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<std::size_t>(size));
  }

  const test::ScratchDirectory directory_;
  const std::string path_ = directory_.path("notify");
  const UniqueFd socket_ = test::bound_socket(path_, SOCK_DGRAM);
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

TEST_F(ServiceManagerTest, AManagerThatIsGoneCountsAsNotified) {
  std::filesystem::remove(path_);
  EXPECT_TRUE(manager_.notify("READY=1"));
  EXPECT_TRUE(test::bound_socket(path_, SOCK_DGRAM));  // and closed: nobody reads there any more
  EXPECT_TRUE(manager_.notify("READY=1"));
}

TEST_F(ServiceManagerTest, AManagerThatDoesNotReadDoesNotCountAsNotified) {
  int sent = 0;
  while (sent < 100'000 && manager_.notify("WATCHDOG=1")) ++sent;
  EXPECT_LT(sent, 100'000) << "its socket is full";
  while (!heard().empty()) {
  }
  EXPECT_TRUE(manager_.notify("READY=1"));
  EXPECT_TRUE(ServiceManager().notify("READY=1")) << "nobody is to hear it";
}

TEST_F(ServiceManagerTest, ItIsReadyOnceAtTheFirstSettledState) {
  Timers timers;
  LifeReports reports(manager_, timers);
  reports.state("loading a", false);
  EXPECT_EQ(heard(), "STATUS=loading a");
  reports.state("serving a", true);
  EXPECT_EQ(heard(), "STATUS=serving a");
  EXPECT_EQ(heard(), "READY=1");
  reports.state("serving a", true);
  EXPECT_EQ(heard(), "") << "it has been said";
  reports.reloading();
  EXPECT_EQ(heard().rfind("RELOADING=1\nMONOTONIC_USEC=", 0), 0U);
  reports.state("loading b", false);
  EXPECT_EQ(heard(), "STATUS=loading b");
  EXPECT_EQ(heard(), "");
  reports.state("loading b", true);
  EXPECT_EQ(heard(), "READY=1");
}

// systemd would take the service for one that runs again.
TEST_F(ServiceManagerTest, ItIsNotReadyAnyMoreWhenItStops) {
  Timers timers;
  LifeReports reports(manager_, timers);
  reports.state("loading a", false);
  EXPECT_EQ(heard(), "STATUS=loading a");
  reports.draining();
  EXPECT_EQ(heard().rfind("STOPPING=1", 0), 0U);
  reports.state("serving a", true);
  EXPECT_EQ(heard(), "STATUS=serving a");
  EXPECT_EQ(heard(), "");
  reports.reloading();
  EXPECT_EQ(heard(), "");
}

TEST_F(ServiceManagerTest, WhatItsSocketHasNoRoomForIsSentAgain) {
  Timers timers;
  LifeReports reports(manager_, timers);
  while (manager_.notify("WATCHDOG=1")) {
  }
  reports.state("serving a", true);
  while (!heard().empty()) {
  }
  ASSERT_TRUE(timers.next_ns());
  timers.run_due(*timers.next_ns());
  EXPECT_EQ(heard(), "STATUS=serving a");
  EXPECT_EQ(heard(), "READY=1");
  EXPECT_FALSE(timers.next_ns()) << "nothing is left to say";
}

}  // namespace
}  // namespace shoal::supervisor
