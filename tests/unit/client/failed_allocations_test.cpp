// A client in which an allocation fails: the call that needed it ends, and the others go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <new>

#include "client/src/arena.hpp"
#include "client/src/description.hpp"
#include "shoal/pool.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/client/fake_daemon.hpp"

namespace {
thread_local std::size_t failing_size = 0, failing_below = 0;  // the next allocation of such a size fails
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMayReplaceMalloc = false;  // the sanitizer's is there already
#else
constexpr bool kMayReplaceMalloc = true;
// libzmq's calls come here, too. Whoever calls free() gets the C library's, which knows what this returns.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) noexcept {
  if (size < failing_size || size >= failing_below) return __libc_malloc(size);
  failing_below = 0;
  errno = ENOMEM;
  return nullptr;
}
#endif

namespace shoal {
namespace {

using namespace std::chrono_literals;
using test::FakeDaemon;

constexpr auto kHour = 1h;  // a limit that a test does not wait for
constexpr auto kSoon = 5s;  // on a busy machine

class FailedAllocationsTest : public testing::Test {
 protected:
  FailedAllocationsTest() { connect(); }
  void connect(std::uint64_t arena_limit_bytes = PoolOptions().arena_limit_bytes,
               std::chrono::nanoseconds reconnect_timeout = 1ms) {
    auto pool = std::async(std::launch::async, [&] {
      return Pool::connect({.directory = scratch_.path(),
                            .arena_limit_bytes = arena_limit_bytes,
                            .reconnect_timeout = reconnect_timeout,
                            .control_timeout = kHour})
          .value();
    });
    daemon_.let_in();
    pool_.emplace(pool.get());
    auto known = std::async(std::launch::async, [&] { return pool_->describe("m").status(); });
    while (known.wait_for(0s) != std::future_status::ready) daemon_.receive(10ms);
    EXPECT_TRUE(known.get().ok());
  }
  /// pool.poll_once(), in which an allocation fails. Whether one did.
  bool poll_without(std::uint64_t number) {
    test::fail_allocation(number);
    try {
      pool_->poll_once();
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    return has_failed;
  }
  Prediction submit() { return pool_->submit("m", {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}); }

  const test::ScratchDirectory scratch_;
  FakeDaemon daemon_{scratch_.path(), 100};
  std::optional<Pool> pool_;
};

TEST_F(FailedAllocationsTest, WhenOneFailsInTheDriverAFollowerBecomesTheDriver) {
  test::for_each_allocation(1, [&](std::uint64_t number) {
    const Prediction first = submit();
    const std::uint64_t first_seq = daemon_.receive_request();
    auto driver = std::async(std::launch::async, [&] {
      test::fail_allocation(number);
      try {
        first.wait_for(500ms);
      } catch (const std::bad_alloc&) {
      }
      const bool has_failed = test::has_allocation_failed();
      test::fail_allocation(0);
      return has_failed;
    });
    ::poll(nullptr, 0, 20);
    const Prediction second = submit();
    const std::uint64_t second_seq = daemon_.receive_request();
    auto follower = std::async(std::launch::async, [&] { return second.wait_for(kHour); });
    ::poll(nullptr, 0, 20);
    daemon_.reply(first_seq);
    const bool has_failed = driver.get();
    daemon_.reply(second_seq);
    const bool has_ended = follower.wait_for(kSoon) == std::future_status::ready;
    EXPECT_TRUE(has_ended);
    while (follower.wait_for(1ms) != std::future_status::ready) pool_->poll_once();
    return has_failed;
  });
}

// A frame of libzmq takes 40 bytes more than the text. Nothing else has that size.
constexpr std::size_t kLongName = 100;
void fail_frame_of_question(std::string_view what) {
  const std::string_view json = R"({"model":"","what":""})";
  failing_size = json.size() + kLongName + what.size() + 40;
  failing_below = failing_size + 1;
}

TEST_F(FailedAllocationsTest, AQuestionThatFindsNoMemoryIsNotWaitedFor) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has replaced malloc()";
  const std::string name(kLongName, 'x');
  for (const bool describes : {false, true}) {
    auto call = std::async(std::launch::async, [&] {
      fail_frame_of_question(describes ? "describe" : "crashes");
      Status status = describes ? pool_->describe(name).status() : pool_->crashes(name).status();
      EXPECT_EQ(failing_below, 0u) << "the frame has another size: adapt the test";
      return status;
    });
    const bool has_ended = call.wait_for(kSoon) == std::future_status::ready;
    EXPECT_TRUE(has_ended);
    if (!has_ended) daemon_.drop_client();  // so that it ends
    const Status status = call.get();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string().substr(0, 200);
    if (!has_ended) return;
  }
  fail_frame_of_question("describe");
  const Prediction asked = pool_->submit(name, {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}});
  ASSERT_TRUE(asked.wait_for(kSoon)) << "it waits for a description that nobody asked for";
  EXPECT_EQ(asked.get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(asked.outcome().ran, Ran::kNo);
  const Prediction next = submit();
  EXPECT_GT(daemon_.receive_request(), 0u);
}

// They may not throw: the program would end.
TEST_F(FailedAllocationsTest, DestructorsNeedNoMemory) {
  test::for_each_allocation(1, [&](std::uint64_t number) {
    auto dropped = std::make_optional(submit());
    const Prediction other = submit();
    const std::uint64_t seq = daemon_.receive_request(), other_seq = daemon_.receive_request();
    daemon_.reply(other_seq);
    ::poll(nullptr, 0, 20);
    test::fail_allocation(number);
    dropped.reset();
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    daemon_.reply(seq);
    return has_failed;
  });
  test::for_each_allocation(1, [&](std::uint64_t number) {
    const Prediction sent = submit();
    daemon_.receive_request();
    auto asked = std::async(std::launch::async, [&] { return pool_->list().status(); });
    EXPECT_TRUE(daemon_.receive());
    test::fail_allocation(number);
    pool_.reset();
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_TRUE(sent.ready());
    EXPECT_EQ(sent.get().status().code(), StatusCode::kCancelled);
    EXPECT_EQ(asked.get().code(), StatusCode::kCancelled);
    connect();
    return has_failed;
  });
}

// Inputs of requests that were never made count no longer.
TEST_F(FailedAllocationsTest, ARequestWhoseInputsFindNoMemoryIsAnsweredSoAndLeavesTheRoomForFrames) {
  pool_.reset();
  connect(1);
  const Tensors large = {{"data", Tensor::create(DType::kUInt8, Shape{wire::kMaxFrameBytes / 8}).value()}};
  test::for_each_allocation(3, [&](std::uint64_t number) {
    Tensors inputs = large;
    test::fail_allocation(number);
    std::optional<Prediction> asked;
    try {
      asked = pool_->submit("m", std::move(inputs));
    } catch (const std::bad_alloc&) {  // there is not even a request
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    if (has_failed && asked && asked->ready()) {
      EXPECT_EQ(asked->get().status().code(), StatusCode::kFailedPrecondition) << asked->get().status().to_string();
    }
    if (asked && !asked->ready()) daemon_.reply(daemon_.receive_request());
    return has_failed && number < 100;
  });
  const Prediction next = pool_->submit("m", large);
  EXPECT_FALSE(next.ready()) << next.get().status().to_string();
}

// Also one that fails when its inputs are there already, and it is sent.
TEST_F(FailedAllocationsTest, ARequestThatIsNotSentLeavesTheRoomForFrames) {
  constexpr std::int64_t kMost = 1 << 20, kMoreThanHalf = kMost * 2 / 3;
  pool_.reset();
  daemon_.limit_messages(kMost);
  connect(1);
  const Tensor input = Tensor::create(DType::kUInt8, Shape{kMoreThanHalf}).value();
  test::for_each_allocation(5, [&](std::uint64_t number) {
    Tensors inputs{{"data", input}}, others{{"data", input}};
    test::fail_allocation(number);
    std::optional<Prediction> failed;
    try {
      failed.emplace(pool_->submit("m", std::move(inputs)));
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    if (const auto sent = daemon_.receive(30ms)) daemon_.reply(sent->seq);
    ::poll(nullptr, 0, 10);  // until the answer is there
    pool_->poll_once();
    const Prediction next = pool_->submit("m", std::move(others));
    const bool is_ready = next.ready();
    EXPECT_FALSE(is_ready) << next.get().status().to_string();
    if (!is_ready) daemon_.reply(daemon_.receive_request());
    EXPECT_TRUE(next.wait_for(kSoon));
    return has_failed;
  });
}

// Nobody could wait for it or cancel it.
TEST_F(FailedAllocationsTest, ARequestWithoutAHandleIsNotSentAndHoldsNoMemory) {
  constexpr std::int64_t kLarge = 1 << 20;  // submit() looks for answers after so many bytes
  const Tensor input = Tensor::create(DType::kUInt8, Shape{kLarge}).value();
  test::for_each_allocation(5, [&](std::uint64_t number) {
    const Prediction earlier = submit();
    daemon_.reply(daemon_.receive_request());
    ::poll(nullptr, 0, 10);  // until the answer is there
    Tensors inputs{{"data", input}};
    test::fail_allocation(number);
    std::optional<Prediction> asked;
    try {
      asked.emplace(pool_->submit("m", std::move(inputs)));
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    const auto sent = daemon_.receive(asked && !asked->ready() ? 10s : 30ms);
    EXPECT_TRUE(asked || !sent) << "it was sent";
    EXPECT_TRUE(asked || pool_->usage().inputs.used_bytes < kLarge) << "it holds its input";
    if (sent) daemon_.reply(sent->seq);
    EXPECT_TRUE(!asked || asked->wait_for(kSoon));
    return has_failed;
  });
}

TEST_F(FailedAllocationsTest, ARequestEndsAlthoughItsAnswerFindsNoMemory) {
  for (const bool has_output : {false, true}) {
    test::for_each_allocation(2, [&](std::uint64_t number) {
      const Prediction asked = submit();
      const std::uint64_t seq = daemon_.receive_request();
      has_output ? daemon_.reply_with_output(seq) : daemon_.reply(seq);
      ::poll(nullptr, 0, 10);  // until the answer is there
      const bool has_failed = poll_without(number);
      EXPECT_TRUE(asked.wait_for(kSoon)) << "its answer is lost";
      const Outcome outcome = asked.ready() ? asked.outcome() : Outcome();
      if (outcome.outputs.status().code() != StatusCode::kFailedPrecondition) {
        EXPECT_EQ(outcome.outputs.status().code(), has_output ? StatusCode::kOk : StatusCode::kInternal);
      }
      EXPECT_EQ(pool_->usage().inputs.used_bytes, 0u);
      return has_failed;
    });
  }
}

TEST_F(FailedAllocationsTest, RequestsExpireAlthoughTheirTextFindsNoMemory) {
  test::for_each_allocation(1, [&](std::uint64_t number) {
    const auto ask = [&] {
      return pool_->submit("other", {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}, {.timeout = 10ms});
    };
    const Prediction asked[] = {ask(), ask()};
    ::poll(nullptr, 0, 15);  // until their time is over
    const bool has_failed = poll_without(number);
    pool_->poll_once();
    EXPECT_EQ(pool_->usage().inputs.used_bytes, 0u) << "one keeps its slots";
    for (const Prediction& one : asked) {
      const bool has_ended = one.wait_for(kSoon);
      EXPECT_TRUE(has_ended);
      if (has_ended) {
        EXPECT_EQ(one.get().status().code(), StatusCode::kDeadlineExceeded) << one.get().status().to_string();
      }
    }
    return has_failed;
  });
}

// The JSON library cannot be tested with each allocation: it allocates when it destroys an object, and ends the program if it
// cannot. So these tests let one of a known size fail.
TEST_F(FailedAllocationsTest, RequestsEndAlthoughTheDescriptionFindsNoMemory) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has replaced malloc()";
  const auto ask = [&] { return pool_->submit("other", {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}); };
  const Prediction asked[] = {ask(), ask()};
  EXPECT_FALSE(daemon_.receive(20ms)) << "it only describes the model";
  failing_size = sizeof(client::Description) + 1;  // with the counters of a shared pointer
  failing_below = sizeof(client::Description) + 32;
  try {
    pool_->poll_once();
  } catch (const std::bad_alloc&) {
  }
  EXPECT_EQ(failing_below, 0u) << "no allocation had this size: adapt the test";
  for (const Prediction& one : asked) {
    ASSERT_TRUE(one.wait_for(kSoon)) << "nobody asks for the description";
    EXPECT_EQ(one.get().status().code(), StatusCode::kFailedPrecondition) << one.get().status().to_string();
  }
}

TEST_F(FailedAllocationsTest, AQuestionEndsAlthoughItsAnswerFindsNoMemory) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has replaced malloc()";
  const std::string answer = R"({"models": [")" + std::string(3000, 'x') + R"("]})";
  auto asked = std::async(std::launch::async, [&] {
    failing_size = answer.size() + 1;
    failing_below = answer.size() + 2;
    Status status;
    try {
      status = pool_->list().status();
    } catch (const std::bad_alloc&) {
    }
    EXPECT_EQ(failing_below, 0u) << "no allocation had this size: adapt the test";
    return status;
  });
  daemon_.answer(daemon_.receive()->seq, answer);
  EXPECT_EQ(asked.get().code(), StatusCode::kFailedPrecondition);
}

TEST_F(FailedAllocationsTest, RequestsEndOrAreSentAgainAlthoughTheEndOfTheirDaemonFindsNoMemory) {
  pool_.reset();
  connect(PoolOptions().arena_limit_bytes, kHour);
  test::for_each_allocation(3, [&](std::uint64_t number) {
    const Prediction asked[] = {submit(), submit(), submit()};
    for (std::size_t i = 0; i < std::size(asked); ++i) daemon_.receive_request();
    daemon_.drop_client();
    ::poll(nullptr, 0, 10);  // until the pool looks whether the daemon lives
    const bool has_failed = poll_without(number);
    auto next = std::async(std::launch::async, [&] { daemon_.let_in(); });
    EXPECT_TRUE(FakeDaemon::comes(
        [&] {
          pool_->poll_once();
          if (next.wait_for(1ms) != std::future_status::ready) return false;
          if (const auto sent = daemon_.receive(1ms)) daemon_.reply(sent->seq);
          return std::ranges::all_of(asked, [](const Prediction& one) { return one.ready(); });
        },
        kSoon))
        << "one is lost";
    return has_failed;
  });
}

TEST_F(FailedAllocationsTest, ANameThatNoModelCanHaveIsRefusedAtOnce) {
  const std::string longest(kLongestModelName, 'x'), longer = longest + 'x';
  const auto input = [] { return Tensors{{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}; };
  const Prediction asked = pool_->submit(longer, input());
  ASSERT_TRUE(asked.ready());
  const Status refusals[] = {
      asked.get().status(),           pool_->describe(longer).status(),         pool_->crashes(longer).status(),
      pool_->trace(longer).status(),  pool_->load(longer, "/nowhere").status(), pool_->reload(longer).status(),
      pool_->unload(longer).status(), pool_->scale(longer, 1).status(),         pool_->drain(longer).status()};
  for (const Status& refusal : refusals) {
    EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refusal.message().find("at most 100"), std::string::npos) << refusal.to_string();
  }
  EXPECT_FALSE(daemon_.receive(20ms)) << "nothing was sent";
  EXPECT_FALSE(pool_->submit(longest, input()).ready());
}

// Names of requests whose time is over before there is a daemon.
TEST_F(FailedAllocationsTest, NamesTakeNoMemoryWhileThereIsNoDaemon) {
  constexpr std::uint64_t kNames = 1000;
  pool_.reset();
  connect(1 << 20, kHour);
  daemon_.drop_client();
  const auto ask = [&](std::uint64_t version) {
    const Tensors none;
    const Prediction asked = pool_->submit(std::string(100, 'x'), none, {.timeout = 100us, .version = version});
    EXPECT_TRUE(asked.wait_for(kSoon));
    EXPECT_EQ(asked.get().status().code(), StatusCode::kDeadlineExceeded) << asked.get().status().to_string();
  };
  ask(1);
  const test::AllocatedPeak peak;
  for (std::uint64_t i = 0; i < kNames; ++i) ask(2 + i);
  EXPECT_LT(peak.bytes(), kNames * 100) << "bytes are kept of each";
}

// Likewise while it stands still. It is asked for a description again only when it has answered for others.
TEST_F(FailedAllocationsTest, NamesTakeLittleMemoryWhileTheDaemonStandsStill) {
  constexpr std::uint64_t kNames = 20'000, kMostKept = 6 << 20;
  const auto ask = [&](std::uint64_t version) {
    return pool_->submit(std::string(100, 'x'), {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}},
                         {.timeout = version % 100 == 0 ? 100us : 0us, .version = version});
  };
  const test::AllocatedPeak peak;
  for (std::uint64_t i = 1; i <= kNames; ++i) {
    const Prediction asked = ask(i);
    EXPECT_TRUE(i % 100 != 0 || asked.wait_for(kSoon));
  }
  EXPECT_LT(peak.bytes(), kMostKept);
  const Prediction refused = ask(kNames + 1), known = submit();
  ASSERT_TRUE(refused.ready());
  EXPECT_EQ(refused.get().status().code(), StatusCode::kOverloaded) << refused.get().status().to_string();
  EXPECT_EQ(pool_->describe("other").status().code(), StatusCode::kOverloaded);
  EXPECT_FALSE(known.ready());
  daemon_.reply(daemon_.receive_request());  // it describes all others before
  EXPECT_TRUE(known.wait_for(kSoon));
  const Prediction next = ask(kNames + 1);
  EXPECT_TRUE(FakeDaemon::comes([&] {
    if (const auto sent = daemon_.receive(1ms)) daemon_.reply(sent->seq);
    return next.ready();
  }));
  EXPECT_EQ(next.get().status().code(), StatusCode::kInternal) << next.get().status().to_string();
}

TEST(FailedAllocations, ASlotThatIsNotMadeTakesNoRoom) {
  const auto arena = client::Arena::create("test", 1 << 20, Seals::kOneWriter).value();
  test::for_each_allocation(1, [&](std::uint64_t number) {
    test::fail_allocation(number);
    bool has_failed = false;
    try {
      (void)arena->allocate(1000, /*is_loan=*/true);
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    test::fail_allocation(0);
    EXPECT_EQ(arena->use().used_bytes, 0u);
    EXPECT_EQ(arena->use().loans, 0u);
    return has_failed;
  });
}

}  // namespace
}  // namespace shoal
