#include "worker/serve/request_runner.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <thread>

#include "shm/base/errors.hpp"
#include "shm/wire/flight.hpp"
#include "tests/support/lane_parts.hpp"
#include "worker/engine/identity_model.hpp"

namespace shoal::worker {
namespace {

using test::kClient;

constexpr std::uint64_t kSmallArenaBytes = 4096;

/// A lane's runner on the identity model, and one client's arenas.
class RequestRunnerTest : public ::testing::Test {
 protected:
  RequestRunnerTest() {
    for (const char* label : {"input", "output"}) fds_.push_back(create_memfd(label, kSmallArenaBytes).value());
    input_.emplace(Segment::map(fds_[0], Segment::Access::kReadWrite).value());
    output_.emplace(Segment::map(fds_[1], Segment::Access::kReadWrite).value());
    attach();
  }

  void attach() { EXPECT_TRUE(parts_.arenas.attach(kClient, fds_).ok()); }

  /// `count` floats at `offset`, one slot of `capacity` at 64.
  static wire::Request request(std::int64_t count, std::uint64_t offset, std::uint64_t capacity) {
    wire::Request request;
    request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest),
                      .seq = 3,
                      .client_id = kClient,
                      .request_id = 9,
                      .incarnation = 2,
                      .attempt = 1};
    wire::WireTensor input = wire::to_wire({DType::kFloat32, Shape{count}, nullptr});
    input.offset_bytes = offset;
    request.inputs = {input};
    wire::WireTensor slot{};
    slot.offset_bytes = 64;
    slot.capacity_bytes = capacity;
    request.outputs = {slot};
    return request;
  }

  wire::Reply answer(const wire::Request& request, std::span<const std::span<const std::byte>> more = {}) {
    std::vector<std::byte> frame;
    wire::encode_request(request, frame);
    std::vector<std::span<const std::byte>> frames{frame};
    frames.insert(frames.end(), more.begin(), more.end());
    const auto reply_frames = runner_.answer(frames);
    EXPECT_FALSE(reply_frames.empty());
    reply_frames_.clear();
    for (const auto& one : reply_frames) reply_frames_.emplace_back(one.begin(), one.end());
    return wire::decode_reply(reply_frames_[0]).value();
  }
  static StatusCode code(const wire::Reply& reply) { return static_cast<StatusCode>(reply.header.status); }
  std::string text() const { return {reinterpret_cast<const char*>(reply_frames_.at(1).data()), reply_frames_.at(1).size()}; }

  std::vector<UniqueFd> fds_;
  IdentityModel model_;
  test::LaneParts parts_{"echo", model_, {{"data", DType::kFloat32, Shape{-1}}}};
  wire::LaneLine& line_ = parts_.line;
  RequestRunner runner_{parts_.environment, 2, line_, parts_.bell};
  std::optional<Segment> input_, output_;
  std::vector<std::vector<std::byte>> reply_frames_;
};

TEST_F(RequestRunnerTest, ReadsAndWritesTheArenasInPlace) {
  const float values[] = {1, 2, 3};
  std::memcpy(input_->mutable_bytes().data() + 128, values, sizeof values);
  const wire::Reply reply = answer(request(3, 128, 64));
  EXPECT_EQ(code(reply), StatusCode::kOk);
  EXPECT_EQ(reply.header.request_id, 9u);
  EXPECT_EQ(reply.header.incarnation, 2u);
  EXPECT_EQ(reply.header.ran, static_cast<std::uint8_t>(Ran::kYes));
  EXPECT_EQ(reply.outputs.at(0).offset_bytes, 64u);
  EXPECT_EQ(std::memcmp(output_->bytes().data() + 64, values, sizeof values), 0);
  EXPECT_EQ(reply_frames_.size(), 1u);
  EXPECT_EQ(line_.running_request, 0u);
  EXPECT_EQ(line_.completed, 1u);
}

/// The identity model, whose program says that data decides how long it runs.
class VaryingModel final : public IdentityModel {
 public:
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) override {
    return std::shared_ptr<const Program>(std::make_shared<const VaryingProgram>(inputs[0]));
  }

 private:
  class VaryingProgram final : public Program {
   public:
    explicit VaryingProgram(const TensorSpec& input) {
      inputs_ = {input};
      outputs_ = {{"data_output", input.dtype, input.shape}};
      time_varies_ = true;
    }
    Status run(Context&, std::span<const TensorView> src, std::span<TensorView> dst) const override {
      std::memcpy(dst[0].data, src[0].data, src[0].size_bytes());
      return {};
    }
  };
};

