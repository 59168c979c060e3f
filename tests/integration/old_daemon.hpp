// A daemon that knows nothing but the messages of a release (tests/fixtures). Offsets are those of PROTOCOL.md.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/raw_packets.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/wire_fixture.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {

/// What it does otherwise than the release.
struct DaemonHabits {
  std::string path = "PATH";                       ///< which PATH it sends
  std::uint64_t more_features = 0;                 ///< that it says both know
  bool is_newer = false;                           ///< it adds what a next release may add everywhere
  std::uint16_t control_version = 0, version = 0;  ///< of PATH and of WELCOME, instead of the release's
};

/// Lets one client in, in a thread of its own. Its model "echo" doubles float32[4]. The destructor waits until the client is
/// gone.
///   Threads  thread-compatible
class OldDaemon {
 public:
  OldDaemon(const WireFixture& fixture, DaemonHabits habits)
      : fixture_(fixture),
        habits_(std::move(habits)),
        listener_(bound_socket(directory_.path("attach"), SOCK_SEQPACKET)),
        thread_([this] { serve(); }) {}

  ~OldDaemon() { ::shutdown(listener_.get(), SHUT_RDWR); }  // if nobody has come
  OldDaemon(const OldDaemon&) = delete;
  OldDaemon& operator=(const OldDaemon&) = delete;

  std::string directory() const { return directory_.path(); }
  /// To requests: the doubled numbers, the same in a bundle, OVERLOADED, or DEADLINE_EXCEEDED with a RELEASE behind it.
  enum class Answer { kDoubled, kBundled, kOverloaded, kUnderWay };
  void answer_with(Answer answer) { next_answer_ = answer; }
  /// Waits until the client is gone, and returns what it asked.
  const std::vector<nlohmann::json>& questions() {
    if (thread_.joinable()) thread_.join();
    return questions_;
  }

