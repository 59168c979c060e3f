// Threads of one pool: the one that drives its sockets, those that wait for it, and those that submit meanwhile.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "shoal/pool.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/client/fake_daemon.hpp"

namespace {

// A thread that a descriptor wakes from ppoll() is late: it looks again when this is false.
std::atomic<bool> holds_wakeups{false};
std::atomic<int> late_threads{0};

int real_ppoll(pollfd* fds, nfds_t count, const timespec* limit) {
  timespec left = limit ? *limit : timespec{};  // the kernel changes it
  return static_cast<int>(::syscall(SYS_ppoll, fds, count, limit ? &left : nullptr, nullptr, 0));
}

std::atomic<bool> holds_growth{false}, is_growing{false};  // an arena that grows waits until this is false

std::atomic<std::time_t> later_s{0};  // what the clock is ahead

}  // namespace

// These replace those of libc.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto rc = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_MONOTONIC) now->tv_sec += later_s;
  return rc;
}

extern "C" int fallocate(int fd, int mode, off_t offset, off_t size) {
  while (holds_growth) {
    is_growing = true;
    ::usleep(1000);
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size));
}

// A thread that is woken looks at its descriptors again, and sleeps on if none is ready, as the kernel does.
extern "C" int ppoll(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t*) {
  while (true) {
    const int ready = real_ppoll(fds, count, limit);
    if (ready <= 0 || !holds_wakeups) return ready;
    ++late_threads;
    while (holds_wakeups) ::usleep(1000);
    const timespec none{};
    if (const int still = real_ppoll(fds, count, &none); still != 0) return still;
  }
}

namespace shoal {
namespace {

using namespace std::chrono_literals;
using test::FakeDaemon;

constexpr auto kHour = 1h;  // a limit that a test does not wait for
constexpr auto kSoon = 5s;  // on a busy machine

/// A thread that runs `call`. Its constructor returns when the thread sleeps in there.
class Sleeper {
 public:
  explicit Sleeper(const std::function<bool()>& call) {
    std::promise<std::pair<pid_t, pthread_t>> started;
    done_ = std::async(std::launch::async, [&, call] {
      started.set_value({static_cast<pid_t>(::syscall(SYS_gettid)), ::pthread_self()});
      return call();
    });
    std::tie(tid_, thread_) = started.get_future().get();
    EXPECT_TRUE(FakeDaemon::comes([&] { return state() == 'S'; }));
  }
  pthread_t thread() const { return thread_; }
  bool ends() { return done_.wait_for(kSoon) == std::future_status::ready; }
  /// False if it does not end soon. Then `pool` is polled until it does.
  bool ends(Pool& pool) {
    if (ends()) return true;
    while (done_.wait_for(1ms) != std::future_status::ready) pool.poll_once();
    return false;
  }
  bool result() { return done_.get(); }

 private:
  char state() const {
    std::ifstream file("/proc/self/task/" + std::to_string(tid_) + "/stat");
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(") ");
    return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
  }

  std::future<bool> done_;
  pid_t tid_ = 0;
  pthread_t thread_{};
};

std::atomic<bool> is_in_handler{false}, may_leave_handler{false};

void wait_in_handler(int) {
  is_in_handler = true;
  while (!may_leave_handler) ::usleep(1000);
}

constexpr std::int64_t kOutputBytes = 1 << 20;  // more than an arena has at first

class PoolThreadsTest : public testing::Test {
 protected:
  void describe(Pool& pool) {
    auto known = std::async(std::launch::async, [&] { return pool.describe("m").status(); });
    while (known.wait_for(0s) != std::future_status::ready) daemon_.receive(10ms);
    ASSERT_TRUE(known.get().ok());
  }
  Pool connect(std::chrono::nanoseconds reconnect_timeout = kHour, std::chrono::nanoseconds session_idle = kHour) {
    auto pool = std::async(std::launch::async, [&] {
      return Pool::connect({.directory = scratch_.path(),
                            .reconnect_timeout = reconnect_timeout,
                            .control_timeout = kHour,
                            .session_idle = session_idle})
          .value();
    });
    daemon_.let_in();
    return pool.get();
  }
  /// The output of "m" is then a state, which is also its second input.
  void describe_with_state() {
    const std::string shape = R"("dtype": "uint8", "shape": [-1, )" + std::to_string(kOutputBytes) + "]}";
    daemon_.describe_as(
        R"({"name": "m", "model_id": 1, "signature": 1, "inputs": [{"name": "data", "dtype": "uint8", "shape": [-1]},
                           {"name": "h_in", )" +
        shape + R"(], "outputs": [{"name": "h_out", )" + shape + R"(], "state": [{"out": "h_out", "in": "h_in", "shape": [-1, )" +
        std::to_string(kOutputBytes) + "]}]}");
  }
  /// Loans, so that the next state makes the input arena grow.
  static std::vector<Tensor> fill_inputs(Pool& pool) {
    std::vector<Tensor> loans;
    for (ArenaUsage use = pool.usage().inputs; use.allocated_bytes - use.used_bytes >= kOutputBytes; use = pool.usage().inputs)
      loans.push_back(pool.loan(DType::kUInt8, Shape{kOutputBytes}).value());
    return loans;
  }
  static Tensors input() { return {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}; }

