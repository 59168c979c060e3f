#include "supervisor/process/sent_pidfd.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/child_process.hpp"
#include "tests/support/late_page.hpp"
#include "tests/unit/supervisor/process/puppet.hpp"

namespace shoal::supervisor {
namespace {

using namespace std::chrono_literals;

TEST(SentPidfd, ADescriptorWhoseOwnerLocksItIsRefusedAtOnce) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC)), event(::eventfd(1, EFD_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &readable), 0);
  // The kernel holds the lock of an epoll descriptor while it writes the events, and here that takes as long as the owner lives.
  const pid_t owner = test::start_child([&] {
    const test::LatePage page;
    if (page.is_late()) ::epoll_wait(epoll.get(), static_cast<epoll_event*>(page.bytes()), 1, -1);
    return 77;
  });
  const auto waits_for_its_page = [&] {
    std::ifstream file(format("/proc/{}/wchan", owner));
    std::string where;
    return std::getline(file, where) && where == "handle_userfault";
  };
  const UniqueFd end = pidfd_of(owner);
  for (int ms = 0; ms < 5000 && !is_dead(end) && !waits_for_its_page(); ++ms) std::this_thread::sleep_for(1ms);
  if (!waits_for_its_page()) {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
    GTEST_SKIP() << "this process may not use userfaultfd, or may not see that the other one waits for it";
  }
  std::atomic<bool> is_checked = false;
  Status checked;
  {
    const std::jthread checker([&] {
      checked = check_sent_pidfd(epoll, 1, Child{}).status();
      is_checked = true;
    });
    for (int ms = 0; ms < 5000 && !is_checked; ++ms) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_checked) << "it waits for the descriptor's owner";
    ::kill(owner, SIGKILL);
  }
  EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(test::exit_code_of(owner), 128 + SIGKILL);
}

}  // namespace
}  // namespace shoal::supervisor
