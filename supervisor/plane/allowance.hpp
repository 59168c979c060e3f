// What one client may have: bytes in the messages of its requests, and requests per second.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "supervisor/plane/rate_limit.hpp"

namespace shoal::supervisor {

/// The account of one client. Reads no clock.
///   Threads  thread-bound
class Allowance {
 public:
  /// Counts one request or control request. Errors: kOverloaded; then retry_after_ms() says when to try again.
  Status take_turn(const ClientLimits& limits, std::uint64_t now_ns) {
    if (turns_.take(limits.client_rate, now_ns)) return {};
    return overloaded("more than {} requests per second of one client ([limits] client_rate of the daemon's configuration)",
                      limits.client_rate);
  }
  std::uint32_t retry_after_ms(std::uint64_t now_ns) const {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(turns_.wait_ms(now_ns), 1));
  }

  /// Whether another message of that size may be kept. Errors name the limit: kInvalidArgument (it is too long for one client),
  /// kOverloaded (there is no room now).
  Status check_room(const ClientLimits& limits, std::uint64_t bytes) const {
    const std::uint64_t most = static_cast<std::uint64_t>(limits.client_message_mb) << 20;
    if (most != 0 && bytes > most) {
      return invalid_argument(
          "the message of this request holds {} bytes, but all messages of one client may hold {} MiB ([limits] "
          "client_message_mb): send the tensors in an arena, where they do not count",
          bytes, limits.client_message_mb);
    }
    if (most != 0 && bytes_ + bytes > most) {
      return overloaded(
          "the messages of this client's requests hold {} bytes, and this one has {}. Together they may hold {} MiB ([limits] "
          "client_message_mb): send the tensors in an arena, where they do not count",
          bytes_, bytes, limits.client_message_mb);
    }
    return {};
  }
  void add(std::uint64_t bytes) { bytes_ += bytes; }
  void remove(std::uint64_t bytes) { bytes_ -= bytes; }

 private:
  std::uint64_t bytes_ = 0;
  // A pool's first request needs a description, and the tools ask several things at once: that works at any rate.
  RateLimit turns_{250'000'000, 8};
};

}  // namespace shoal::supervisor
