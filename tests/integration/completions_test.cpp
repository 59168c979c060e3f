// Many requests of one thread to a real daemon: a completion queue, its descriptor, callbacks and coroutines.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <coroutine>
#include <filesystem>
#include <future>
#include <iterator>
#include <optional>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "shoal/completion_queue.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

float first_of(const Outcome& outcome) { return outcome.outputs.value().at(0).tensor.values<float>()[0]; }

/// A coroutine that nobody waits for.
struct Started {
  struct promise_type {
    Started get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

class CompletionsTest : public ::testing::Test {
 protected:
  Request request(const Model& model, float first) {
    Request made(model);
    EXPECT_TRUE(made.set_input("data", counting({4}, first)).ok());
    return made;
  }

  DaemonFixture daemon_{{.models = {"echo=builtin:identity,queue_limit=20000"}, .limits = "client_requests = 20000"}};
};

TEST_F(CompletionsTest, TenThousandRequestsOfOneThreadCompleteThroughADescriptor) {
  constexpr std::size_t kRequests = 10'000;
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  CompletionQueue queue(pool);
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, queue.fd().value(), &event), 0);
  const auto threads = thread_count();
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kRequests; ++i) {
    requests.push_back(request(model, static_cast<float>(i)));
    ASSERT_TRUE(queue.submit(requests.back(), i).ok());
  }
  const auto workers = daemon_.workers();
  ASSERT_FALSE(workers.empty());
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0) << "nothing may be lost";
  std::vector<int> seen(kRequests);
  std::array<Completion, 64> completions;
  for (std::size_t taken = 0; taken < kRequests;) {
    ASSERT_EQ(::epoll_wait(epoll.get(), &event, 1, 60'000), 1) << taken << " of " << kRequests << " came back";
    const std::size_t count = queue.poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& done = completions[i];
      ++seen[done.tag];
      ASSERT_TRUE(done.request.outputs().ok()) << done.request.outputs().status().to_string();
      ASSERT_EQ(first_of(done.request.outcome()), static_cast<float>(done.tag));
    }
    taken += count;
  }
  for (const int times : seen) ASSERT_EQ(times, 1);
  EXPECT_EQ(queue.under_way(), 0u);
  EXPECT_EQ(thread_count(), threads) << "a thread per request";
}

TEST_F(CompletionsTest, AFirstRequestIsSentWithoutSomebodyWhoWaits) {
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  CompletionQueue queue(pool);
  Request first = request(model, 1);
  const std::uint64_t before = daemon_.model().at("counts").at("ok").get<std::uint64_t>();
  ASSERT_TRUE(queue.submit(first, 1).ok());
  EXPECT_TRUE(eventually([&] { return daemon_.model().at("counts").at("ok").get<std::uint64_t>() > before; }))
      << "nobody has called next()";
}

TEST_F(CompletionsTest, RequestsOfAStoppedDaemonEndWithTheirTimeout) {
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  CompletionQueue waited_for(pool), watched(pool);
  const int fd = watched.fd().value();
  stop_process(daemon_.pid());
  Request one = request(model, 1), other = request(model, 2);
  one.set_timeout(100ms);
  other.set_timeout(100ms);
  ASSERT_TRUE(waited_for.submit(one, 1).ok());
  ASSERT_TRUE(watched.submit(other, 2).ok());
  std::array<Completion, 1> completions;
  EXPECT_EQ(waited_for.next(completions, std::chrono::steady_clock::now() + 10s), 1u);
  EXPECT_EQ(one.outputs().status().code(), StatusCode::kDeadlineExceeded);
  pollfd polled{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 10'000), 1);
  EXPECT_EQ(watched.poll(completions), 1u);
  EXPECT_EQ(other.outputs().status().code(), StatusCode::kDeadlineExceeded);
  ::kill(daemon_.pid(), SIGCONT);
}

TEST_F(CompletionsTest, AWaitEndsWhenAStopIsRequested) {
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  StoppedModel stopped(daemon_, "echo");
  const Prediction waiting = model.submit({{"data", counting({4}, 1)}});
  std::stop_source source;
  {
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(50ms);
      source.request_stop();
    });
    EXPECT_FALSE(waiting.wait_for(std::chrono::hours(1), source.get_token()));
  }
  EXPECT_FALSE(waiting.wait_for(std::chrono::hours(1), source.get_token())) << "it is requested already";
  stopped.go_on();
  EXPECT_EQ(first_of(waiting.outcome()), 1) << "the request goes on";
}

