// A lane whose process has little memory (`memory_mb`). The lane is in a child, and its supervisor is the test.
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/lane_parts.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/serve/lane.hpp"

namespace shoal::worker {
namespace {

class LaneMemoryTest : public ::testing::Test {
 protected:
  static constexpr wire::PeerId kLane = 1;
  static constexpr int kLimitMs = 10'000, kMemoryMb = 64;
  static constexpr int kArenaMib = 65;  ///< each of the client's arenas

  LaneMemoryTest() {
    if (test::kSanitized) return;
    ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);  // as in the zygote; what is freed here is not kept either
    for (const char* label : {"input", "output"}) arenas_.push_back(create_memfd(label, kArenaMib << 20).value());
    lane_process_ = test::start_child([&] { return serve(); });
    pollfd ready{is_ready_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, kLimitMs), 1);
    context_.emplace();
    router_ = wire::Router::create(*context_).value();
    EXPECT_TRUE(router_.connect(directory_.path("w1-0"), kLane, true).ok());
  }
  ~LaneMemoryTest() override {
    if (lane_process_ > 0) end_of_lane();
    router_ = {};
  }
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "sanitizers end a process that they have no memory for";
  }

  /// Sends a request that brings a tensor of that size, which the lane answers with a copy of it.
  void send(std::uint64_t id, std::int64_t mib) {
    const Tensor input = Tensor::create(DType::kFloat32, Shape{mib << 18}).value();
    test::RequestMessages messages;
    messages.add(test::framed_request(id, input), input);
    ASSERT_TRUE(router_.push(kLane, messages[0], {}).ok());
    EXPECT_TRUE(router_.flush().empty());
  }
  /// Sends a request whose tensor is in its client's arena, where there is room for the answer, too.
  void send_in_arena(std::uint64_t id, std::uint16_t lane_flags) {
    wire::Request request;
    request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest),
                      .client_id = test::kClient,
                      .request_id = id,
                      .attempt = 1,
                      .lane_flags = lane_flags};
    request.inputs = {wire::to_wire({DType::kFloat32, Shape{kArenaMib << 18}, nullptr})};
    request.outputs.resize(1);
    request.outputs[0].capacity_bytes = kArenaMib << 20;
    std::vector<std::byte> frame;
    wire::encode_request(request, frame);
    const std::span<const std::byte> frames[] = {frame};
    ASSERT_TRUE(router_.push(kLane, frames, {}).ok());
    EXPECT_TRUE(router_.flush().empty());
  }
  /// The code of the next answer, which is that of the request `id`.
  StatusCode receive(std::uint64_t id) {
    wire::Parcel message;
    wire::PeerId peer = 0;
    while (true) {
      const auto received = router_.receive(peer, message);
      if (received.ok() && *received) break;
      wire::Waitable items[] = {{.socket = &router_}};
      if (received.ok() && wire::wait(items, std::chrono::milliseconds(kLimitMs))) continue;
      ADD_FAILURE() << "no reply";
      return StatusCode::kInternal;
    }
    const wire::Reply reply = wire::decode_reply(message[0]).value();
    EXPECT_EQ(reply.header.request_id, id);
    return static_cast<StatusCode>(reply.header.status);
  }
  /// Its exit code, or 128 + signal. Kills it if it does not end by itself.
  int end_of_lane(int limit_ms = 0) {
    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, lane_process_, 0)));
    pollfd ended{pidfd.get(), POLLIN, 0};
    if (::poll(&ended, 1, limit_ms) == 0) ::kill(lane_process_, SIGKILL);
    return test::exit_code_of(std::exchange(lane_process_, 0));
  }

 private:
  int serve() {
    ::prctl(PR_SET_DUMPABLE, 0);  // no core files
    ::malloc_trim(0);             // otherwise what the test has freed is there beside the limit
    IdentityModel model;
    test::LaneParts parts("echo", model, {{"data", DType::kFloat32, Shape{-1}}});
    wire::MessageContext context;
    parts.environment.control_fd = control_.theirs.get();
    Lane lane(parts.environment, 0, wire::Dealer::bind(context, directory_.path("w1-0")).value(), parts.line);
    if (!parts.arenas.attach(test::kClient, arenas_).ok()) return 2;
    parts.memory = MemoryLimit::set(kMemoryMb, 1).value();
    if (!lane.start().ok()) return 1;
    ::eventfd_write(is_ready_.get(), 1);
    lane.join();
    return 0;
  }

  const test::ScratchDirectory directory_;
  std::vector<UniqueFd> arenas_;
  const UniqueFd is_ready_{::eventfd(0, EFD_CLOEXEC)};
  wire::ControlPair control_ = wire::make_control_pair().value();
  pid_t lane_process_ = 0;
  std::optional<wire::MessageContext> context_;
  wire::Router router_;
};

// The message takes most of the memory, and the answer finds none.
TEST_F(LaneMemoryTest, AMessageThatIsBeingAnsweredIsNoLeak) {
  for (std::uint64_t id = 1; id <= 3; ++id) {
    send(id, 58);
    EXPECT_EQ(receive(id), StatusCode::kFailedPrecondition);
  }
  send(4, 1);
  EXPECT_EQ(receive(4), StatusCode::kOk);
}

// Of what came with a request, and was made for its answer, nothing is left when the next message comes.
TEST_F(LaneMemoryTest, AnIdleLaneHasMemoryToReceive) {
  for (std::uint64_t id = 1; id <= 3; ++id) {
    send(id, 18);
    EXPECT_EQ(receive(id), StatusCode::kOk);
    send(id + 10, 40);
    EXPECT_EQ(receive(id + 10), StatusCode::kFailedPrecondition);
  }
}

TEST_F(LaneMemoryTest, ALaneThatCannotReceiveEndsAtOnce) {
  send(1, 1);
  EXPECT_EQ(receive(1), StatusCode::kOk);
  send(2, 2 * kMemoryMb);
  EXPECT_EQ(end_of_lane(kLimitMs), 128 + SIGABRT);
}

// What is hashed is a copy. A suspect may be innocent, and it runs without one.
TEST_F(LaneMemoryTest, ASuspectWhoseInputsFindNoMemoryForACopyRuns) {
  for (std::uint64_t id = 1; id <= 2; ++id) {
    send_in_arena(id, wire::kHashInputs);
    EXPECT_EQ(receive(id), StatusCode::kOk);
  }
}

}  // namespace
}  // namespace shoal::worker