  const test::ScratchDirectory scratch_;
  FakeDaemon daemon_{scratch_.path(), kOutputBytes};
};

// Its answer comes, and another thread sends, after the driver has left and before the follower runs.
TEST_F(PoolThreadsTest, AFollowerThatBecomesTheDriverLateMissesNoAnswer) {
  Pool pool = connect();
  describe(pool);
  is_in_handler = may_leave_handler = false;
  struct sigaction action {};
  action.sa_handler = wait_in_handler;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);

  const Prediction first = pool.submit("m", input());
  const std::uint64_t first_seq = daemon_.receive_request();
  Sleeper driver([&] { return first.wait_for(kHour); });
  const Prediction second = pool.submit("m", input());
  const std::uint64_t second_seq = daemon_.receive_request();
  Sleeper follower([&] { return second.wait_for(kHour); });

  ASSERT_EQ(::pthread_kill(follower.thread(), SIGUSR1), 0);
  ASSERT_TRUE(FakeDaemon::comes([&] { return is_in_handler.load(); }));
  daemon_.reply(first_seq);
  EXPECT_TRUE(driver.ends(pool));
  daemon_.reply(second_seq);
  std::vector<Prediction> others;
  for (int i = 0; i < 20; ++i) {  // fewer than after which a sending thread looks for answers
    others.push_back(pool.submit("m", input()));
    std::this_thread::sleep_for(10ms);
  }
  may_leave_handler = true;
  EXPECT_TRUE(follower.ends(pool)) << "its answer has come";
}

TEST_F(PoolThreadsTest, AnswersArriveWhileTheOutputArenaGrows) {
  Pool pool = connect();
  describe(pool);
  const Prediction first = pool.submit("m", input());
  const std::uint64_t seq = daemon_.receive_request();
  Sleeper driver([&] { return first.wait_for(kHour); });
  is_growing = false;
  holds_growth = true;
  auto second = std::async(std::launch::async, [&] { return pool.submit("m", input()); });
  EXPECT_TRUE(FakeDaemon::comes([&] { return is_growing.load(); }));
  daemon_.reply(seq);
  EXPECT_TRUE(driver.ends());
  holds_growth = false;
  const Prediction sent = second.get();
  EXPECT_GT(daemon_.receive_request(), seq);
}

TEST_F(PoolThreadsTest, ARequestThatExpiresWhileTheOutputArenaGrowsSaysSo) {
  Pool pool = connect();
  describe(pool);
  const Prediction first = pool.submit("m", input());
  daemon_.receive_request();
  is_growing = false;
  holds_growth = true;
  auto asked = std::async(std::launch::async, [&] { return pool.submit("m", input(), {.timeout = 100ms}); });
  EXPECT_TRUE(FakeDaemon::comes([&] { return is_growing.load(); }));
  std::this_thread::sleep_for(120ms);  // until its time is over
  pool.poll_once();
  holds_growth = false;
  const Prediction late = asked.get();
  ASSERT_TRUE(late.wait_for(kSoon));
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.get().status().message().find("room for its outputs"), std::string::npos) << late.get().status().message();
}

