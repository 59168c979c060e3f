#include "tests/integration/raw_client.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "tests/support/sparse_memfd.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {
constexpr int kLimitMs = 5000;
}

void RawClient::connect() {
  attach_ = connected_socket(directory_ + "/attach", SOCK_SEQPACKET);
  ASSERT_TRUE(attach_);
}

std::optional<wire::ControlMessage> RawClient::receive_control() {
  pollfd waited{attach_.get(), POLLIN, 0};
  if (::poll(&waited, 1, kLimitMs) != 1) return std::nullopt;
  auto received = wire::receive_control(attach_.get());
  return received.ok() ? std::move(*received) : std::nullopt;
}

wire::ControlMessage RawClient::make_hello() {
  unbound_ = unbound_socket();
  wire::ControlMessage hello{.kind = wire::ControlKind::kAttach};
  hello.fds.push_back(duplicate_fd(unbound_.get()).value());
  return hello;
}

UniqueFd RawClient::take_listener() {
  EXPECT_EQ(::listen(unbound_.get(), 8), 0) << std::strerror(errno);
  ::fcntl(unbound_.get(), F_SETFL, 0);
  return std::move(unbound_);
}

std::optional<wire::ControlMessage> RawClient::begin_attach(std::uint64_t input_bytes, std::uint64_t output_bytes) {
  connect();
  wire::ControlMessage hello = make_hello();
  if (input_bytes > 0) {
    UniqueFd input = create_memfd("input", input_bytes).value();
    output_ = create_memfd("output", output_bytes).value();
    input_ = Segment::map(input, Segment::Access::kReadWrite).value();  // before the seal forbids it
    input_->populate(0, input_->size_bytes());
    Segment output = Segment::map(output_, Segment::Access::kReadWrite).value();
    output.populate(0, output.size_bytes());
    EXPECT_TRUE(seal(input, Seals::kOneWriter).ok() && seal(output_, Seals::kFixedSize).ok());
    hello.fds.push_back(std::move(input));
    hello.fds.push_back(duplicate_fd(output_.get()).value());
  }
  (void)wire::send_control(attach_.get(), hello).ok();  // the daemon may have refused it already
  return receive_control();
}

std::string RawClient::attach_until_path(std::uint64_t input_bytes, std::uint64_t output_bytes) {
  const auto path = begin_attach(input_bytes, output_bytes);
  EXPECT_TRUE(path && path->kind == wire::ControlKind::kPath) << (path ? path->text : "no answer");
  return path ? path->text : "";
}

void RawClient::attach(std::uint64_t input_bytes, std::uint64_t output_bytes) {
  finish_attach(attach_until_path(input_bytes, output_bytes));
}

std::string RawClient::attach_or_why_not() { return finish_attach_or_why_not(begin_attach(4096, 4096)); }

std::string RawClient::attach_sparse_or_why_not(std::uint64_t bytes) {
  connect();
  wire::ControlMessage hello = make_hello();
  for (int i = 0; i < 2; ++i) {
    hello.fds.push_back(sparse_memfd(bytes));
    EXPECT_EQ(::pwrite(hello.fds.back().get(), "", 1, 0), 1);
  }
  EXPECT_TRUE(seal(hello.fds[1], Seals::kOneWriter).ok() && seal(hello.fds[2], Seals::kFixedSize).ok());
  EXPECT_TRUE(wire::send_control(attach_.get(), hello).ok());
  return finish_attach_or_why_not(receive_control());
}

std::string RawClient::finish_attach_or_why_not(const std::optional<wire::ControlMessage>& answer) {
  if (!answer) return "no answer";
  if (answer->kind == wire::ControlKind::kRefused) return answer->text;
  finish_attach(answer->text);
  return "";
}

void RawClient::finish_attach(const std::string& path) {
  ASSERT_FALSE(path.empty());
  socket_ = wire::Dealer::listen(*context_, std::move(unbound_)).value();
  ASSERT_TRUE(wire::send_control(attach_.get(), {.kind = wire::ControlKind::kBound}).ok());
  ASSERT_TRUE(receive());
  ASSERT_EQ(wire::peek_kind(message_[0]).value(), wire::Kind::kWelcome);
  const auto welcomed = wire::make_control(wire::Kind::kWelcomed, 0);
  send(std::as_bytes(std::span(&welcomed, 1)));
  ask(1, R"({"what": "describe", "model": "echo"})");
  ASSERT_TRUE(receive());
  ASSERT_EQ(message_.size(), 2u);
  const auto described =
      nlohmann::json::parse(std::string(reinterpret_cast<const char*>(message_[1].data()), message_[1].size()));
  model_id_ = described.at("model_id");
  signature_ = described.at("signature");
}

void RawClient::send(std::span<const std::byte> frame) { send(wire::Frames(&frame, 1)); }
void RawClient::send(wire::Frames frames) { ASSERT_TRUE(socket_.send(frames).ok()); }

bool RawClient::try_ask(std::uint64_t seq, std::string_view question) {
  const wire::ControlHeader head = wire::make_control(wire::Kind::kControl, seq);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(question))};
  return try_send(wire::Frames(frames));
}

wire::Request RawClient::request(std::uint64_t seq) {
  wire::Request request;
  request.header.kind = static_cast<std::uint16_t>(wire::Kind::kRequest);
  request.header.seq = seq;
  request.header.model_id = model_id_;
  request.header.signature = signature_;
  request.inputs = {wire::to_wire({DType::kFloat32, Shape{4}, nullptr})};
  request.outputs = {wire::WireTensor{.capacity_bytes = 64}};
  return request;
}

void RawClient::send(const wire::Request& request) {
  std::vector<std::byte> frame;
  wire::encode_request(request, frame);
  send(frame);
}

wire::Reply RawClient::receive_reply() {
  if (!receive()) {
    ADD_FAILURE() << "no reply came";
    return {};
  }
  auto reply = wire::decode_reply(message_[0]);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? *std::move(reply) : wire::Reply();
}

bool RawClient::receive() {
  const std::uint64_t end = monotonic_now_ns() + std::uint64_t{kLimitMs} * 1'000'000;
  while (monotonic_now_ns() < end) {
    const auto received = socket_.receive(message_);
    if (!received.ok()) return false;
    if (*received) return true;
    wire::Waitable items[] = {{.socket = &socket_}};
    wire::wait(items, std::chrono::milliseconds(100));
  }
  return false;
}

}  // namespace shoal::test
