// A lane and the thread that compiles, when one allocation fails: each of them in turn. Everybody gets an answer, and the next
// request is served.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/lane_parts.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/serve/probe.hpp"

namespace shoal::worker {
namespace {

constexpr int kDeadlineMs = 10'000;  // of what happens at once
constexpr std::size_t kMembers = 3;

/// The identity model. A shape's first program must be ordered, and the thread that compiles it then has an allocation fail.
class ColdModel final : public IdentityModel {
 public:
  ColdModel() : IdentityModel(8) {}
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) override {
    if (is_cold) return std::shared_ptr<const Program>();
    return IdentityModel::program(inputs);
  }
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    is_cold = false;
    if (const std::uint64_t number = failing_allocation.exchange(0); number != 0) test::fail_allocation(number);
    if (inputs[0].shape[0] == 13) return invalid_argument("input 'data' has 13 rows, and 13 is no number of rows for this model");
    return IdentityModel::program(inputs);
  }
  std::atomic<bool> is_cold{true};
  std::atomic<std::uint64_t> failing_allocation{0};  ///< counted from within program()
};

/// A lane's runner that has done nothing yet, and requests that bring their one tensor along.
class NewLane {
 public:
  explicit NewLane(std::int64_t rows = 1) {
    const Tensor input = Tensor::create(DType::kFloat32, {rows, 16}).value();
    parts.bell.fd.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    for (std::size_t i = 0; i < kMembers; ++i) messages_.add(test::framed_request(i + 1, input), input);
  }
  std::span<const Frames> messages() const { return messages_.all(); }
  /// The first message's answer; waits for its program where it must be compiled.
  std::optional<StatusCode> answer() {
    Frames reply = runner_.answer(messages_[0]);
    while (const auto pending = runner_.waits_for()) {
      pollfd woken{parts.bell.fd.get(), POLLIN, 0};
      eventfd_t ignored = 0;
      while (!pending->is_ready()) {
        if (::poll(&woken, 1, kDeadlineMs) != 1) return std::nullopt;
        ::eventfd_read(parts.bell.fd.get(), &ignored);
      }
      reply = runner_.answer(messages_[0], pending);
    }
    return code_of(reply);
  }
  static std::optional<StatusCode> code_of(Frames reply) {
    if (reply.empty()) return std::nullopt;
    const test::AllocationsSucceed in_here;
    return static_cast<StatusCode>(wire::decode_reply(reply[0]).value().header.status);
  }

  ColdModel model;
  test::LaneParts parts{"echo", model, {{"data", DType::kFloat32, Shape{-1, 16}}}};

 private:
  test::RequestMessages messages_;

 public:
  RequestRunner runner_{parts.environment, 0, parts.line, parts.bell};
};

void expect_served(NewLane& lane) {
  EXPECT_EQ(lane.parts.line.running_request, 0u);
  EXPECT_EQ(lane.answer(), StatusCode::kOk) << "the next request";
  // What was ordered before the failure may still be compiled.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (lane.parts.program_line.compiling != 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(lane.parts.program_line.compiling, 0u);
  EXPECT_EQ(lane.parts.line.compiling_request, 0u);
}

/// The expected code, or that of "out of memory".
void expect_answer(std::optional<StatusCode> code, StatusCode expected, bool has_failed) {
  ASSERT_TRUE(code.has_value()) << "it waits forever";
  EXPECT_TRUE(*code == expected || (has_failed && *code == StatusCode::kFailedPrecondition)) << status_code_name(*code);
}

TEST(FailedAllocations, OfARequestAreItsAnswer) {
  for (const bool is_cold : {false, true}) {
    test::for_each_allocation(5, [&](std::uint64_t number) {
      NewLane lane;
      lane.model.is_cold = is_cold;
      test::fail_allocation(number);
      const auto code = lane.answer();
      const bool has_failed = test::has_allocation_failed();
      test::fail_allocation(0);
      expect_answer(code, StatusCode::kOk, has_failed);
      expect_served(lane);
      return has_failed;
    });
  }
}