// Neither zeros for a state that a request leaves out nor the states that a step answers are made while the mutex is held.
TEST_F(PoolThreadsTest, AnswersArriveWhileAStateIsCopied) {
  describe_with_state();
  Pool pool = connect();
  describe(pool);
  std::vector<Prediction> burst;  // the output arena grows now, not later
  for (int i = 0; i < 4; ++i) burst.push_back(pool.submit("m", input()));
  for (const Prediction& each : burst) {
    daemon_.reply(daemon_.receive_request());
    EXPECT_TRUE(each.wait_for(kSoon));
  }
  Session session = pool.open_session("m").value();
  for (const bool is_answer : {false, true}) {
    const Prediction first = pool.submit("m", input());
    const std::uint64_t first_seq = daemon_.receive_request();
    std::optional<Prediction> step;
    if (is_answer) step = session.submit(input());
    const std::uint64_t step_seq = is_answer ? daemon_.receive_request() : 0;
    const std::vector<Tensor> loans = fill_inputs(pool);
    is_growing = false;
    holds_growth = true;
    auto held = std::async(std::launch::async, [&] {
      if (is_answer) return step->get().ok();
      step = session.submit(input());
      return true;
    });
    if (is_answer) daemon_.reply_with_output(step_seq, 7);
    EXPECT_TRUE(FakeDaemon::comes([&] { return is_growing.load(); }));
    daemon_.reply(first_seq);
    auto answered = std::async(std::launch::async, [&] { return first.wait_for(kHour); });
    EXPECT_EQ(answered.wait_for(kSoon), std::future_status::ready) << (is_answer ? "an answer" : "zeros");
    holds_growth = false;
    EXPECT_TRUE(held.get());
    if (!is_answer) {
      daemon_.reply_with_output(daemon_.receive_request(), 6);
      EXPECT_TRUE(step->get().ok());
    }
  }
  const Prediction last = session.submit(input());
  daemon_.reply(daemon_.receive_request());
  EXPECT_EQ(daemon_.input(1).bytes.at(0), std::byte{7});
  EXPECT_TRUE(last.wait_for(kSoon));
}

TEST_F(PoolThreadsTest, AFollowerDrivesWhileTheDriverCopiesAState) {
  describe_with_state();
  Pool pool = connect();
  describe(pool);
  Session session = pool.open_session("m").value();
  const Prediction before = session.submit(input());
  daemon_.reply_with_output(daemon_.receive_request(), 6);
  ASSERT_TRUE(before.wait_for(kSoon));
  const Prediction step = session.submit(input());
  const std::uint64_t step_seq = daemon_.receive_request();
  const Prediction other = pool.submit("m", input());
  const std::uint64_t other_seq = daemon_.receive_request();
  const std::vector<Tensor> loans = fill_inputs(pool);
  Sleeper driver([&] { return step.get().ok(); });
  Sleeper follower([&] { return other.wait_for(kHour); });
  is_growing = false;
  holds_growth = true;
  daemon_.reply_with_output(step_seq, 7);
  EXPECT_TRUE(FakeDaemon::comes([&] { return is_growing.load(); }));
  daemon_.reply(other_seq);
  EXPECT_TRUE(follower.ends()) << "nobody receives its answer";
  holds_growth = false;
  EXPECT_TRUE(driver.ends(pool));
  EXPECT_TRUE(driver.result());
}

// That thread has consumed the edge of ZeroMQ's descriptor, and has left the driver's answer there.
TEST_F(PoolThreadsTest, ADriverMissesNoAnswerWhenAnotherThreadFindsNoMemoryToReceive) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "no allocation can fail here";
  Pool pool = connect(1ms);
  describe(pool);
  const Prediction first = pool.submit("m", input()), second = pool.submit("m", input());
  const std::uint64_t first_seq = daemon_.receive_request(), second_seq = daemon_.receive_request();
  Sleeper driver([&] { return first.wait_for(kHour); });
  late_threads = 0;
  holds_wakeups = true;
  daemon_.reply(second_seq);
  daemon_.reply(first_seq);
  EXPECT_TRUE(FakeDaemon::comes([&] { return late_threads > 0; }));
  std::this_thread::sleep_for(50ms);  // until both are there
  test::fail_allocation(1);
  EXPECT_THROW(pool.poll_once(), std::bad_alloc);
  test::fail_allocation(0);
  holds_wakeups = false;
  EXPECT_TRUE(driver.ends(pool));
  EXPECT_EQ(first.get().status().code(), StatusCode::kInternal);
  daemon_.drop_client();
}