// The replies of short runs are kept until then.
TEST(RequestRunner, SaysBeforeEachRunOfALoopThatItMayTakeLong) {
  VaryingModel model;
  test::LaneParts parts("echo", model, {{"data", DType::kFloat32, Shape{-1}}});
  int said = 0;
  RequestRunner runner(parts.environment, 0, parts.line, parts.bell, [&] { ++said; });
  const Tensor input = Tensor::create(DType::kFloat32, Shape{4}).value();
  test::RequestMessages messages;
  for (const std::uint64_t id : {1, 2, 3}) messages.add(test::framed_request(id, input), input);
  EXPECT_FALSE(runner.answer(messages[0]).empty());
  const int first = said;
  EXPECT_FALSE(runner.answer(messages[1]).empty());
  EXPECT_FALSE(runner.answer(messages[2]).empty());
  EXPECT_EQ(said, first + 2);
}

// They may come late although the worker is healthy: the thread that maps them may be busy or wait for a processor.
TEST_F(RequestRunnerTest, WhileItsArenasAreOnTheirWayTheLineNamesNobody) {
  parts_.arenas.detach(kClient);
  std::uint64_t named = 0;
  std::jthread control([&] {
    for (int i = 0; i < 50; ++i) {
      named |= line_.running_request.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    attach();
  });
  EXPECT_EQ(code(answer(request(3, 128, 64))), StatusCode::kOk);
  control.join();
  EXPECT_EQ(named, 0u);
}

// The client takes FAILED_PRECONDITION with ran = no for a model that has changed, and sends the request again.
TEST_F(RequestRunnerTest, ArenasThatFindNoMemoryAreNoModelThatHasChanged) {
  fds_.clear();
  for (const char* label : {"input", "output"}) fds_.push_back(reserve_memfd(label, std::uint64_t{1} << 46).value());  // of 2^47
  EXPECT_EQ(parts_.arenas.attach(kClient, fds_).code(), StatusCode::kFailedPrecondition);
  const wire::Reply reply = answer(request(3, 128, 4000));
  EXPECT_EQ(code(reply), StatusCode::kFailedPrecondition) << text();
  EXPECT_EQ(static_cast<Ran>(reply.header.ran), Ran::kMaybe);
  EXPECT_EQ(line_.completed, 1u);
}

TEST(LaneLine, NamesTheRunningRequestAgainAfterAnotherOne) {
  wire::LaneLine line{};
  { const NamedMeanwhile other(line, 7, 2); }
  EXPECT_EQ(line.running_request, 0u);
  name_in_line(line, 9, 3, 4);
  line.running_hash = 5;
  {
    const NamedMeanwhile other(line, 7, 2);
    EXPECT_EQ(line.running_request, 7u);
    EXPECT_EQ(line.running_attempt, 2u);
    EXPECT_EQ(line.running_count, 1u);
    EXPECT_EQ(line.running_hash, 0u);
  }
  EXPECT_EQ(line.running_request, 9u);
  EXPECT_EQ(line.running_attempt, 3u);
  EXPECT_EQ(line.running_count, 4u);
  EXPECT_EQ(line.running_hash, 5u);
}

TEST_F(RequestRunnerTest, WhatDoesNotFitItsSlotTravelsAsAFrame) {
  const wire::Reply reply = answer(request(100, 0, 64));
  EXPECT_EQ(code(reply), StatusCode::kOk);
  EXPECT_EQ(reply.outputs.at(0).location, static_cast<std::uint8_t>(wire::Location::kFrame));
  ASSERT_EQ(reply_frames_.size(), 3u);
  EXPECT_EQ(reply_frames_[2].size(), 400u);
}

TEST_F(RequestRunnerTest, InputsMayTravelAsFramesWithoutAnyArena) {
  wire::Request framed = request(2, 0, 0);
  framed.header.client_id = 99;
  framed.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  const float values[] = {4, 5};
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(values))};
  EXPECT_EQ(code(answer(framed, frames)), StatusCode::kOk);
  EXPECT_EQ(std::memcmp(reply_frames_.at(2).data(), values, sizeof values), 0);
  EXPECT_EQ(code(answer(framed)), StatusCode::kInvalidArgument);
  EXPECT_EQ(text(), "model 'echo': input 'data': its 8 bytes did not come with the request");
}

