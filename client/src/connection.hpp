// Connection: the connection to one daemon, from the attach socket to the first message. A state machine that never blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/src/arena.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/socket.hpp"
#include "shoal/result.hpp"

namespace shoal::client {

/// kAttached -> (kPath) -> kBound -> (kWelcome) -> kReady. Any error ends the connection. Destroying it detaches the client.
///   Threads  thread-bound
class Connection {
 public:
  /// Connects to DIRECTORY/attach and sends both arenas, or none if they are null. advance() fails if the connection is not ready
  /// at `give_up_at_ns`.
  ///   Errors  kUnavailable (no daemon; names the socket and how to start one; or too few descriptors), kPermissionDenied (this
  ///           process may not reach the daemon, or the daemon belongs to a user that is not trusted: daemon_user.hpp)
  static Result<std::unique_ptr<Connection>> begin(wire::MessageContext& context, const std::string& directory,
                                                   const Arena* input, const Arena* output, std::uint64_t give_up_at_ns);
  ~Connection();

  /// Takes the next steps that are possible without waiting. If the connection is ready, checks that the daemon lives.
  ///   Errors  kUnavailable (the daemon is gone, or does not answer in time), the daemon's code if it refuses the client
  Status advance(std::uint64_t now_ns);
  bool is_ready() const { return state_ == State::kReady; }
  /// When advance() fails if no answer comes. Has no meaning when ready.
  std::uint64_t give_up_at_ns() const { return give_up_at_ns_; }
  wire::Dealer& socket() { return socket_; }
  bool has_socket() const { return static_cast<bool>(socket_); }
  /// Of models, as the daemon sent them with its WELCOME. Once.
  std::vector<std::string> take_descriptions() { return std::exchange(descriptions_, {}); }
  std::uint64_t longest_frame_bytes() const { return longest_frame_bytes_; }  ///< the daemon's limit
  /// If the daemon refused the arenas because they do not fit: what both together may have. Otherwise 0.
  std::uint64_t arena_room_bytes() const { return arena_room_bytes_; }
  int attach_fd() const { return attach_.get(); }
  pid_t daemon_pid() const { return daemon_.pid; }
  bool has_same_daemon(const Connection& other) const {
    return daemon_.pid == other.daemon_.pid && daemon_.uid == other.daemon_.uid;
  }

 private:
  enum class State { kAttached, kBound, kReady };
  Connection(wire::MessageContext& context, std::string attach_path, UniqueFd attach, UniqueFd unbound, const ucred& daemon,
             std::uint64_t give_up_at_ns);
  Status handle(const wire::ControlMessage& message);
  Status receive_welcome();
  Status no_answer() const;

  wire::MessageContext& context_;
  std::string attach_path_, socket_path_;
  UniqueFd attach_;
  UniqueFd unbound_;  // the daemon binds it
  ucred daemon_;
  UniqueFd spare_;  // closed before BOUND: libzmq aborts the process if it has no descriptor to accept the connection
  wire::Dealer socket_;
  std::vector<std::string> descriptions_;
  std::uint64_t longest_frame_bytes_ = wire::kMaxFrameBytes;
  std::uint64_t arena_room_bytes_ = 0;
  State state_ = State::kAttached;
  std::uint64_t give_up_at_ns_;
};

}  // namespace shoal::client