// No other thread calls the pool meanwhile.
TEST_F(PoolThreadsTest, TheDriverGoesOnToShrinkTheOutputArena) {
  Pool pool = connect();
  describe(pool);
  const Prediction waits = pool.submit("m", input());
  const std::uint64_t seq = daemon_.receive_request();
  const Prediction burst = pool.submit("m", {{"data", Tensor::create(DType::kUInt8, Shape{100}).value()}});
  daemon_.reply(daemon_.receive_request());
  ASSERT_TRUE(burst.wait_for(kSoon));
  EXPECT_GE(pool.usage().outputs.allocated_bytes, 100u << 20);
  Sleeper driver([&] { return waits.wait_for(kHour); });
  for (int windows = 0; windows < 2; ++windows) {  // the first one saw the burst
    later_s += 6;
    ::usleep(2000);
    pool.poll_once();
  }
  EXPECT_TRUE(FakeDaemon::comes([&] { return pool.usage().outputs.allocated_bytes <= 4u << 20; }))
      << pool.usage().outputs.allocated_bytes;
  daemon_.reply(seq);
  EXPECT_TRUE(driver.ends(pool));
}

TEST_F(PoolThreadsTest, AnOutputArenaThatIsNeededAgainShrinksNoFurther) {
  Pool pool = connect();
  describe(pool);
  const auto load = [&](std::int64_t outputs) {
    const Prediction one = pool.submit("m", {{"data", Tensor::create(DType::kUInt8, Shape{outputs}).value()}});
    daemon_.reply(daemon_.receive_request());
    EXPECT_TRUE(one.wait_for(kSoon));
  };
  const auto allocated_after_polls = [&] {
    ::usleep(11'000);  // longer than between two parts
    pool.poll_once();
    return pool.usage().outputs.allocated_bytes;
  };
  load(100);
  const std::uint64_t before = pool.usage().outputs.allocated_bytes;
  for (int windows = 0; windows < 3 && allocated_after_polls() == before; ++windows) later_s += 6;
  EXPECT_LT(allocated_after_polls(), before) << "it shrinks";
  load(50);
  load(1);
  const std::uint64_t then = allocated_after_polls();
  for (int parts = 0; parts < 5; ++parts) EXPECT_EQ(allocated_after_polls(), then);
}

// Between two looks of the driver at the attach socket, another thread reads from it what makes the message socket.
TEST_F(PoolThreadsTest, TheDriverPollsTheSocketThatAnotherThreadMade) {
  Pool pool = connect();
  Sleeper driver([&] { return pool.list().ok(); });
  ASSERT_TRUE(daemon_.receive());
  daemon_.drop_client();
  daemon_.accept();
  std::this_thread::sleep_for(50ms);  // until the driver polls the new attach socket
  late_threads = 0;
  holds_wakeups = true;
  daemon_.send_path();
  EXPECT_TRUE(FakeDaemon::comes([&] { return late_threads > 0; }));
  EXPECT_TRUE(FakeDaemon::comes([&] {
    pool.poll_once();
    return daemon_.is_bound();
  }));
  holds_wakeups = false;
  daemon_.welcome();
  std::optional<FakeDaemon::Message> question = daemon_.receive(kSoon);
  EXPECT_TRUE(question) << "it asks the next daemon";
  while (!question) {
    pool.poll_once();
    question = daemon_.receive(10ms);
  }
  daemon_.answer(question->seq, R"({"models": []})");
  EXPECT_TRUE(driver.ends(pool));
  EXPECT_TRUE(driver.result());
}

TEST_F(PoolThreadsTest, ADaemonThatHasNoRoomAtAReconnectIsAskedAgain) {
  Pool pool = connect();
  Sleeper driver([&] { return pool.list().ok(); });
  ASSERT_TRUE(daemon_.receive());
  daemon_.drop_client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(daemon_.accept());
    daemon_.refuse(StatusCode::kOverloaded, "too many clients");
    daemon_.drop_client();
  }
  ASSERT_NO_FATAL_FAILURE(daemon_.let_in());
  const auto question = daemon_.receive();
  ASSERT_TRUE(question);
  daemon_.answer(question->seq, R"({"models": []})");
  EXPECT_TRUE(driver.ends(pool));
  EXPECT_TRUE(driver.result());
}