TEST_F(RequestRunnerTest, TensorsOutsideTheArenasAreRefused) {
  EXPECT_EQ(code(answer(request(3, kSmallArenaBytes, 64))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(answer(request(3, ~std::uint64_t{63}, 64))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(answer(request(3, 0, kSmallArenaBytes))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(answer(request(3, 0, ~std::uint64_t{0}))), StatusCode::kInvalidArgument);
}

TEST_F(RequestRunnerTest, WrongInputsAreNamedAndNothingRan) {
  wire::Request wrong = request(3, 0, 64);
  wrong.inputs.clear();
  EXPECT_EQ(code(answer(wrong)), StatusCode::kInvalidArgument);
  EXPECT_EQ(text(), "model 'echo': 0 inputs (it has 1)");
  wrong = request(3, 0, 64);
  wrong.inputs[0].dtype = static_cast<std::uint8_t>(DType::kInt32);
  const wire::Reply reply = answer(wrong);
  EXPECT_EQ(text(), "model 'echo': input 'data' is int32 (wants float32)");
  EXPECT_EQ(reply.header.ran, static_cast<std::uint8_t>(Ran::kNo));
}

TEST_F(RequestRunnerTest, ACancelledRequestIsNotBegun) {
  parts_.cancelled.add(9);
  const wire::Reply reply = answer(request(3, 0, 64));
  EXPECT_EQ(code(reply), StatusCode::kCancelled);
  EXPECT_EQ(reply.header.ran, static_cast<std::uint8_t>(Ran::kNo));
  EXPECT_EQ(line_.completed, 1u);
}

TEST_F(RequestRunnerTest, TheFlightRecorderHasItsEvents) {
  (void)answer(request(3, 128, 64));
  const auto events = wire::read_flight(parts_.ring);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, wire::FlightKind::kBegun);
  EXPECT_EQ(events[0].value, 1u);
  EXPECT_EQ(events[1].kind, wire::FlightKind::kEnded);
  for (const auto& event : events) {
    EXPECT_EQ(event.request, 9u);
    EXPECT_EQ(event.lane, 2);
  }
}

TEST_F(RequestRunnerTest, QuarantinedInputsAreRefusedWithoutARun) {
  const float bad[] = {6, 6, 6}, good[] = {1, 2, 3};
  std::memcpy(input_->mutable_bytes().data(), bad, sizeof bad);
  std::memcpy(input_->mutable_bytes().data() + 128, good, sizeof good);
  const TensorView view{DType::kFloat32, Shape{3}, input_->mutable_bytes().data()};
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_inputs({&view, 1})));
  ASSERT_TRUE(parts_.quarantine.replace(hash, 1).ok());
  const wire::Reply reply = answer(request(3, 0, 64));
  EXPECT_EQ(code(reply), StatusCode::kPoison);
  EXPECT_EQ(reply.header.ran, static_cast<std::uint8_t>(Ran::kNo));
  EXPECT_NE(text().find(hash), std::string::npos) << text();
  EXPECT_EQ(line_.step_counter, 0u);
  EXPECT_EQ(code(answer(request(3, 128, 64))), StatusCode::kOk);
}

/// The identity model, with steps that do what the test says.
class SteppingModel final : public IdentityModel {
 public:
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    SHOAL_ASSIGN_OR_RETURN(auto identity, IdentityModel::program(inputs));
    return std::shared_ptr<const Program>(std::make_shared<SteppingProgram>(std::move(identity), *this));
  }
  std::function<void(int)> at_step = [](int) {};

 private:
  class SteppingProgram final : public Program {
   public:
    SteppingProgram(std::shared_ptr<const Program> identity, const SteppingModel& model)
        : identity_(std::move(identity)), model_(model) {
      inputs_ = identity_->inputs();
      outputs_ = identity_->outputs();
    }
    Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
      for (int step = 1; step <= 100; ++step) {
        if (!context.progress->enter_step("Step")) return cancelled("told to end");
        model_.at_step(step);
      }
      return identity_->run(context, src, dst);
    }

   private:
    std::shared_ptr<const Program> identity_;
    const SteppingModel& model_;
  };
};

/// Requests of one float that travels as a frame.
class SteppingRunnerTest : public ::testing::Test {
 protected:
  StatusCode answer(std::uint16_t lane_flags = 0) {
    wire::Request request;
    request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest), .request_id = 9, .lane_flags = lane_flags};
    request.inputs = {wire::to_wire({DType::kFloat32, Shape{1}, nullptr})};
    request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
    std::vector<std::byte> frame;
    wire::encode_request(request, frame);
    const std::span<const std::byte> frames[] = {frame, std::as_bytes(std::span(value_))};
    const auto reply = runner_.answer(frames);
    text_.assign(reply.size() > 1 ? reinterpret_cast<const char*>(reply[1].data()) : "", reply.size() > 1 ? reply[1].size() : 0);
    if (reply.size() > 2) std::memcpy(&output_, reply[2].data(), sizeof output_);
    return static_cast<StatusCode>(wire::decode_reply(reply[0]).value().header.status);
  }

  float value_[1] = {7};
  SteppingModel model_;
  test::LaneParts parts_{"steps", model_, {{"data", DType::kFloat32, Shape{-1}}}};
  RequestRunner runner_{parts_.environment, 0, parts_.line, parts_.bell};
  std::string text_;
  float output_ = 0;  ///< of the last request that was answered
};

