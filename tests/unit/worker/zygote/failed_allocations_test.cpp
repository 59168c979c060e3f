// A zygote whose allocations fail.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/status_page.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/zygote/zygote.hpp"

namespace shoal::worker {
namespace {

using wire::ControlKind;
using wire::ControlMessage;

pid_t test_process = 0;

ControlMessage receive(const UniqueFd& socket) {
  auto message = wire::receive_control(socket.get(), /*wait=*/true);
  return message.ok() && *message ? std::move(**message) : ControlMessage();
}

// The supervisor must hear of a worker that was forked.
TEST(FailedAllocations, NoneIsNeededBetweenAForkAndItsAnswer) {
  test_process = ::getpid();
  const auto fail_in_zygote = [] {
    if (::getpid() != test_process) test::fail_allocations_from(1);
  };
  const auto succeed = [] { test::fail_allocation(0); };
  const test::ScratchDirectory scratch;
  const std::string lanes = wire::lanes_directory(scratch.path());
  std::filesystem::create_directory(lanes);
  auto zygote = wire::make_control_pair().value();
  const pid_t pid = ::fork();
  if (pid == 0) {
    zygote.ours.reset();
    ::pthread_atfork(nullptr, fail_in_zygote, succeed);
    ::signal(SIGUSR1, [](int) { test::fail_allocation(0); });
    ::setenv("SHOAL_DIR", scratch.path().c_str(), 1);  // the daemon does so
    static char title[] = "zygote-test";
    static char* argv[] = {title};
    run_zygote(std::move(zygote.theirs), ProcessTitle(1, argv));
  }
  zygote.theirs.reset();
  const ControlMessage load{.kind = ControlKind::kLoad, .text = R"({"name": "echo", "path": "builtin:identity"})"};
  ASSERT_TRUE(wire::send_control(zygote.ours.get(), load).ok());
  ASSERT_EQ(receive(zygote.ours).kind, ControlKind::kLoaded);

  auto worker = wire::make_control_pair().value();
  ControlMessage fork{.kind = ControlKind::kFork, .id = 4, .a = 1, .text = lanes + "/w4-name"};
  fork.fds.push_back(std::move(worker.theirs));
  fork.fds.push_back(wire::make_status_page(1).value());
  ASSERT_TRUE(wire::send_control(zygote.ours.get(), fork).ok());
  fork.fds.clear();
  EXPECT_EQ(receive(zygote.ours).kind, ControlKind::kForked);
  ::kill(pid, SIGUSR1);
  EXPECT_EQ(receive(worker.ours).kind, ControlKind::kReady);
  worker.ours.reset();
  EXPECT_EQ(receive(zygote.ours).kind, ControlKind::kExited);
  zygote.ours.reset();
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace shoal::worker
