#include "shm/base/spare_threads.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>

#include "tests/support/child_process.hpp"

namespace shoal {
namespace {

// A user who has no other process, so the limit is ours alone. The other tests run at the same time.
uid_t nobody_else() { return static_cast<uid_t>(61'000 + ::getpid() % 3'000); }

/// Runs `check` in a child that may have `most` threads, the first one included.
bool holds_with_threads(rlim_t most, const std::function<bool()>& check) {
  return test::exit_code_of([&, user = nobody_else()] {
           const rlimit both{most, most};
           if (::setrlimit(RLIMIT_NPROC, &both) != 0 || ::setresuid(user, user, user) != 0) return 2;
           return check() ? 0 : 1;
         }) == 0;
}

// More than the stacks of the probes have room for. Each thread has them there.
thread_local char variables_of_a_thread[128 * 1024];

TEST(SpareThreads, MayHaveMoreVariablesThanASmallStackHolds) {
  variables_of_a_thread[0] = 1;
  const Status spare = check_spare_threads(2);
  EXPECT_TRUE(spare.ok()) << spare.to_string();
}

class SpareThreadsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user who has no other threads";
  }
};

TEST_F(SpareThreadsTest, AsManyAsMayBeStartedAndNoMore) {
  EXPECT_TRUE(holds_with_threads(5, [] { return check_spare_threads(4).ok(); }));
  EXPECT_TRUE(holds_with_threads(5, [] {
    const Status too_many = check_spare_threads(5);
    return too_many.code() == StatusCode::kUnavailable && too_many.message().find("ulimit -u") != std::string::npos;
  }));
  EXPECT_TRUE(check_spare_threads(0).ok());
}

// What follows may start as many threads at once.
TEST_F(SpareThreadsTest, AreNotCountedAnyMoreAfterwards) {
  EXPECT_TRUE(holds_with_threads(5, [] {
    for (int i = 0; i < 200; ++i) {
      if (!check_spare_threads(4).ok()) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace shoal