TEST(FailedAllocations, OfJoinedRequestsLeaveNoneWithoutAnAnswer) {
  test::for_each_allocation(9, [](std::uint64_t number) {
    NewLane lane;
    lane.model.is_cold = false;
    std::size_t answers = 0;
    const RequestRunner::Send send = [&](Frames reply) { answers += NewLane::code_of(reply).has_value(); };
    test::fail_allocation(number);
    const bool is_answered = lane.runner_.answer_joined(lane.messages(), send);
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_EQ(answers, is_answered ? kMembers : 0u);
    EXPECT_TRUE(is_answered || has_failed);
    answers = 0;
    EXPECT_TRUE(lane.runner_.answer_joined(lane.messages(), send)) << "the next requests";
    EXPECT_EQ(answers, kMembers);
    expect_served(lane);
    return has_failed;
  });
}

TEST(FailedAllocations, OfACompilationAreToldToThoseWhoWait) {
  for (const std::int64_t rows : {1, 13}) {  // a program, a failure
    test::for_each_allocation(1, [&](std::uint64_t number) {
      NewLane lane(rows);
      lane.model.failing_allocation = number;
      const auto code = lane.answer();
      const bool has_failed = test::has_allocation_failed();
      const auto expected = rows == 13 ? StatusCode::kInvalidArgument : StatusCode::kOk;
      expect_answer(code, expected, has_failed);
      EXPECT_EQ(lane.parts.program_line.compiling, 0u);
      return has_failed;
    });
  }
}

// It runs on the control thread.
TEST(FailedAllocations, OfAnAttachEndIt) {
  std::vector<UniqueFd> fds;
  for (const char* label : {"input", "output"}) fds.push_back(create_memfd(label, 4096).value());
  test::for_each_allocation(3, [&](std::uint64_t number) {
    auto registry = std::make_shared<ArenaRegistry>();
    auto attach = std::make_shared<std::packaged_task<bool()>>([registry, number, &fds] {
      test::fail_allocation(number);
      try {
        (void)registry->attach(1, fds);
      } catch (const std::bad_alloc&) {
      }
      const bool has_failed = test::has_allocation_failed();
      test::fail_allocation(0);
      EXPECT_TRUE(registry->attach(1, fds).ok());
      EXPECT_TRUE(registry->find(1, std::chrono::milliseconds(0)).ok());
      return has_failed;
    });
    auto ended = attach->get_future();
    std::thread([attach] { (*attach)(); }).detach();  // it may never end
    const bool has_ended = ended.wait_for(std::chrono::milliseconds(kDeadlineMs)) == std::future_status::ready;
    EXPECT_TRUE(has_ended) << "it waits for its own lock";
    return has_ended && ended.get();
  });
}

// A worker may have little memory beside its outputs.
TEST(FailedAllocations, AProbeIsJudgedWithoutCopiesOfItsOutputs) {
  constexpr std::int64_t kCount = 1 << 20;
  IdentityModel model(8);
  test::LaneParts parts("echo", model, {{"data", DType::kFloat32, Shape{-1, kCount}}});
  Tensor output = Tensor::create(DType::kFloat32, Shape{1, kCount}).value();
  output.values<float>()[kCount - 1] = 5;
  parts.served.golden.outputs = {{"data_output", output}};
  wire::Reply reply;
  reply.header.kind = static_cast<std::uint16_t>(wire::Kind::kReply);
  reply.outputs = {wire::to_wire(output.view())};
  std::vector<std::byte> head;
  wire::encode_reply(reply, head);
  const std::span<const std::byte> frames[] = {head, {}, output.view().bytes()};
  const test::AllocatedPeak peak;
  const Status judged = judge_probe(parts.served, frames);
  EXPECT_LT(peak.bytes(), std::size_t{100'000});
  EXPECT_TRUE(judged.ok()) << judged.to_string();
}

}  // namespace
}  // namespace shoal::worker