// Until reconnect_timeout is over. The error says why.
TEST_F(PoolThreadsTest, ADaemonThatHasNoRoomIsGivenUpInTheEnd) {
  Pool pool = connect(50ms);
  auto asked = std::async(std::launch::async, [&] { return pool.list().status(); });
  ASSERT_TRUE(daemon_.receive());
  daemon_.drop_client();
  const auto has_ended = [&] { return asked.wait_for(0s) == std::future_status::ready; };
  while (!has_ended()) {
    EXPECT_TRUE(FakeDaemon::comes([&] { return has_ended() || daemon_.has_visitor(); }));
    if (!daemon_.has_visitor()) continue;
    daemon_.accept();
    daemon_.refuse(StatusCode::kOverloaded, "too many clients");
    daemon_.drop_client();
  }
  EXPECT_EQ(asked.get().code(), StatusCode::kOverloaded);
}

// While nobody waits, attempts are a second apart.
TEST_F(PoolThreadsTest, ARequestDoesNotWaitForTheNextAttemptOfAnIdlePool) {
  Pool pool = connect();
  const std::string attach = scratch_.path() + "/attach", aside = scratch_.path() + "/aside";
  std::filesystem::rename(attach, aside);
  daemon_.drop_client();
  for (int look = 0; look < 5; ++look) {  // one notices that the daemon is gone, and another one finds none
    pool.poll_once();
    std::this_thread::sleep_for(10ms);
  }
  const Prediction asked = pool.submit("m", input());
  std::filesystem::rename(aside, attach);
  auto answered = std::async(std::launch::async, [&] { return asked.wait_for(kSoon); });
  EXPECT_TRUE(FakeDaemon::comes([&] { return daemon_.has_visitor(); }, 700ms));
  ASSERT_NO_FATAL_FAILURE(daemon_.let_in());
  daemon_.reply(daemon_.receive_request());
  EXPECT_TRUE(answered.get());
}

// Without a timeout it would wait for ever.
TEST_F(PoolThreadsTest, ARequestWhoseAnswerIsDamagedIsToldSo) {
  Pool pool = connect();
  describe(pool);
  const Prediction asked = pool.submit("m", input());
  daemon_.reply_cut(daemon_.receive_request());
  ASSERT_TRUE(asked.wait_for(kSoon)) << "its answer was dropped";
  EXPECT_EQ(asked.get().status().code(), StatusCode::kInternal) << asked.get().status().to_string();
  EXPECT_NE(asked.get().status().message().find("model 'm'"), std::string::npos) << asked.get().status().message();
  EXPECT_EQ(pool.usage().inputs.used_bytes, 0u);
}

TEST_F(PoolThreadsTest, ASessionIsNotIdleWhileThisProcessIsStopped) {
  describe_with_state();
  Pool pool = connect(kHour, 30s);
  describe(pool);
  Session session = pool.open_session("m").value();
  for (int step = 0; step < 3; ++step) {
    later_s += 60;  // as far as the clock tells
    const Prediction asked = session.submit(input());
    daemon_.reply_with_output(daemon_.receive_request());
    const auto& outputs = asked.get();
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  }
  for (int looks = 0; looks < 4; ++looks) {
    later_s += 60;
    pool.poll_once();
  }
  EXPECT_EQ(session.predict(input()).status().code(), StatusCode::kNotFound) << "the pool is used, and the session is not";
}

}  // namespace
}  // namespace shoal
