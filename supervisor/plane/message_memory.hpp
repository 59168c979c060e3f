// What the messages of all clients hold of the daemon's memory: requests that are not over, and answers that were not read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shm/wire/transport.hpp"
#include "supervisor/plane/client_process.hpp"
#include "supervisor/plane/fair_share.hpp"

namespace shoal::supervisor {

/// The account of [limits] total_message_mb. Requests are added here; answers are added and subtracted by the socket, through
/// unsent(). What one process has of it is in its ClientProcess.
///   Threads  thread-bound
class MessageMemory {
 public:
  void set_limit(int total_mb, std::size_t clients) {
    share_ = {.total = static_cast<std::uint64_t>(total_mb) << 20, .clients = clients};
  }
  /// The most that the message of one request may take.
  std::uint64_t longest_request_bytes() const { return share_.most_of_one(); }
  bool is_limited() const { return share_.total != 0; }
  /// What messages may hold that have not been received completely.
  std::uint64_t unfinished_limit() const { return share_.total / 4; }

  std::uint64_t bytes() const { return requests_ + unsent_->load(std::memory_order_relaxed); }
  const wire::ByteCount& unsent() const { return unsent_; }
  /// A request whose message takes so many bytes (wire::Parcel::memory_bytes) is kept for a client of that process, or is over.
  void add_request(ClientProcess& process, std::uint64_t bytes) {
    requests_ += bytes;
    process.request_bytes += bytes;
  }
  void remove_request(ClientProcess& process, std::uint64_t bytes) {
    requests_ -= bytes;
    process.request_bytes -= bytes;
  }

  /// Whether a request that takes so many bytes may be kept for a process that holds `own` bytes of all. Errors name the limit:
  /// kInvalidArgument (it is too long for one client), kOverloaded (there is no room now).
  Status check_request(std::uint64_t own, std::uint64_t bytes) const {
    if (is_limited() && bytes > longest_request_bytes()) {
      return invalid_argument(
          "the message of this request needs {} bytes, but one process may have {} of the {} MiB for all messages ([limits] "
          "total_message_mb): send the tensors in an arena, where they do not count",
          bytes, share_.most_of_one(), share_.total >> 20);
    }
    return check(own, bytes, "this request");
  }
  /// Whether an answer may be sent to a process that has not read `unread` bytes of others. Errors: kOverloaded, naming the
  /// limit.
  Status check_answer(std::uint64_t unread, std::uint64_t bytes) const { return check(unread, bytes, "this answer"); }
  /// Whether a client whose process has not read so many bytes must be disconnected before it is sent more.
  bool must_yield(std::uint64_t unread) const { return share_.must_yield(bytes(), unread); }
  std::uint64_t limit_mb() const { return share_.total >> 20; }

 private:
  Status check(std::uint64_t own, std::uint64_t bytes, std::string_view what) const {
    if (share_.fits(this->bytes(), own, bytes)) return {};
    return overloaded(
        "the messages of all clients hold {} of {} MiB ([limits] total_message_mb). This process has {} KiB of them, and {} "
        "needs {} KiB, which is more than its share: offer room in the output arena, where they do not count",
        this->bytes() >> 20, share_.total >> 20, own >> 10, what, bytes >> 10);
  }

  FairShare share_;
  std::uint64_t requests_ = 0;
  wire::ByteCount unsent_ = wire::make_byte_count();
};

}  // namespace shoal::supervisor