TEST_F(SteppingRunnerTest, ARunEndsBeforeItsNextStepWhenItsRequestIsCancelled) {
  model_.at_step = [this](int step) {
    if (step == 10) parts_.cancelled.add(9);
  };
  EXPECT_EQ(answer(), StatusCode::kCancelled);
  EXPECT_EQ(parts_.line.step_counter, 10u);
  EXPECT_EQ(wire::read_flight(parts_.ring).at(1).kind, wire::FlightKind::kCancelled);
}

TEST_F(SteppingRunnerTest, ARunDoesNotCareForOtherCancellations) {
  model_.at_step = [this](int step) { parts_.cancelled.add(1000 + static_cast<std::uint64_t>(step)); };
  EXPECT_EQ(answer(), StatusCode::kOk);
  EXPECT_EQ(parts_.line.step_counter, 101u);
}

TEST_F(SteppingRunnerTest, ASuspectsHashStandsInItsLineWhileItRuns) {
  std::uint64_t seen = 0;
  model_.at_step = [&](int) { seen = parts_.line.running_hash; };
  EXPECT_EQ(answer(), StatusCode::kOk);
  EXPECT_EQ(seen, 0u);
  EXPECT_EQ(answer(wire::kHashInputs), StatusCode::kOk);
  const TensorView view{DType::kFloat32, Shape{1}, reinterpret_cast<std::byte*>(value_)};
  EXPECT_EQ(seen, hash_inputs({&view, 1}));
  EXPECT_EQ(parts_.line.running_hash, 0u);
}

TEST_F(SteppingRunnerTest, ASuspectThatFindsNoMemoryBesideTheCopyOfItsInputsRunsWithoutOne) {
  model_.at_step = [&](int) {
    if (parts_.line.running_hash != 0) throw std::bad_alloc();
  };
  EXPECT_EQ(answer(wire::kHashInputs), StatusCode::kOk);
  EXPECT_EQ(output_, 7);
}

// Otherwise a client could show the inputs of others while they are hashed, and have these refused.
TEST_F(SteppingRunnerTest, WhatIsHashedOfASuspectIsWhatRuns) {
  for (const bool is_suspect : {false, true}) {
    value_[0] = 7;
    model_.at_step = [&](int) { value_[0] = 8; };
    EXPECT_EQ(answer(is_suspect ? wire::kHashInputs : std::uint16_t{0}), StatusCode::kOk);
    EXPECT_EQ(output_, is_suspect ? 7 : 8);
  }
}

TEST_F(SteppingRunnerTest, AnAllocationThatFailsIsTheAnswerAndTheLaneServesOn) {
  model_.at_step = [](int step) {
    if (step == 5) throw std::bad_alloc();
  };
  EXPECT_EQ(answer(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(text_, "model 'steps': out of memory: the request needs more than this machine has left");
  EXPECT_EQ(parts_.line.running_request, 0u);
  model_.at_step = [](int) {};
  EXPECT_EQ(answer(), StatusCode::kOk);
}

TEST_F(RequestRunnerTest, SurvivesAnyBytes) {
  std::mt19937 random(11);
  std::vector<std::byte> frame;
  wire::encode_request(request(3, 128, 64), frame);
  for (int round = 0; round < 20'000; ++round) {
    auto broken = frame;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    broken.resize(random() % 8 == 0 ? random() % broken.size() : broken.size());
    // The client's id stays: an unknown one costs a second of waiting.
    if (broken.size() >= sizeof(wire::RequestHeader)) {
      const std::uint64_t client = kClient;
      std::memcpy(broken.data() + offsetof(wire::RequestHeader, client_id), &client, sizeof client);
    }
    const std::span<const std::byte> frames[] = {broken};
    const auto reply = runner_.answer(frames);
    if (!reply.empty()) {
      EXPECT_TRUE(wire::decode_reply(reply[0]).ok());
    }
  }
}

}  // namespace
}  // namespace shoal::worker
