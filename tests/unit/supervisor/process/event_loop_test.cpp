#include "supervisor/process/event_loop.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace shoal::supervisor {
namespace {

UniqueFd signalled() { return UniqueFd(::eventfd(1, EFD_CLOEXEC)); }

TEST(EventLoop, CallsTheHandlersOfWhatIsReadable) {
  EventLoop loop;
  const UniqueFd ready = signalled(), idle(::eventfd(0, EFD_CLOEXEC));
  int calls = 0;
  loop.watch(ready.get(), [&] { ++calls; });
  loop.watch(idle.get(), [&] { FAIL(); });
  loop.run_ready();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, DoesNotCallAHandlerThatAnEarlierOneForgot) {
  EventLoop loop;
  const UniqueFd first = signalled(), second = signalled();
  int calls = 0;
  loop.watch(first.get(), [&] {
    ++calls;
    loop.forget(first.get());
    loop.forget(second.get());
  });
  loop.watch(second.get(), [&] {
    ++calls;
    loop.forget(first.get());
    loop.forget(second.get());
  });
  loop.run_ready();
  loop.run_ready();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, AHandlerMayForgetItselfWhileItRuns) {
  EventLoop loop;
  const UniqueFd fd = signalled();
  auto alive = std::make_shared<int>(5);
  loop.watch(fd.get(), [&loop, &fd, alive] {
    loop.forget(fd.get());
    EXPECT_EQ(*alive, 5);
  });
  loop.run_ready();
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace shoal::supervisor
