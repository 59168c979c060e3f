#include "worker/serve/request_runner.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "worker/engine/identity_model.hpp"

namespace shoal::worker {
namespace {

constexpr std::uint64_t kClient = 5, kArenaBytes = 4096;

/// A lane's runner on the identity model, and one client's arenas.
class RequestRunnerTest : public ::testing::Test {
 protected:
  RequestRunnerTest() {
    UniqueFd input = create_memfd("input", kArenaBytes).value(), output = create_memfd("output", kArenaBytes).value();
    input_.emplace(Segment::map(input, Segment::Access::kReadWrite).value());
    output_.emplace(Segment::map(output, Segment::Access::kReadWrite).value());
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(input));
    fds.push_back(std::move(output));
    EXPECT_TRUE(arenas_.attach(kClient, fds).ok());
  }

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

  IdentityModel model_;
  ServedModelView served_{"echo", model_, {{"data", DType::kFloat32, Shape{-1}}}};
  ArenaRegistry arenas_;
  CancelledRequests cancelled_;
  wire::LaneLine line_{};
  wire::ProgramLine program_line_{};
  ProgramCompiler compiler_{model_, cancelled_, program_line_};
  RequestRunner runner_{served_, arenas_, cancelled_, compiler_, line_, -1};
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
  EXPECT_EQ(code(answer(request(3, kArenaBytes, 64))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(answer(request(3, ~std::uint64_t{63}, 64))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(answer(request(3, 0, kArenaBytes))), StatusCode::kInvalidArgument);
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
  cancelled_.add(9);
  const wire::Reply reply = answer(request(3, 0, 64));
  EXPECT_EQ(code(reply), StatusCode::kCancelled);
  EXPECT_EQ(reply.header.ran, static_cast<std::uint8_t>(Ran::kNo));
  EXPECT_EQ(line_.completed, 0u);
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