TEST_F(CompletionsTest, DestroyingThePoolCompletesEverything) {
  std::optional<Pool> pool(daemon_.connect());
  const Model model = pool->client().model("echo").value();
  const StoppedModel stopped(daemon_, "echo");
  CompletionQueue queue(*pool);
  Request waiting = request(model, 1), late = request(model, 2);
  ASSERT_TRUE(queue.submit(waiting, 1).ok());
  std::promise<StatusCode> called;
  ASSERT_TRUE(pool->submit("echo", {{"data", counting({4})}})
                  .then([&](const Outcome& outcome) { called.set_value(outcome.outputs.status().code()); })
                  .ok());
  pool.reset();
  EXPECT_EQ(called.get_future().get(), StatusCode::kCancelled);
  std::array<Completion, 2> completions;
  ASSERT_EQ(queue.next(completions), 1u);
  EXPECT_EQ(waiting.outputs().status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(queue.submit(late, 2).ok());
  ASSERT_EQ(queue.next(completions), 1u);
  EXPECT_EQ(late.outputs().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(model.predict({{"data", counting({4})}}).status().code(), StatusCode::kCancelled);
}

TEST_F(CompletionsTest, AClientThatOutlivesItsPoolHearsSo) {
  std::optional<Pool> pool(daemon_.connect());
  const Client client = pool->client();
  pool.reset();
  EXPECT_EQ(client.describe("echo").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client.model("echo").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client.predict("echo", {{"data", counting({4})}}).status().code(), StatusCode::kCancelled);
}

TEST_F(CompletionsTest, DestroyingAQueueEndsItsRequestsAtOnce) {
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  const StoppedModel stopped(daemon_, "echo");
  Request waiting = request(model, 1);
  {
    CompletionQueue brief(pool);
    ASSERT_TRUE(brief.submit(waiting, 1).ok());
  }
  EXPECT_FALSE(waiting.is_under_way()) << "nobody drives the pool now";
  EXPECT_EQ(waiting.outputs().status().code(), StatusCode::kCancelled);
}

// The daemon has answered that the time is over, and a worker still runs the request: longer than the next run takes.
TEST(OwnOutputs, OfARequestThatMayStillRunAreNotWrittenByItsNextRun) {
  const ScratchDirectory models;
  write_checkpoint(models.path(), "m", {{"_fault_sleep", "sleep", {{"scalar", "100"}}, {}}}, "[-1, -1]");
  const DaemonFixture daemon(
      {.models = {"m=" + models.path() + ",shape=data:1x4,workers=2,tuning_ms=0"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  const Client client = pool.client();
  const Model model = client.model("m").value();
  CompletionQueue queue(client);
  Request request(model);
  const Tensor own = client.loan_output(DType::kFloat32, {1, 4}).value();
  ASSERT_TRUE(request.set_output(model.info()->outputs.at(0).name, own).ok());
  std::array<Completion, 1> completions;
  Tensor slow = counting({1, 4}, 100);
  slow.values<float>()[1] = 1500;  // milliseconds
  ASSERT_TRUE(request.set_input("data", slow).ok());
  request.set_timeout(150ms);
  ASSERT_TRUE(queue.submit(request, 1).ok());
  ASSERT_EQ(queue.next(completions), 1u);
  ASSERT_EQ(request.outputs().status().code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(request.set_input("data", counting({1, 4}, 7)).ok());
  request.set_timeout(10s);
  ASSERT_TRUE(queue.submit(request, 2).ok());
  ASSERT_EQ(queue.next(completions), 1u);
  ASSERT_TRUE(request.outputs().ok()) << request.outputs().status().to_string();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(own.values<float>()[0], 7) << "the earlier run has written it";
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_EQ(pool.usage().outputs.copied, 0u);
}

TEST_F(CompletionsTest, CoroutinesAndCallbacksOfManyThreadsRunOnce) {
  constexpr int kThreads = 4, kEach = 200;
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  std::atomic<int> resumed{0}, called{0};
  const auto run = [](Model its, int first, std::atomic<int>& count) -> Started {
    Tensors inputs{{"data", counting({4}, static_cast<float>(first))}};  // apart: GCC 12 takes no braces within co_await
    const Result<Tensors> outputs = co_await its.infer(std::move(inputs));
    EXPECT_EQ(outputs.value().at(0).tensor.values<float>()[0], static_cast<float>(first));
    ++count;
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          run(model, i, resumed);
          EXPECT_TRUE(pool.submit("echo", {{"data", counting({4})}}).then([&](const Outcome&) { ++called; }).ok());
        }
      });
    }
  }
  EXPECT_TRUE(eventually([&] { return resumed == kThreads * kEach && called == kThreads * kEach; }))
      << resumed << " and " << called;
}

TEST_F(CompletionsTest, AForkedChildGetsErrors) {
  Pool pool = daemon_.connect();
  const Model model = pool.client().model("echo").value();
  CompletionQueue queue(pool);
  Request mine = request(model, 1);
  ASSERT_TRUE(queue.fd().ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = queue.submit(mine, 1).code() == StatusCode::kFailedPrecondition &&
                         pool.client().describe("echo").status().code() == StatusCode::kFailedPrecondition;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(queue.submit(mine, 1).ok());
  std::array<Completion, 1> completions;
  EXPECT_EQ(queue.next(completions), 1u);
}

TEST_F(CompletionsTest, OneMoreThanThePoolTakesIsRefusedAtOnce) {
  Pool pool = daemon_.connect({.in_flight_limit = 3});
  const Model model = pool.client().model("echo").value();
  const StoppedModel stopped(daemon_, "echo");
  CompletionQueue queue(pool);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(request(model, 1));
    ASSERT_TRUE(queue.submit(requests.back(), i).ok());
  }
  std::array<Completion, 4> completions;
  ASSERT_EQ(queue.poll(completions), 1u);
  EXPECT_EQ(completions[0].tag, 3u);
  const Status status = requests[3].outputs().status();
  EXPECT_EQ(status.code(), StatusCode::kOverloaded);
  EXPECT_NE(status.message().find("in_flight_limit"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace shoal::test
