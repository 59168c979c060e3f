// A daemon that lives and does nothing, or a model that never comes: nobody waits for it longer than he said, and once it goes on
// nothing was lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kSoon = 2s;  // on a busy machine

Tensors input() { return {{"data", counting({4})}}; }

class StoppedDaemonTest : public testing::Test {
 protected:
  ~StoppedDaemonTest() override { go_on(); }
  void stop() const { stop_process(daemon_.pid()); }
  void go_on() const { ::kill(daemon_.pid(), SIGCONT); }

  const DaemonFixture daemon_;
  Pool pool_ = daemon_.connect();
};

TEST_F(StoppedDaemonTest, ARequestEndsWhenItsTimeIsOver) {
  ASSERT_TRUE(pool_.predict("echo", input()).ok());
  stop();
  const auto begin = Clock::now();
  const Prediction asked = pool_.submit("echo", input(), {.timeout = 50ms});
  Prediction polled = pool_.submit("echo", input(), {.timeout = 50ms});
  EXPECT_EQ(asked.get().status().code(), StatusCode::kDeadlineExceeded) << asked.get().status().to_string();
  EXPECT_TRUE(says(asked.get().status().message(), {"echo", daemon_.directory()}));
  EXPECT_EQ(asked.outcome().ran, Ran::kMaybe);
  EXPECT_TRUE(eventually([&] { return polled.ready(); }));
  EXPECT_LT(Clock::now() - begin, kSoon);
  go_on();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pool_.predict("echo", input()).ok());
}

TEST_F(StoppedDaemonTest, TheSlotsOfARequestThatExpiredComeBack) {
  constexpr std::int64_t kMany = 1 << 18;  // floats: eight of them fill the input arena
  const auto large = [] { return Tensors{{"data", counting({kMany})}}; };
  ASSERT_TRUE(pool_.predict("echo", large()).ok());
  stop();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(pool_.predict("echo", large(), {.timeout = 100ms}).ok());
  EXPECT_FALSE(pool_.loan(DType::kFloat32, Shape{kMany}).ok()) << "a worker may still read them";
  go_on();
  EXPECT_TRUE(eventually([&] {
    pool_.poll();
    return pool_.loan(DType::kFloat32, Shape{kMany}).ok();
  }));
}

TEST_F(StoppedDaemonTest, AWaitWithoutEndUsesNoProcessor) {
  stop();
  Prediction prediction = pool_.submit("echo", input());
  const std::clock_t before = std::clock();
  {
    std::jthread one([&] { EXPECT_TRUE(prediction.wait_for(std::chrono::nanoseconds::max())); });
    std::jthread other([&] { EXPECT_TRUE(prediction.wait_for(std::chrono::nanoseconds::max())); });
    std::this_thread::sleep_for(300ms);
    EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.15);
    go_on();
  }
  EXPECT_TRUE(prediction.get().ok());
}

// Beyond what ZeroMQ keeps for a peer that does not read, a message vanishes; so fewer are under way.
TEST_F(StoppedDaemonTest, MoreRequestsThanItsQueueHoldsAreAnsweredNotLost) {
  ASSERT_TRUE(pool_.describe("echo").ok());
  stop();
  std::vector<Prediction> predictions;
  for (int i = 0; i < 110'000; ++i) predictions.push_back(pool_.submit("echo", input()));
  EXPECT_TRUE(predictions.back().ready());
  EXPECT_EQ(predictions.back().get().status().code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(predictions.back().get().status().message(), {"32768", daemon_.directory()}));
  go_on();
  for (Prediction& prediction : predictions) {
    ASSERT_TRUE(prediction.wait_for(30s)) << "lost";
    const StatusCode code = prediction.get().status().code();
    EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kOverloaded) << prediction.get().status().to_string();
  }
  EXPECT_TRUE(pool_.predict("echo", input()).ok());
}

TEST_F(StoppedDaemonTest, ConnectingEndsWhenItsTimeIsOver) {
  stop();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (daemon_.directory() + "/attach").c_str());
  std::vector<UniqueFd> crowd;  // until no more may wait for it
  do {
    crowd.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (crowd.size() < 10'000 &&
           ::connect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const auto begin = Clock::now();
  const auto late = Pool::connect({.directory = daemon_.directory(), .connect_timeout = 100ms});
  EXPECT_FALSE(late.ok());
  EXPECT_LT(Clock::now() - begin, kSoon);
  EXPECT_TRUE(says(late.status().message(), {daemon_.directory()}));
  go_on();
  EXPECT_TRUE(Pool::connect({.directory = daemon_.directory()}).ok());
}

TEST(NeverLoaded, ARequestEndsWhenItsTimeIsOver) {
  const ScratchDirectory scratch;
  scratch.write("zygote", "#!/bin/sh\nkill -STOP $$\n");
  std::filesystem::permissions(scratch.path("zygote"), std::filesystem::perms::owner_all);
  const DaemonFixture daemon({.worker = scratch.path("zygote"), .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return Pool::connect({.directory = daemon.directory()}).ok(); }));
  Pool pool = daemon.connect();
  const auto begin = Clock::now();
  const Status status = pool.predict("echo", input(), {.timeout = 50ms}).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.to_string();
  EXPECT_TRUE(says(status.message(), {"echo", "loads"}));
  EXPECT_LT(Clock::now() - begin, kSoon);
}

TEST(Timeout, OneThatIsOverAlreadyIsNotSubmitted) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("echo").ok());
  const Prediction late = pool.submit("echo", input(), {.timeout = -1ns});
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.outcome().ran, Ran::kNo);
  EXPECT_EQ(daemon.model("echo").at("counts").at("admitted"), 0);
}

}  // namespace
}  // namespace shoal::test
