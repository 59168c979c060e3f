#include "worker/exec/program_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <new>
#include <thread>

#include "shm/base/errors.hpp"
#include "worker/exec/planned_program.hpp"

namespace shoal::worker {
namespace {

// A program that does nothing and holds that much memory.
std::shared_ptr<const Program> program_of(std::size_t bytes) {
  Plan plan;
  plan.privates.push_back({"w", {DType::kFloat32}, AlignedBytes::allocate(bytes)});
  return std::make_shared<const PlannedProgram>(std::move(plan), nullptr);
}

ProgramCache::Compile compiles(std::size_t bytes) {
  return [bytes] { return Result(program_of(bytes)); };
}

TEST(ProgramCache, StaysWithinItsBudgetAndForgetsTheLeastRecentlyUsed) {
  ProgramCache cache(25'000);
  for (const char* key : {"a", "b"}) ASSERT_TRUE(cache.get(key, compiles(10'000)).ok());
  ASSERT_TRUE(cache.get("a", compiles(10'000)).ok());  // now b is the older
  ASSERT_TRUE(cache.get("c", compiles(10'000)).ok());
  EXPECT_LE(cache.counters().bytes, 25'000U);
  EXPECT_EQ(cache.counters().programs, 2U);
  int compiled = 0;
  const auto counting = [&compiled] {
    ++compiled;
    return Result(program_of(10'000));
  };
  ASSERT_TRUE(cache.get("a", counting).ok());
  EXPECT_EQ(compiled, 0);
  ASSERT_TRUE(cache.get("b", counting).ok());
  EXPECT_EQ(compiled, 1);
}

TEST(ProgramCache, ACompilationThatThrowsIsForgottenLikeOneThatFails) {
  ProgramCache cache(25'000);
  const auto without_memory = []() -> Result<std::shared_ptr<const Program>> { throw std::bad_alloc(); };
  EXPECT_THROW((void)cache.get("a", without_memory), std::bad_alloc);
  EXPECT_EQ(cache.counters().failed, 1U);
  EXPECT_EQ(cache.counters().compiling, 0U);
  EXPECT_TRUE(cache.get("a", compiles(100)).ok());
}

/// A program whose destructor finds out whether another thread can use the cache meanwhile.
class ProgramThatLooksBack final : public Program {
 public:
  ProgramThatLooksBack(ProgramCache& cache, std::atomic<bool>& is_open) : cache_(cache), is_open_(is_open) {}
  ~ProgramThatLooksBack() override {
    auto other = std::async(std::launch::async, [this] { (void)cache_.find("another"); });
    is_open_ = other.wait_for(std::chrono::seconds(3)) == std::future_status::ready;
    looker_ = std::move(other);
  }
  Status run(Context&, std::span<const TensorView>, std::span<TensorView>) const override { return {}; }
  std::size_t resident_bytes() const override { return 10'000; }

  static std::future<void> take_looker() { return std::move(looker_); }

 private:
  ProgramCache& cache_;
  std::atomic<bool>& is_open_;
  static inline std::future<void> looker_;  ///< outlives the program: its thread may wait for whoever destroys it
};

// The thread that compiles has a low priority, and lanes may not wait for it.
TEST(ProgramCache, DestroysProgramsAfterItsLockIsOpen) {
  ProgramCache cache(15'000);
  std::atomic<bool> is_open{false};
  const auto looks_back = [&] {
    return Result(std::shared_ptr<const Program>(std::make_shared<ProgramThatLooksBack>(cache, is_open)));
  };
  ASSERT_TRUE(cache.get("first", looks_back).ok());
  ASSERT_TRUE(cache.get("second", compiles(10'000)).ok());
  ProgramThatLooksBack::take_looker().wait();
  EXPECT_TRUE(is_open) << "evicted programs are destroyed under the cache's lock";

  is_open = false;
  cache.pin("second", *looks_back());
  ProgramThatLooksBack::take_looker().wait();
  EXPECT_TRUE(is_open) << "so is one that was there already";
}

TEST(ProgramCache, KeepsConfiguredProgramsWhateverComes) {
  ProgramCache cache(1);
  const auto configured = program_of(10'000);
  cache.pin("configured", configured);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(cache.get(key, compiles(10'000)).ok());
  EXPECT_EQ(*cache.get("configured", compiles(1)), configured);
  EXPECT_EQ(cache.counters().pinned, 1U);
  EXPECT_EQ(cache.counters().programs, 1U);  // the newest
}

TEST(ProgramCache, CompilesOnceForAllWhoAskAtTheSameTime) {
  ProgramCache cache(1 << 20);
  std::atomic<int> compiled{0};
  std::latch all_here(4);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      all_here.arrive_and_wait();
      const auto found = cache.get("shape", [&] {
        ++compiled;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // time for the others to arrive while it is compiled
        return Result(program_of(1));
      });
      EXPECT_TRUE(found.ok());
    });
  }
  threads.clear();
  EXPECT_EQ(compiled, 1);
}

TEST(ProgramCache, AShapeThatIsHereDoesNotWaitForAnothersCompilation) {
  ProgramCache cache(1 << 20);
  ASSERT_TRUE(cache.get("here", compiles(1)).ok());
  std::latch compiling(1), found(1);
  std::jthread slow([&] {
    (void)cache.get("slow", [&] {
      compiling.count_down();
      found.wait();  // ends only when the other shape has been found meanwhile
      return Result(program_of(1));
    });
  });
  compiling.wait();
  EXPECT_TRUE(cache.get("here", compiles(1)).ok());
  found.count_down();
}

TEST(ProgramCache, TellsAFailureAndTriesAgainNextTime) {
  ProgramCache cache(1 << 20);
  const auto fails = []() -> Result<std::shared_ptr<const Program>> { return invalid_argument("no such shape"); };
  EXPECT_EQ(cache.get("shape", fails).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(cache.get("shape", compiles(1)).ok());
}

}  // namespace
}  // namespace shoal::worker
