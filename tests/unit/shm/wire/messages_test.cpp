#include "shm/wire/messages.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace shoal::wire {
namespace {

WireTensor tensor(std::initializer_list<std::int64_t> dims, std::uint64_t offset = 0) {
  WireTensor wire = to_wire({DType::kFloat32, Shape(dims), nullptr});
  wire.offset_bytes = offset;
  return wire;
}

std::vector<std::byte> valid_request() {
  Request request;
  request.header.kind = static_cast<std::uint16_t>(Kind::kRequest);
  request.header.seq = 7;
  request.header.model_id = 1;
  request.inputs = {tensor({1, 3, 4}, 64), tensor({}, 128)};
  request.outputs = {WireTensor{.offset_bytes = 192, .capacity_bytes = 4000}};
  std::vector<std::byte> frame;
  encode_request(request, frame);
  return frame;
}

std::vector<std::byte> valid_reply() {
  Reply reply;
  reply.header.kind = static_cast<std::uint16_t>(Kind::kReply);
  reply.header.seq = 7;
  reply.outputs = {tensor({2, 2})};
  std::vector<std::byte> frame;
  encode_reply(reply, frame);
  return frame;
}

TEST(Messages, ARequestReadsBackAsWritten) {
  const auto request = decode_request(valid_request());
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->header.seq, 7u);
  ASSERT_EQ(request->inputs.size(), 2u);
  EXPECT_EQ(shape_of(request->inputs[0]), (Shape{1, 3, 4}));
  EXPECT_EQ(request->inputs[0].size_bytes, 48u);
  EXPECT_EQ(request->inputs[1].size_bytes, 4u);
  EXPECT_EQ(request->outputs[0].capacity_bytes, 4000u);
}

TEST(Messages, AReplyReadsBackAsWritten) {
  const auto reply = decode_reply(valid_reply());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(shape_of(reply->outputs[0]), (Shape{2, 2}));
}

TEST(Messages, NameBothVersionsWhenTheyDiffer) {
  auto frame = valid_request();
  const std::uint16_t version = 77;
  std::memcpy(frame.data() + 4, &version, sizeof version);
  const auto request = decode_request(frame);
  EXPECT_NE(request.status().message().find("77"), std::string::npos);
  EXPECT_NE(request.status().message().find(std::to_string(kVersionMajor)), std::string::npos);
}

TEST(Messages, AReplyIsNoRequest) { EXPECT_EQ(decode_request(valid_reply()).status().code(), StatusCode::kInvalidArgument); }

TEST(Messages, RefuseTensorsThatContradictThemselves) {
  const auto refused = [](auto change) {
    Request request = decode_request(valid_request()).value();
    change(request.inputs[0]);
    std::vector<std::byte> frame;
    encode_request(request, frame);
    return !decode_request(frame).ok();
  };
  EXPECT_TRUE(refused([](WireTensor& t) { t.rank = 9; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.dtype = 0; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.dtype = 99; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.location = 2; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.offset_bytes = 65; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.size_bytes = 47; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.dims[0] = -1; }));
  EXPECT_TRUE(refused([](WireTensor& t) { t.dims[0] = t.dims[1] = std::int64_t{1} << 40; }));
  EXPECT_FALSE(refused([](WireTensor&) {}));
}

TEST(Messages, RefuseFramesCutOffAnywhere) {
  for (const auto& frame : {valid_request(), valid_reply()}) {
    for (std::size_t size = 0; size < frame.size(); ++size) {
      const std::span<const std::byte> part(frame.data(), size);
      EXPECT_FALSE(decode_request(part).ok());
      EXPECT_FALSE(decode_reply(part).ok());
    }
  }
}

// Nothing to assert but that the decoders return: sanitizers watch over the rest.
TEST(Messages, DecodersSurviveAnyBytes) {
  std::mt19937 random(1);
  Request request;
  Reply reply;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> frame(random() % 700);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
    if (frame.size() >= 8 && round % 2) std::memcpy(frame.data(), valid_request().data(), 8);  // past the first checks
    (void)peek_kind(frame);
    (void)decode_control(frame);
    if (decode_request(frame, request).ok()) {
      EXPECT_LE(request.inputs.size() + request.outputs.size(), kMaxTensors);
    }
    (void)decode_reply(frame, reply).ok();
  }
}

TEST(Messages, DecodersSurviveEveryFlippedBit) {
  for (const bool is_request : {true, false}) {
    const auto original = is_request ? valid_request() : valid_reply();
    for (std::size_t bit = 0; bit < original.size() * 8; ++bit) {
      auto frame = original;
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      const auto request = decode_request(frame);
      const auto reply = decode_reply(frame);
      if (request.ok()) {
        for (const WireTensor& input : request->inputs) {
          EXPECT_EQ(
              static_cast<std::uint64_t>(shape_of(input).element_count()) * dtype_size_bytes(static_cast<DType>(input.dtype)),
              input.size_bytes);
        }
      }
      if (reply.ok()) {
        EXPECT_LE(reply->outputs.size(), kMaxTensors);
      }
    }
  }
}

// The bytes of PROTOCOL.md's worked example: a change here is a change of the protocol.
TEST(Messages, TheWorkedExampleOfTheSpecificationHolds) {
  Request request;
  request.header.kind = static_cast<std::uint16_t>(Kind::kRequest);
  request.header.seq = 5;
  request.header.model_id = 1;
  request.header.signature = 0x11223344;
  request.header.timeout_ns = 50'000'000;
  request.header.priority = -1;
  request.inputs = {tensor({1, 3})};
  request.outputs = {WireTensor{.offset_bytes = 64, .capacity_bytes = 128}};
  std::vector<std::byte> frame;
  encode_request(request, frame);
  std::string hex;
  for (const std::byte byte : frame) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(byte));
    hex += text;
  }
  const std::string zeros(400, '0');
  const auto z = [&](std::size_t bytes) { return zeros.substr(0, bytes * 2); };
  EXPECT_EQ(hex,
            "53484f4c"
            "0300"
            "0100"
            "0500000000000000"
            "01000000"
            "44332211"
            "80f0fa0200000000"
            "ff"
            "00"
            "0000"
            "0100"
            "0100" +
                z(48) + z(8) + z(8) +
                "0c00000000000000"
                "0100000000000000"
                "0300000000000000" +
                z(48) +
                "02"
                "01"
                "00" +
                z(5) +
                "4000000000000000"
                "8000000000000000" +
                z(80));
}

}  // namespace
}  // namespace shoal::wire
