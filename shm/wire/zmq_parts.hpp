// What socket.cpp and router.cpp share of libzmq.
#pragma once

#include <zmq.h>

#include <string>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::wire {

// Messages that may wait to be sent or, at a dealer, to be received. Other limits are reached first.
inline constexpr int kHighWaterMark = 100'000;
// How long queued messages are still sent after a disconnect or close. With 0 libzmq 4.3.4 stops in the middle of a message, and
// aborts the process if the peer hangs up at that moment.
inline constexpr int kLingerMs = 50;

inline Status zmq_status(std::string_view what, const std::string& path) {
  const int error = ::zmq_errno();  // one of the system, or of libzmq: then the code is kInternal
  return Status(status_from_errno(what, path, error).code(), format("{} {}: {}", what, path, ::zmq_strerror(error)));
}

inline std::string endpoint(const std::string& path) { return "ipc://" + path; }

static_assert(sizeof(zmq_msg_t) == 64);
inline zmq_msg_t* as_zmq(void* frame) { return static_cast<zmq_msg_t*>(frame); }

// A payload that was received.
struct ZmqPayload final : Payload::Store {
  ZmqMessage message;
  std::uint64_t memory = 0;

  std::size_t size() const override { return message.size(); }
  std::span<const std::byte> frame(std::size_t index) const override { return message[index]; }
  std::uint64_t memory_bytes() const override { return memory; }
};

}  // namespace shoal::wire
