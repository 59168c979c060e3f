#include "worker/serve/lane.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <semaphore>
#include <set>

#include "shm/base/clock.hpp"
#include "shm/base/mutex.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/flight.hpp"
#include "tests/support/lane_parts.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/engine/identity_model.hpp"

namespace shoal::worker {
namespace {

using test::kClient;

constexpr wire::PeerId kLane = 1;
constexpr int kLimitMs = 5000;

/// The identity model. While it is gated, a program for more than one row must be compiled first, and that waits for the test.
class GatedModel final : public IdentityModel {
 public:
  GatedModel() : IdentityModel(8) {}
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) override {
    const MutexLock lock(mutex_);
    const std::int64_t rows = inputs[0].shape[0];
    if (is_gated_ && rows > 1 && !compiled_.contains(rows)) return std::shared_ptr<const Program>();
    return IdentityModel::program(inputs);
  }
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    gate_.acquire();
    const MutexLock lock(mutex_);
    compiled_.insert(inputs[0].shape[0]);
    return IdentityModel::program(inputs);
  }
  void gate() {
    const MutexLock lock(mutex_);
    is_gated_ = true;
  }
  void let_compile() { gate_.release(); }

 private:
  Mutex mutex_;
  bool is_gated_ SHOAL_GUARDED_BY(mutex_) = false;
  std::set<std::int64_t> compiled_ SHOAL_GUARDED_BY(mutex_);
  std::counting_semaphore<> gate_{0};
};

/// A lane on that model, whose supervisor is the test.
class LaneTest : public ::testing::Test {
 protected:
  LaneTest() {
    parts_.served.golden.inputs = {filled(3)};
    parts_.served.golden.outputs = {{"data_output", filled(3)}};
    parts_.environment.stop_fd = stop_fd_.get();
    parts_.environment.control_fd = control_.theirs.get();
    lane_.emplace(parts_.environment, 0, wire::Dealer::bind(context_, directory_.path("w1-0")).value(), parts_.line);
    lane_->start();
    EXPECT_TRUE(router_.connect(directory_.path("w1-0"), kLane, true).ok());
  }
  ~LaneTest() override {
    ::eventfd_write(stop_fd_.get(), 1);
    lane_->join();
    lane_.reset();
    router_ = {};
  }

  static Tensor filled(float value, std::int64_t rows = 1) {
    Tensor tensor = Tensor::create(DType::kFloat32, Shape{rows, 4}).value();
    for (float& each : tensor.values<float>()) each = value;
    return tensor;
  }

  void send(std::uint64_t id, std::uint16_t size = 1, std::uint16_t index = 0) {
    send(id, filled(static_cast<float>(id)), size, index);
  }
  void send(std::uint64_t id, const Tensor& input, std::uint16_t size = 1, std::uint16_t index = 0) {
    wire::Request request = test::framed_request(id, input);
    request.header.batch_size = size;
    request.header.batch_index = index;
    test::RequestMessages messages;
    messages.add(request, input);
    ASSERT_TRUE(router_.push(kLane, messages[0], {}).ok());
    EXPECT_TRUE(router_.flush().empty());
  }

  /// Attaches arenas, in which each request then has its input and its outputs.
  void use_arenas(std::uint64_t client = kClient) {
    std::vector<UniqueFd> fds;
    for (const Seals seals : {Seals::kOneWriter, Seals::kFixedSize}) {
      fds.push_back(create_memfd("lane-test", 1 << 20).value());
      EXPECT_TRUE(seal(fds.back(), seals).ok());
    }
    EXPECT_TRUE(parts_.arenas.attach(client, fds).ok());
  }
  void push_by_arena(std::uint64_t id, std::int64_t rows = 1, std::uint64_t client = kClient) {
    wire::Request request;
    request.header = {
        .kind = static_cast<std::uint16_t>(wire::Kind::kRequest), .client_id = client, .request_id = id, .attempt = 1};
    request.inputs = {wire::to_wire({DType::kFloat32, Shape{rows, 4}, nullptr})};
    request.outputs = {wire::WireTensor{.offset_bytes = 0, .capacity_bytes = 4096}};
    std::vector<std::byte> head;
    wire::encode_request(request, head);
    ASSERT_TRUE(router_.push(kLane, head).ok());
  }

