// A control message from a process that this one does not trust.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "shm/wire/control.hpp"
#include "supervisor/process/event_loop.hpp"

namespace shoal::supervisor {

/// The next message on a control socket, if one waits. close() of its descriptors can block, so the loop closes on another thread
/// the descriptors that belong to no message, and at the end those that nobody has taken.
///   Threads  thread-bound
class ReceivedMessage {
 public:
  /// `loop` outlives this. `lost_fds` as in receive_control(). `sender`: the peer's user.
  ReceivedMessage(int socket, EventLoop& loop, bool* lost_fds = nullptr, uid_t sender = Closer::kChild)
      : loop_(loop), sender_(sender) {
    std::vector<UniqueFd> refused;
    auto received = wire::receive_control(socket, false, lost_fds, &refused);
    loop_.close_sent(refused, sender_);
    status_ = received.status();
    if (received.ok()) message_ = *std::move(received);
  }
  ~ReceivedMessage() {
    if (message_) loop_.close_sent(message_->fds, sender_);
  }
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  /// The errors of receive_control(). Also OK if no message waits.
  const Status& status() const { return status_; }
  bool has_value() const { return message_.has_value(); }
  wire::ControlMessage& operator*() { return *message_; }
  wire::ControlMessage* operator->() { return &*message_; }

 private:
  EventLoop& loop_;
  const uid_t sender_;
  Status status_;
  std::optional<wire::ControlMessage> message_;
};

}  // namespace shoal::supervisor
