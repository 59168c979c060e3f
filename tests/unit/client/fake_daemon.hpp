// FakeDaemon: one client's daemon, played step by step by a test.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {

/// Listens in a directory and serves the model "m": one input "data" of uint8[-1], and one output of uint8[-1, `output_bytes`],
/// or none if that is 0. Each step waits for the client at most 10 s.
///   Threads  thread-bound
class FakeDaemon {
 public:
  explicit FakeDaemon(std::string directory, std::int64_t output_bytes = 0)
      : directory_(std::move(directory)),
        output_bytes_(output_bytes),
        listener_(bound_socket(directory_ + "/attach", SOCK_SEQPACKET)) {
    const timeval limit{.tv_sec = 10};
    EXPECT_EQ(::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  }

  /// Instead of that model.
  void describe_as(std::string description) { description_ = std::move(description); }
  /// What a WELCOME has behind its header.
  void welcome_with(std::vector<std::string> descriptions) { welcome_descriptions_ = std::move(descriptions); }
  /// Of the model.
  std::string description() const {
    if (!description_.empty()) return description_;
    const std::string outputs = R"({"name": "out", "dtype": "uint8", "shape": [-1, )" + std::to_string(output_bytes_) + "]}";
    return R"({"name": "m", "model_id": 1, "signature": 1, "inputs": [{"name": "data", "dtype": "uint8", "shape": [-1]}], )"
           R"("outputs": [)" +
           (output_bytes_ > 0 ? outputs : "") + "]}";
  }
  /// What send_path() tells the next client: the daemon takes no longer message.
  void limit_messages(std::uint64_t most_bytes) { longest_frame_bytes_ = most_bytes; }

  struct Message {
    wire::Kind kind;
    std::uint64_t seq;
    std::string text;  ///< of a control request
  };

  /// Lets the next client in, up to WELCOMED.
  void let_in() {
    accept();
    send_path();
    ASSERT_TRUE(comes([&] { return is_bound(); }));
    welcome();
  }
  /// Whether a client waits for accept().
  bool has_visitor() const {
    pollfd fd{listener_.get(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  void accept() {
    client_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(client_) << "no client has come";
    auto attach = wire::receive_control(client_.get(), true);
    ASSERT_TRUE(attach.ok() && attach->has_value());
    socket_ = std::move((*attach)->fds[0]);
    if ((*attach)->fds.size() > 1) input_arena_ = std::move((*attach)->fds[1]);
  }
  void refuse(StatusCode code, std::string text) {
    EXPECT_TRUE(
        wire::send_control(client_.get(),
                           {.kind = wire::ControlKind::kRefused, .a = static_cast<std::uint64_t>(code), .text = std::move(text)})
            .ok());
  }
  void send_path() {
    std::filesystem::remove(path());  // of an earlier client
    EXPECT_TRUE(wire::bind_at(socket_.get(), path()).ok());
    EXPECT_TRUE(
        wire::send_control(client_.get(), {.kind = wire::ControlKind::kPath, .id = 1, .a = longest_frame_bytes_, .text = path()})
            .ok());
  }
  /// Whether BOUND has come. Does not wait.
  bool is_bound() {
    const auto message = wire::receive_control(client_.get(), false);
    return message.ok() && message->has_value() && (*message)->kind == wire::ControlKind::kBound;
  }
  void welcome() {
    router_.emplace(wire::Router::create(context_).value());
    ASSERT_TRUE(router_->connect(path(), 1, false).ok());
    const wire::ControlHeader welcome = wire::make_control(wire::Kind::kWelcome, 0);
    std::vector<std::span<const std::byte>> frames{std::as_bytes(std::span(&welcome, 1))};
    for (const std::string& text : welcome_descriptions_) frames.push_back(std::as_bytes(std::span(text)));
    ASSERT_TRUE(router_->push(1, frames, {}).ok());
    router_->flush();
  }
  void drop_client() {
    client_.reset();
    socket_.reset();
    router_.reset();
  }

  /// The next control request or request. Describes the model meanwhile, and answers pings.
  std::optional<Message> receive(std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    std::optional<Message> found;
    comes([&] { return (found = receive_now()).has_value(); }, limit);
    return found;
  }
  std::uint64_t receive_request() {
    const auto message = receive();
    EXPECT_TRUE(message && message->kind == wire::Kind::kRequest);
    return message ? message->seq : 0;
  }
  /// An input of the request that receive_request() took last.
  struct Input {
    Shape shape;
    std::uint64_t offset = 0;  ///< in the arena; 0 for one that came as a frame
    std::vector<std::byte> bytes;
  };
  Input input(std::size_t index) const {
    wire::Request request;
    EXPECT_TRUE(wire::decode_request(last_request_[0], request).ok());
    const wire::WireTensor& tensor = request.inputs.at(index);
    Input input{wire::shape_of(tensor), tensor.offset_bytes, std::vector<std::byte>(tensor.size_bytes)};
    if (tensor.location == static_cast<std::uint8_t>(wire::Location::kFrame)) {
      const auto is_frame = [](const wire::WireTensor& each) {
        return each.location == static_cast<std::uint8_t>(wire::Location::kFrame);
      };
      const auto before =
          std::count_if(request.inputs.begin(), request.inputs.begin() + static_cast<std::ptrdiff_t>(index), is_frame);
      const auto frame = last_request_[1 + static_cast<std::size_t>(before)];
      input.bytes.assign(frame.begin(), frame.end());
    } else {
      EXPECT_EQ(::pread(input_arena_.get(), input.bytes.data(), input.bytes.size(), static_cast<off_t>(input.offset)),
                static_cast<ssize_t>(input.bytes.size()));
    }
    return input;
  }
  void answer(std::uint64_t seq, std::string_view json) {
    const wire::ControlHeader header = wire::make_control(wire::Kind::kControlReply, seq);
    const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(json))};
    EXPECT_TRUE(router_->push(1, wire::Frames(frames), {}).ok());
    router_->flush();
  }
  /// Answers a request with an error, which needs no outputs.
  void reply(std::uint64_t seq, StatusCode code = StatusCode::kInternal) {
    wire::Reply reply;
    reply.header.kind = static_cast<std::uint16_t>(wire::Kind::kReply);
    reply.header.seq = seq;
    reply.header.status = static_cast<std::uint16_t>(code);
    reply.header.released = 1;
    std::vector<std::byte> head;
    wire::encode_reply(reply, head);
    const std::string_view text = "the model failed, and says so in so many words";
    const std::span<const std::byte> frames[] = {head, std::as_bytes(std::span(text))};
    EXPECT_TRUE(router_->push(1, wire::Frames(frames), {}).ok());
    router_->flush();
  }
  /// Answers a request with a header that promises an output, which does not come.
  void reply_cut(std::uint64_t seq) {
    wire::Reply reply;
    reply.header.kind = static_cast<std::uint16_t>(wire::Kind::kReply);
    reply.header.seq = seq;
    reply.header.released = 1;
    reply.outputs.emplace_back();
    std::vector<std::byte> head;
    wire::encode_reply(reply, head);
    head.resize(sizeof reply.header);
    EXPECT_TRUE(router_->push(1, head).ok());
    router_->flush();
  }
  /// Answers a request with an output of shape [1, `output_bytes`], which travels as a frame. Each byte of it is `value`.
  void reply_with_output(std::uint64_t seq, std::uint8_t value = 0) {
    wire::Reply reply;
    reply.header.kind = static_cast<std::uint16_t>(wire::Kind::kReply);
    reply.header.seq = seq;
    reply.header.released = 1;
    const std::vector<std::byte> bytes(static_cast<std::size_t>(output_bytes_), std::byte{value});
    wire::WireTensor output{};
    output.size_bytes = bytes.size();
    output.dims[0] = 1;
    output.dims[1] = output_bytes_;
    output.rank = 2;
    output.dtype = static_cast<std::uint8_t>(DType::kUInt8);
    output.location = static_cast<std::uint8_t>(wire::Location::kFrame);
    reply.outputs.push_back(output);
    std::vector<std::byte> head;
    wire::encode_reply(reply, head);
    const std::span<const std::byte> frames[] = {head, {}, bytes};
    EXPECT_TRUE(router_->push(1, wire::Frames(frames), {}).ok());
    router_->flush();
  }
  /// Calls `is_there` until it is true. False if that takes longer than `limit`.
  template <typename Condition>
  static bool comes(const Condition& is_there, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!is_there()) {
      if (std::chrono::steady_clock::now() > end) return false;
      ::poll(nullptr, 0, 1);
    }
    return true;
  }

 private:
  std::string path() const { return directory_ + "/c1"; }
  std::optional<Message> receive_now() {
    wire::Parcel message;
    wire::PeerId peer = 0;
    while (true) {
      const auto received = router_->receive(peer, message);
      if (!received.ok() || !*received) return std::nullopt;
      const wire::Kind kind = wire::peek_kind(message[0]).value();
      if (kind == wire::Kind::kWelcomed || kind == wire::Kind::kCancel) continue;
      if (kind != wire::Kind::kControl) {
        wire::RequestHeader header;
        std::memcpy(&header, message[0].data(), sizeof header);
        last_request_ = message;
        return Message{kind, header.seq, {}};
      }
      const std::uint64_t seq = wire::decode_control(message[0]).value().seq;
      const std::string text(reinterpret_cast<const char*>(message[1].data()), message[1].size());
      if (text.find("ping") != std::string::npos) {
        answer(seq, "{}");
      } else if (text.find("describe") != std::string::npos) {
        answer(seq, description());
      } else {
        return Message{kind, seq, text};
      }
    }
  }
  std::string directory_;
  std::vector<std::string> welcome_descriptions_;
  std::int64_t output_bytes_;
  std::uint64_t longest_frame_bytes_ = 0;  // 0: the default
  std::string description_;                // empty: that of the model "m"
  wire::Parcel last_request_;
  UniqueFd listener_, client_, socket_, input_arena_;
  wire::MessageContext context_;
  std::optional<wire::Router> router_;
};

}  // namespace shoal::test
