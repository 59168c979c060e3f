#include "supervisor/process/event_loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace shoal::supervisor {
namespace {

UniqueFd signalled() { return UniqueFd(::eventfd(1, EFD_CLOEXEC)); }

TEST(EventLoop, CallsTheHandlersOfWhatIsReadable) {
  EventLoop loop;
  const UniqueFd ready = signalled(), idle(::eventfd(0, EFD_CLOEXEC));
  int calls = 0;
  ASSERT_TRUE(loop.watch(ready.get(), [&] { ++calls; }).ok());
  ASSERT_TRUE(loop.watch(idle.get(), [&] { FAIL(); }).ok());
  loop.run_ready();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, DoesNotCallAHandlerThatAnEarlierOneForgot) {
  EventLoop loop;
  const UniqueFd first = signalled(), second = signalled();
  int calls = 0;
  const auto forget_both = [&] {
    ++calls;
    loop.forget(first.get());
    loop.forget(second.get());
  };
  ASSERT_TRUE(loop.watch(first.get(), forget_both).ok());
  ASSERT_TRUE(loop.watch(second.get(), forget_both).ok());
  loop.run_ready();
  loop.run_ready();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, AHandlerMayForgetItselfWhileItRuns) {
  EventLoop loop;
  const UniqueFd fd = signalled();
  auto alive = std::make_shared<int>(5);
  const Status watched = loop.watch(fd.get(), [&loop, &fd, alive] {
    loop.forget(fd.get());
    EXPECT_EQ(*alive, 5);
  });
  ASSERT_TRUE(watched.ok());
  loop.run_ready();
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(EventLoop, WhatTheKernelCannotWaitForIsAnError) {
  EventLoop loop;
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(loop.watch(file.get(), [] { FAIL(); }).code(), StatusCode::kInternal);
  EXPECT_EQ(loop.watch(-1, [] { FAIL(); }).code(), StatusCode::kInternal);
  loop.run_ready();
}

}  // namespace
}  // namespace shoal::supervisor