  wire::Reply receive(wire::Parcel& message) {
    wire::PeerId peer = 0;
    while (true) {
      const auto received = router_.receive(peer, message);
      if (received.ok() && *received) return wire::decode_reply(message[0]).value();
      wire::Waitable items[] = {{.socket = &router_}};
      if (received.ok() && wire::wait(items, std::chrono::milliseconds(kLimitMs))) continue;
      ADD_FAILURE() << "no reply";
      return {};
    }
  }
  void expect_parked(std::uint64_t id) {
    wire::Parcel message;
    const wire::Reply reply = receive(message);
    EXPECT_EQ(reply.header.kind, static_cast<std::uint16_t>(wire::Kind::kParked));
    EXPECT_EQ(reply.header.request_id, id);
  }
  /// The next reply is that of `id`, right, and of a run of `batch` requests.
  void expect_reply(std::uint64_t id, int batch) {
    wire::Parcel message;
    const wire::Reply reply = receive(message);
    EXPECT_EQ(reply.header.kind, static_cast<std::uint16_t>(wire::Kind::kReply));
    EXPECT_EQ(reply.header.status, 0u);
    EXPECT_EQ(reply.header.request_id, id);
    EXPECT_EQ(reply.header.batch, batch);
    ASSERT_EQ(message.size(), 3u);
    float first = 0;
    std::memcpy(&first, message[2].data(), sizeof first);
    EXPECT_EQ(first, static_cast<float>(id));
  }

  wire::ControlMessage receive_control() {
    pollfd fd{control_.ours.get(), POLLIN, 0};
    if (::poll(&fd, 1, kLimitMs) != 1) return {};
    auto received = wire::receive_control(control_.ours.get());
    return received.ok() && *received ? std::move(**received) : wire::ControlMessage();
  }

  const test::ScratchDirectory directory_;
  GatedModel model_;
  test::LaneParts parts_{"echo", model_, {{"data", DType::kFloat32, Shape{-1, 4}}}};
  UniqueFd stop_fd_{::eventfd(0, EFD_CLOEXEC)};
  wire::ControlPair control_ = wire::make_control_pair().value();
  wire::MessageContext context_;
  std::optional<Lane> lane_;
  wire::Router router_ = wire::Router::create(context_).value();
};

TEST_F(LaneTest, TheMembersOfABatchRunTogetherAndOthersAlone) {
  send(1);
  for (std::uint16_t i = 0; i < 5; ++i) send(10u + i, 5, i);
  send(2);
  for (std::uint16_t i = 0; i < 2; ++i) send(20u + i, 2, i);
  expect_reply(1, 1);
  for (std::uint64_t i = 0; i < 5; ++i) expect_reply(10 + i, 5);
  expect_reply(2, 1);
  for (std::uint64_t i = 0; i < 2; ++i) expect_reply(20 + i, 2);
}

TEST_F(LaneTest, AMemberThatDoesNotComeIsNotWaitedForLong) {
  send(1, 4, 0);
  send(2, 4, 1);
  expect_reply(1, 2);
  expect_reply(2, 2);
  send(3, 4, 0);  // and its others never
  expect_reply(3, 1);
}

TEST_F(LaneTest, AnotherMessageEndsABatchAndIsServedItself) {
  send(1, 3, 0);
  send(2, 3, 1);
  send(3, 2, 0);  // of another batch
  send(4, 2, 1);
  send(5, 2, 0);
  send(6);
  expect_reply(1, 2);
  expect_reply(2, 2);
  expect_reply(3, 2);
  expect_reply(4, 2);
  expect_reply(5, 1);
  expect_reply(6, 1);
}

// Sending consumes the edge of the lane's descriptor, if libzmq has not looked at it for a millisecond. A request that comes
// meanwhile must not wait for the next one. A signal makes the lane slow at any moment.
TEST_F(LaneTest, ARequestThatComesWhileTheLaneSendsIsServed) {
  use_arenas();
  struct sigaction old {
  }, slow{};
  slow.sa_handler = [](int) {
    const timespec pause{0, 2'000'000};
    ::nanosleep(&pause, nullptr);
  };
  ASSERT_EQ(::sigaction(SIGUSR1, &slow, &old), 0);
  std::uint64_t id = 0;
  const std::uint64_t end_ns = monotonic_now_ns() + 2'000'000'000;
  for (std::uint64_t round = 0; monotonic_now_ns() < end_ns && !HasFailure(); ++round) {
    push_by_arena(++id);
    EXPECT_TRUE(router_.flush().empty());
    for (const std::uint64_t until_ns = monotonic_now_ns() + round % 300 * 100; monotonic_now_ns() < until_ns;) {
    }
    ::syscall(SYS_tgkill, ::getpid(), static_cast<pid_t>(parts_.line.thread_id.load()), SIGUSR1);
    push_by_arena(++id);
    EXPECT_TRUE(router_.flush().empty());
    for (const std::uint64_t expected : {id - 1, id}) {
      wire::Parcel message;
      EXPECT_EQ(receive(message).header.request_id, expected) << "round " << round;
    }
  }
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(LaneTest, RepliesOfShortRunsTravelTogether) {
  use_arenas();
  for (std::uint64_t id = 1; id <= 20; ++id) push_by_arena(id);
  EXPECT_TRUE(router_.flush().empty());
  int together = 0;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    wire::Parcel message;
    EXPECT_EQ(receive(message).header.request_id, id);
    together += router_.has_unread();
  }
  EXPECT_GT(together, 0);
}

