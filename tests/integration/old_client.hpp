// A client that knows nothing but the messages of a release (tests/fixtures). Offsets are those of PROTOCOL.md.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "tests/integration/raw_packets.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/wire_fixture.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {

/// Offsets of what both headers of messages and control packets have.
inline constexpr std::size_t kVersionAt = 4, kKindAt = 6, kSeqAt = 8;

/// Threads: thread-bound
class OldClient {
 public:
  static constexpr std::size_t kArenaBytes = 4096;

  OldClient(std::string directory, const WireFixture& fixture) : directory_(std::move(directory)), fixture_(fixture) {
    input_ = arena("input", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    output_ = arena("output", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  }
  ~OldClient() { ::munmap(input_bytes_, kArenaBytes); }
  OldClient(const OldClient&) = delete;
  OldClient& operator=(const OldClient&) = delete;

  /// Connects, sends the packet, an ATTACH, and returns the daemon's answer.
  std::string begin(const std::string& attach) {
    attach_ = connected_socket(directory_ + "/attach", SOCK_SEQPACKET);
    EXPECT_TRUE(attach_);
    socket_ = unbound_socket();
    send_packet(attach_.get(), attach, {socket_.get(), input_.get(), output_.get()});
    return receive_control();
  }
  /// Listens, says so, and waits for the daemon's first message, which it returns.
  RawMessage be_connected() {
    EXPECT_EQ(::listen(socket_.get(), 8), 0) << std::strerror(errno);
    ::fcntl(socket_.get(), F_SETFL, 0);
    send_control(fixture_.packet("BOUND"));
    messages_ = zmtp::Connection(UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    messages_.shake_hands("DEALER");
    return receive();
  }
  /// The whole handshake. Returns the features that the daemon knows of those in the ATTACH.
  std::uint64_t attach(const std::string& packet) {
    const std::string path = begin(packet);
    EXPECT_EQ(path.substr(0, 8), fixture_.packet("PATH").substr(0, 8)) << path;
    EXPECT_EQ(value_at<std::uint32_t>(path, 32), path.size() - 40) << "bytes of text";
    const auto features = value_at<std::uint64_t>(path, 24);
    RawMessage welcome = be_connected();
    EXPECT_EQ(welcome.size() > 1, (features & wire::kDescriptions) != 0);
    welcome.resize(1);
    EXPECT_EQ(welcome, fixture_.message("WELCOME"));
    send(fixture_.message("WELCOMED"));
    return features;
  }

  void send_control(const std::string& packet) { send_packet(attach_.get(), packet); }
  /// The daemon's next control packet; "" when it hangs up.
  std::string receive_control() { return receive_packet(attach_.get()).bytes; }
  void send(const RawMessage& message) { EXPECT_TRUE(messages_.send_message(message)); }
  /// Several messages at once.
  void send_together(const std::vector<RawMessage>& messages) {
    std::string bytes;
    for (const RawMessage& frames : messages) {
      for (std::size_t i = 0; i < frames.size(); ++i)
        bytes += zmtp::long_frame(i + 1 < frames.size() ? zmtp::kMore : 0u, frames[i]);
    }
    EXPECT_TRUE(messages_.send_all(bytes));
  }
  /// The next message, as the daemon sent it. Fails the test when none comes.
  RawMessage receive() {
    RawMessage message = messages_.read_message();
    EXPECT_FALSE(message.empty()) << "no message came";
    if (message.empty()) message.resize(3);
    return message;
  }
  /// Sends a question and returns the answer's status. Its JSON is in answer().
  std::uint16_t ask(const RawMessage& question) {
    send(question);
    const RawMessage reply = receive();
    EXPECT_EQ(reply[0].substr(0, kSeqAt), fixture_.packet("DESCRIBED").substr(0, kSeqAt));
    EXPECT_EQ(value_at<std::uint64_t>(reply[0], kSeqAt), value_at<std::uint64_t>(question[0], kSeqAt));
    EXPECT_GE(reply.size(), 2u);
    answer_ = nlohmann::json::parse(reply.size() > 1 ? reply[1] : "", nullptr, false);
    EXPECT_TRUE(answer_.is_object()) << reply[1];
    return value_at<std::uint16_t>(reply[0], 16);
  }
  const nlohmann::json& answer() const { return answer_; }
  /// Asks for the model's description, and writes what it says into requests.
  void describe() {
    ASSERT_EQ(ask(fixture_.message("DESCRIBE")), 0) << answer_;
    model_id_ = answer_.at("model_id");
    signature_ = answer_.at("signature");
  }
  RawMessage request(const std::string& name, std::uint64_t seq) const {
    RawMessage message = fixture_.message(name);
    patch(message[0], kSeqAt, seq);
    patch(message[0], 16, model_id_);
    patch(message[0], 20, signature_);
    return message;
  }

  float* input() { return static_cast<float*>(input_bytes_); }
  /// Four numbers in the output arena.
  std::vector<float> output_at(off_t offset) const {
    std::vector<float> values(4);
    EXPECT_EQ(::pread(output_.get(), values.data(), 16, offset), 16);
    return values;
  }

 private:
  // Each page is written once: what is named in requests must be allocated.
  UniqueFd arena(const char* name, int seals) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::string zeros(kArenaBytes, '\0');
    EXPECT_EQ(::write(fd.get(), zeros.data(), zeros.size()), static_cast<ssize_t>(zeros.size()));
    if (!input_bytes_) input_bytes_ = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0) << std::strerror(errno);
    return fd;
  }

  std::string directory_;
  const WireFixture& fixture_;
  UniqueFd attach_, socket_, input_, output_;
  void* input_bytes_ = nullptr;
  zmtp::Connection messages_;
  nlohmann::json answer_;
  std::uint32_t model_id_ = 0, signature_ = 0;
};

}  // namespace shoal::test