 private:
  void serve() {
    attach_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    RawPacket attach = receive_packet(attach_.get());
    EXPECT_EQ(attach.bytes.substr(0, 8), fixture_.packet("ATTACH").substr(0, 8));
    ASSERT_EQ(attach.fds.size(), 3u) << "a socket and two arenas";
    EXPECT_EQ(value_at<std::uint32_t>(attach.bytes, 36), 3u);
    EXPECT_EQ(value_at<std::uint64_t>(attach.bytes, 16) & 1, 1u) << "it knows BUNDLE";
    input_ = std::move(attach.fds[1]);
    output_ = std::move(attach.fds[2]);
    const std::string path = directory_.path("c7");
    const sockaddr_un address = wire::local_address(path);
    EXPECT_EQ(::bind(attach.fds[0].get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    send_path(path);
    const RawPacket bound = receive_packet(attach_.get());
    if (habits_.control_version != 0) return;  // the client has gone
    EXPECT_EQ(bound.bytes, fixture_.packet("BOUND"));
    messages_ = zmtp::Connection(connected_socket(path, SOCK_STREAM));
    messages_.shake_hands("ROUTER");
    RawMessage welcome = fixture_.message("WELCOME");
    if (habits_.version != 0) patch(welcome[0], 4, habits_.version);
    messages_.send_message(welcome);
    const RawMessage welcomed = messages_.read_message();
    if (habits_.version != 0) return;
    EXPECT_EQ(welcomed, fixture_.message("WELCOMED"));
    for (RawMessage message; !(message = messages_.read_message(20'000)).empty();) handle(message);
  }

  void send_path(const std::string& path) {
    std::string packet = fixture_.packet(habits_.path).substr(0, 40) + path;
    patch(packet, 24, value_at<std::uint64_t>(packet, 24) | habits_.more_features);
    patch(packet, 32, static_cast<std::uint32_t>(path.size()));
    if (habits_.control_version != 0) patch(packet, 4, habits_.control_version);
    if (habits_.is_newer) {
      std::string unknown = packet;
      patch(unknown, 6, std::uint16_t{999});
      send_packet(attach_.get(), unknown);
    }
    send_packet(attach_.get(), packet);
  }

  void handle(const RawMessage& message) {
    const std::string& head = message[0];
    if (habits_.is_newer) {
      RawMessage unknown = fixture_.message("REPLY");
      patch(unknown[0], 6, std::uint16_t{99});
      patch(unknown[0], 8, value_at<std::uint64_t>(head, 8));
      messages_.send_message(unknown);
    }
    if (head.starts_with(fixture_.packet("DESCRIBE").substr(0, 8)) && message.size() == 2) return answer_question(message);
    if (head.starts_with(fixture_.packet("CANCEL").substr(0, 8)) && message.size() == 1) return;
    ASSERT_EQ(head.substr(0, 8), fixture_.packet("REQUEST").substr(0, 8)) << "no request";
    answer_request(message);
  }

  void answer_question(const RawMessage& message) {
    const auto asked = nlohmann::json::parse(message[1]);
    questions_.push_back(asked);
    const std::string what = asked.at("what"), model = asked.value("model", "");
    const std::string name = what == "describe"  ? model == "echo"  ? "DESCRIBED"
                                                   : model == "net" ? "DESCRIBED_WITH_EVERYTHING"
                                                                    : "NOT_DESCRIBED"
                             : what == "list"    ? "LISTED"
                             : what == "stats"   ? "STATS_ANSWER"
                             : what == "ping"    ? "PONG"
                             : what == "crashes" ? "CRASHES_ANSWER"
                             : what == "trace"   ? "TRACE_ANSWER"
                             : what == "stop"    ? "STOPPING"
                             : what == "unload"  ? "UNLOADED"
                                                 : "CHANGED";
    RawMessage answer = fixture_.message(name);
    patch(answer[0], 8, value_at<std::uint64_t>(message[0], 8));
    if (habits_.is_newer) {
      for (std::size_t offset = 18; offset < 24; ++offset) patch(answer[0], offset, '\xff');
      answer[1] = replaced(answer[1], "{", answer[1] == "{}" ? R"({"news": [1])" : R"({"news": [1], )");
      answer[0] += "more of the head";
      answer.resize(std::max<std::size_t>(answer.size(), 3));
      answer.emplace_back("a frame behind those of the release");
    }
    messages_.send_message(answer);
  }

  void answer_request(const RawMessage& message) {
    const std::string& head = message[0];
    const auto seq = value_at<std::uint64_t>(head, 8);
    const auto inputs = value_at<std::uint16_t>(head, 36), slots = value_at<std::uint16_t>(head, 38);
    ASSERT_EQ(inputs, 1);
    ASSERT_EQ(slots, 1);
    ASSERT_EQ(head.size(), 88u + 2 * 96);
    EXPECT_EQ(head.substr(88 + 16, 75), fixture_.packet("REQUEST").substr(88 + 16, 75)) << "size, dims, rank, dtype";
    std::array<float, 4> values{};
    if (head[88 + 90] == 1) {
      ASSERT_EQ(message.size(), 2u);
      values = value_at<std::array<float, 4>>(message[1], 0);
    } else {
      EXPECT_EQ(::pread(input_.get(), values.data(), sizeof values, value_at<off_t>(head, 88)),
                static_cast<ssize_t>(sizeof values));
    }
    for (float& value : values) value *= 2;
    const auto offset = value_at<off_t>(head, 88 + 96);
    const bool has_room = value_at<std::uint64_t>(head, 88 + 96 + 8) >= sizeof values;
    const Answer next = next_answer_;
    RawMessage reply = fixture_.message(next == Answer::kOverloaded ? "REPLY_OVERLOADED"
                                        : next == Answer::kUnderWay ? "REPLY_UNDER_WAY"
                                        : has_room                  ? "REPLY"
                                                                    : "REPLY_IN_FRAME");
    patch(reply[0], 8, seq);
    if (next == Answer::kDoubled || next == Answer::kBundled) {
      if (has_room) {
        EXPECT_EQ(::pwrite(output_.get(), values.data(), sizeof values, offset), static_cast<ssize_t>(sizeof values));
        patch(reply[0], 72, offset);
      } else {
        patch(reply[2], 0, values);
      }
      if (habits_.is_newer) {
        for (std::size_t i = 0; i < 5; ++i) patch(reply[0], 72 + 91 + i, '\xff');
        if (next == Answer::kDoubled) {  // bundles have no frames
          reply.resize(std::max<std::size_t>(reply.size(), 2));
          reply.emplace_back("a frame behind those of the release");
        }
      }
    }
    if (next == Answer::kBundled) {
      // In place of the first of two messages. The second is a RELEASE of another request.
      ASSERT_EQ(reply.size(), 1u) << "it fits into the arena";
      const std::string bundle = fixture_.packet("BUNDLE");
      constexpr std::size_t kFirst = 24 + 8;
      reply[0] = bundle.substr(0, kFirst) + reply[0] + bundle.substr(kFirst + reply[0].size());
    }
    messages_.send_message(reply);
    if (next != Answer::kUnderWay) return;
    RawMessage release = fixture_.message("RELEASE");
    patch(release[0], 8, seq);
    messages_.send_message(release);
  }

  const WireFixture& fixture_;
  const DaemonHabits habits_;
  const ScratchDirectory directory_;
  std::atomic<Answer> next_answer_ = Answer::kDoubled;
  UniqueFd listener_, attach_, input_, output_;
  zmtp::Connection messages_;
  std::vector<nlohmann::json> questions_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace shoal::test