TEST_F(LaneTest, TheReplyOfAShortRunDoesNotWaitForALongOne) {
  use_arenas();
  model_.gate();
  push_by_arena(1);
  push_by_arena(2, 2);  // its program must be compiled: what comes before that is sent first
  EXPECT_TRUE(router_.flush().empty());
  wire::Parcel message;
  EXPECT_EQ(receive(message).header.request_id, 1u);
  EXPECT_FALSE(router_.has_unread());
  expect_parked(2);
  model_.let_compile();
  EXPECT_EQ(receive(message).header.request_id, 2u);
}

TEST_F(LaneTest, TheReplyOfAShortRunDoesNotWaitForTheArenasOfAnotherClient) {
  use_arenas();
  push_by_arena(1);
  push_by_arena(2, 1, kClient + 1);
  EXPECT_TRUE(router_.flush().empty());
  wire::Parcel message;
  EXPECT_EQ(receive(message).header.request_id, 1u);
  use_arenas(kClient + 1);
  EXPECT_EQ(receive(message).header.request_id, 2u);
}

TEST_F(LaneTest, ReceivedRequestsAreInTheFlightRecorder) {
  send(7);
  expect_reply(7, 1);
  const auto events = wire::read_flight(parts_.ring);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0].kind, wire::FlightKind::kReceived);
  EXPECT_EQ(events[0].request, 7u);
}

TEST_F(LaneTest, ParkedRequestsAreAnsweredWhenTheirProgramsAreReadyAndOthersMeanwhile) {
  model_.gate();
  send(2, filled(2, 2));
  send(3, filled(3, 3));
  send(22, filled(22, 2));
  send(1);
  for (const std::uint64_t id : {2, 3, 22}) expect_parked(id);
  expect_reply(1, 1);
  EXPECT_EQ(parts_.line.parked, 3u);
  model_.let_compile();
  expect_reply(2, 1);
  expect_reply(22, 1);
  send(4);
  expect_reply(4, 1);
  EXPECT_EQ(parts_.line.parked, 1u);
  model_.let_compile();
  expect_reply(3, 1);
  EXPECT_EQ(parts_.line.parked, 0u);
  send(33, filled(33, 3));
  expect_reply(33, 1);
}

TEST_F(LaneTest, AProbeIsAnsweredAmongTheRequests) {
  lane_->probe(4);
  const wire::ControlMessage probed = receive_control();
  EXPECT_EQ(probed.kind, wire::ControlKind::kProbed);
  EXPECT_EQ(probed.id, 4u);
  EXPECT_EQ(probed.a, 0u) << probed.text;
  EXPECT_GT(probed.b, 0u);
  send(1);
  expect_reply(1, 1);
}

TEST_F(LaneTest, OfTwoProbesThatWaitTheLaterOneIsAnswered) {
  push_by_arena(1);
  EXPECT_TRUE(router_.flush().empty());
  while (wire::read_flight(parts_.ring).empty()) std::this_thread::yield();  // it waits for its arenas
  lane_->probe(4);
  lane_->probe(5);
  use_arenas();
  EXPECT_EQ(receive_control().id, 5u);
  lane_->probe(6);
  EXPECT_EQ(receive_control().id, 6u) << "the one before has no answer";
}

TEST_F(LaneTest, AProbeWithAnotherAnswerSaysWhichElementAndBothValues) {
  const auto ask = [&](const Tensor& expected, double tolerance) {
    parts_.served.golden.outputs[0].tensor = expected;
    parts_.served.golden.tolerance = tolerance;
    lane_->probe(9);
    return receive_control();
  };
  Tensor expected = filled(3);
  expected.values<float>()[2] = 3.25;
  const wire::ControlMessage wrong = ask(expected, 0.01);
  EXPECT_EQ(static_cast<StatusCode>(wrong.a), StatusCode::kFailedPrecondition);
  EXPECT_NE(wrong.text.find("model 'echo': golden output 'data_output': element 2 is 3, should be 3.25"), std::string::npos)
      << wrong.text;
  EXPECT_EQ(ask(expected, 0.1).a, 0u);  // of 3.25
  expected.values<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(ask(expected, 1).a, 0u);
  EXPECT_NE(ask(Tensor::create(DType::kFloat32, Shape{4}).value(), 1).a, 0u);
}

}  // namespace
}  // namespace shoal::worker
