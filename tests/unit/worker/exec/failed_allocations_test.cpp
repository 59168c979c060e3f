// What is left of the exec folder's state when one allocation fails: each of them in turn.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "shm/base/errors.hpp"
#include "tests/support/allocations.hpp"
#include "tests/unit/worker/exec/bodies_graphs.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/exec/program_cache.hpp"
#include "worker/exec/weight_store.hpp"

namespace shoal::worker {
namespace {

using namespace std::chrono_literals;
using Answer = Result<std::shared_ptr<const Program>>;

constexpr auto kDeadline = 10s;                                  // of what happens at once
constexpr std::size_t kProgramBytes = 10'000, kBudget = 25'000;  // room for two
const std::string kKey = "a key that is too long to be stored within the string object itself";

Answer compiled() {
  Plan plan;
  plan.privates.push_back({"w", {DType::kFloat32}, AlignedBytes::allocate(kProgramBytes)});
  return std::shared_ptr<const Program>(std::make_shared<const PlannedProgram>(std::move(plan), nullptr));
}

/// Asks for a program on a thread of its own, which stays behind if it is never answered.
struct Asker {
  Asker(std::shared_ptr<ProgramCache> cache, std::string key) {
    std::packaged_task<Answer()> task([cache = std::move(cache), key = std::move(key), tid = tid_] {
      *tid = ::gettid();
      return cache->get(key, compiled);
    });
    answer_ = task.get_future();
    std::thread(std::move(task)).detach();
  }
  /// Until the thread sleeps, that is, waits for somebody.
  void wait_until_it_waits() const {
    const auto limit = std::chrono::steady_clock::now() + kDeadline;
    for (char state = 'R'; state != 'S' && std::chrono::steady_clock::now() < limit; std::this_thread::yield()) {
      std::ifstream stat("/proc/self/task/" + std::to_string(*tid_) + "/stat");
      std::string pid, name;
      if (*tid_ != 0) stat >> pid >> name >> state;
    }
  }
  bool is_answered() const { return answer_.wait_for(kDeadline) == std::future_status::ready; }
  Answer answer() { return answer_.get(); }

 private:
  std::shared_ptr<std::atomic<pid_t>> tid_ = std::make_shared<std::atomic<pid_t>>(0);
  std::future<Answer> answer_;
};

/// Has `compile` called by a get() in which allocation `number` fails, while another thread waits for its outcome.
/// Returns whether an allocation failed.
bool try_with_failure(std::uint64_t number, const ProgramCache::Compile& compile) {
  const auto cache = std::make_shared<ProgramCache>(kBudget);
  for (const char* key : {"a", "b"}) EXPECT_TRUE(cache->get(key, compiled).ok());
  std::optional<Asker> waiter;
  test::fail_allocation(number);
  try {
    (void)cache->get(kKey, [&] {
      const test::AllocationsSucceed in_here;
      waiter.emplace(cache, kKey);
      waiter->wait_until_it_waits();
      return compile();
    });
  } catch (const std::bad_alloc&) {
  }
  const bool has_failed = test::has_allocation_failed();
  test::fail_allocation(0);
  if (waiter && !waiter->is_answered()) ADD_FAILURE() << "who waited is never told";
  EXPECT_EQ(cache->counters().compiling, 0u);
  for (int again = 0; again < 2; ++again) {
    Asker next(cache, kKey);
    if (!next.is_answered()) {
      ADD_FAILURE() << "the next request is never answered";
      return false;
    }
    EXPECT_TRUE(next.answer().ok());
  }
  EXPECT_EQ(cache->find(kKey), *cache->get(kKey, compiled));
  EXPECT_EQ(cache->counters().programs, 2u);
  EXPECT_LE(cache->counters().bytes, kBudget);
  return has_failed;
}

TEST(FailedAllocations, LeaveTheCacheOfProgramsUsable) {
  // An entry, two keys and a place in the map at least.
  test::for_each_allocation(4, [](std::uint64_t number) { return try_with_failure(number, compiled); });
}

TEST(FailedAllocations, LeaveTheCacheUsableWhenACompilationFails) {
  const auto fails = []() -> Answer { return invalid_argument("no program has such a shape, says this test's model"); };
  test::for_each_allocation(4, [&](std::uint64_t number) { return try_with_failure(number, fails); });
}

/// Is `make`'s text whole whenever there is one?
void expect_whole(const std::function<std::string()>& make) {
  const std::string whole = make();
  test::for_each_allocation(1, [&](std::uint64_t number) {
    std::string text = whole;
    test::fail_allocation(number);
    try {
      text = make();
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_EQ(text, whole);
    return has_failed;
  });
}

// A key that was cut would find another program, and choices that were cut would be packed.
TEST(FailedAllocations, CutNoText) {
  expect_whole([] { return format("{} {}", kKey, std::string(2000, 'x')); });
  Choices choices{.layout = "blocked"};
  for (int node = 0; node < 3; ++node) choices.algorithms["n" + std::to_string(node)] = kKey;
  expect_whole([&] { return choices.to_text(); });
}

TEST(FailedAllocations, AddNothingToTheWeights) {
  test::for_each_allocation(1, [](std::uint64_t number) {
    const WeightForm plain{.dtype = DType::kUInt8};
    WeightStore store{WeightIdentity{}};
    const auto zeros = [](const ConstantChain&, const WeightForm&, std::span<std::byte>) { return Status(); };
    const auto named = [](const std::string& name) { return ConstantChain{.source = NamedConstant{name, {}}}; };
    const ConstantChain first = named("first"), second = named(kKey);
    EXPECT_EQ(store.add(first, plain, 64, zeros), 0);
    test::fail_allocation(number);
    try {
      (void)store.add(second, plain, 64, zeros);
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_EQ(store.find(kKey, plain), has_failed ? -1 : 1);
    EXPECT_EQ(store.add(second, plain, 64, zeros), 1);
    EXPECT_TRUE(store.seal().ok());
    EXPECT_NE(store.address(1), nullptr);
    return has_failed;
  });
}

// The first run gives addresses to the steps of the program, and to those of bodies within bodies.
TEST(FailedAllocations, OfARunWithBodiesLeaveTheContextUsable) {
  const std::vector<TensorSpec> inputs{testing::spec("condition", {1}), testing::spec("other", {1}), testing::spec("data", {2})};
  const auto model = testing::load(testing::nested_branches(), inputs);
  const auto program = model->program(inputs).value();
  Context whole;
  const auto want = testing::run(*program, whole);
  test::for_each_allocation(20, [&](std::uint64_t number) {
    Context context;
    test::fail_allocation(number);
    try {
      (void)testing::run(*program, context);
    } catch (const std::bad_alloc&) {
    } catch (const Error&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_TRUE(testing::same_bits(testing::run(*program, context), want));
    return has_failed;
  });
}

}  // namespace
}  // namespace shoal::worker
