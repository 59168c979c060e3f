// Connection: the way to one daemon, from the attach socket to the first message; a state machine that never blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "client/src/arena.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/socket.hpp"
#include "shoal/result.hpp"

namespace shoal::client {

/// $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal.
std::string default_directory();

/// kAttached -> (kPath) -> kBound -> (kWelcome) -> kReady; any error ends it. Destroying it detaches.
///   Threads  thread-bound
class Connection {
 public:
  /// Connects to DIRECTORY/attach and sends both arenas (or none when they are null).
  ///   Errors  kUnavailable: no daemon there (names the socket and how to start one), too few descriptors; kPermissionDenied:
  ///           it is another user's, and we are not root
  static Result<std::unique_ptr<Connection>> begin(wire::MessageContext& context, const std::string& directory,
                                                   const Arena* input, const Arena* output);
  ~Connection();

  /// Takes the next steps, as far as they go without waiting. Once ready it looks whether the daemon lives.
  ///   Errors  the daemon is gone (kUnavailable), refused us (its own code), or does not answer in time
  Status advance(std::uint64_t now_ns);
  bool is_ready() const { return state_ == State::kReady; }
  std::uint64_t give_up_at_ns() const {
    return give_up_at_ns_;
  }  ///< when advance() fails for lack of an answer; meaningless once ready
  wire::Dealer& socket() { return socket_; }
  bool has_socket() const { return static_cast<bool>(socket_); }
  std::uint64_t longest_frame_bytes() const { return longest_frame_bytes_; }  ///< that the daemon takes
  int attach_fd() const { return attach_.get(); }

 private:
  enum class State { kAttached, kBound, kReady };
  Connection(wire::MessageContext& context, std::string directory, UniqueFd attach, const ucred& daemon);
  Status handle(const wire::ControlMessage& message);
  Status bind(const std::string& path);
  void remove_socket_file();
  Status receive_welcome();
  Status no_answer() const;

  wire::MessageContext& context_;
  std::string directory_, attach_path_, socket_path_;
  UniqueFd attach_;
  ucred daemon_;    // as whom files in its directory are touched
  UniqueFd spare_;  // given up when BOUND is sent: libzmq aborts the process when it cannot accept the connection
  wire::Dealer socket_;
  std::uint64_t longest_frame_bytes_ = wire::kMaxFrameBytes;
  State state_ = State::kAttached;
  std::uint64_t give_up_at_ns_;
};

}  // namespace shoal::client
