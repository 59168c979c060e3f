#include "supervisor/process/sent_pidfd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/child_process.hpp"
#include "tests/unit/supervisor/process/puppet.hpp"

namespace shoal::supervisor {
namespace {

using namespace std::chrono_literals;

/// Locks the epoll descriptor for as long as this process lives: the kernel holds its lock while it writes the events, and
/// writing to this page takes for ever. Returns if this process may not have such a page.
void lock_for_ever(int epoll) {
  const UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register missing{
      .range = {reinterpret_cast<std::uintptr_t>(page), page_bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  if (::ioctl(faults.get(), UFFDIO_API, &api) != 0 || ::ioctl(faults.get(), UFFDIO_REGISTER, &missing) != 0) return;
  ::epoll_wait(epoll, static_cast<epoll_event*>(page), 1, -1);
}

TEST(SentPidfd, ADescriptorWhoseOwnerLocksItIsRefusedAtOnce) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC)), event(::eventfd(1, EFD_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &readable), 0);
  const pid_t owner = test::start_child([&] {
    lock_for_ever(epoll.get());
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
