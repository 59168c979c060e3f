// Messages on the SEQPACKET sockets: client <-> supervisor (attaching), supervisor <-> worker, supervisor <-> zygote. They all
// have one format.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

enum class ControlKind : std::uint16_t {
  // client -> supervisor, on $SHOAL_DIR/attach
  kAttach = 1,  // a = Features that the client knows; fds: a socket, input arena, output arena; or only the socket: PROTOCOL.md
  kBound = 2,   // the client listens with its socket
  // supervisor -> client
  kPath = 3,     // id = client id, a = longest frame, b = Features that both know, text = path that the daemon has bound the
                 // client's socket to
  kRefused = 4,  // a = StatusCode, text = message
  // supervisor -> zygote
  kLoad = 10,  // text = JSON (PROTOCOL.md); fds: none, or the packed weights of an earlier load
  kFork = 11,  // id = incarnation, a = lanes, b = most bytes in the output frames of a reply, text = what the paths of its lane
               // sockets begin with; fds: worker's end of its control socket, status page
  // zygote -> supervisor
  kLoaded = 12,      // text = JSON: inputs, outputs, hash, bytes; fds: packed weights (or none)
  kLoadFailed = 13,  // a = StatusCode, text = message
  kForked = 14,      // id = incarnation, a = pid; fds: pidfd
  kForkFailed = 15,  // id = incarnation, text
  kExited = 16,      // id = incarnation, a = pid, b = wait status
  // supervisor -> worker
  kAttachClient = 20,  // id = client id; fds: input arena (read-only), output arena
  kDetachClient = 21,  // id = client id
  kCancelRun = 23,     // id = request id
  kQuarantine =
      24,       // id = number of the list, text = hashes of refused inputs, 16 hex digits per line; replaces the earlier list
  kProbe = 25,  // id = number of the probe: lane 0 answers the model's stored input, or zeros if it has none
  // worker -> supervisor
  kReady = 30,         // id = incarnation, text = the lanes' socket paths, one per line
  kWorkerFailed = 31,  // a = StatusCode, text
  kProbed = 32,        // id = number of the probe, a = StatusCode, b = nanoseconds it took, text = message
  // supervisor -> the process that looks for files, or the one that fetches them
  kFind = 40,  // text = build_id() of the supervisor, a newline, JSON (shm/model/version_entry.hpp)
  // that process -> supervisor
  kFound = 41,     // text = the next part of the answer; a = 1: the last one
  kFetching = 42,  // of the process that fetches, some times a second: text = a file, a = bytes that came, b = all (0: not known)
};

/// Names this build. kLoad and kFind carry the supervisor's.
std::string build_id();
/// For a shoal-worker: the files of a running daemon may have been replaced by those of another build. Errors:
/// kFailedPrecondition: `supervisors` is not build_id(); names both.
Status check_build(std::string_view supervisors);

/// One message. It owns its descriptors.
struct ControlMessage {
  ControlKind kind{};
  std::uint64_t id = 0, a = 0, b = 0;
  std::string text;
  std::vector<UniqueFd> fds;
};

inline constexpr std::size_t kMaxControlText = 60 * 1024;
inline constexpr std::size_t kMaxControlFds = 4;

/// A connected pair of SEQPACKET sockets, close-on-exec.
struct ControlPair {
  UniqueFd ours, theirs;
};
Result<ControlPair> make_control_pair();

/// As recv(2), and appends the descriptors that came with the bytes to `fds`, which close when they are executed.
ssize_t receive_bytes(int socket, std::span<std::byte> bytes, int flags, std::vector<UniqueFd>& fds);

/// Sends without blocking. Errors: kOverloaded (the socket is full), kUnavailable (the peer is gone), kInvalidArgument (too much
/// text or too many fds).
Status send_control(int socket, const ControlMessage& message);
/// Asks the process that looks for files, or fetches them. Errors: those of send_control()
Status send_question(int socket, std::string_view question);
/// What it was asked, and the build of who asks, for check_build().
struct Question {
  std::string build, text;
};
/// Waits for the question. Errors: those of receive_control(); kInvalidArgument (what came is no question)
Result<Question> receive_question(int socket);
/// Sends an answer as one kFound or several. Waits for room in the socket. Errors: kUnavailable (the peer is gone)
Status send_found(int socket, std::string_view answer);
/// Receives one message. Returns nothing when none waits, unless `wait`: then it blocks. Descriptors are close-on-exec.
///   lost_fds  if given: is set to whether descriptors were lost because this process has none free; the message then has none.
///             Without it, lost descriptors are an error.
///   refused   if given: gets the descriptors that are not handed out with a message. Without it they are closed here. close()
///             can block as long as the sender of the descriptor likes (SO_LINGER, FUSE).
///   Errors    kUnavailable (the peer is gone), kInvalidArgument (the bytes are no message)
Result<std::optional<ControlMessage>> receive_control(int socket, bool wait = false, bool* lost_fds = nullptr,
                                                      std::vector<UniqueFd>* refused = nullptr);
/// Takes all descriptors that wait in a socket, and drops the messages. Never waits. The peer must not be able to send any more:
/// shut the socket down before.
///   most  it takes no more messages when it has so many descriptors
std::vector<UniqueFd> drain_fds(int socket, std::size_t most = ~std::size_t{0});
/// Whether it is a local socket of type SOCK_STREAM. Takes no lock of the socket: a stranger can hold one for as long as it
/// likes.
bool is_local_stream(int fd);
/// Whether a message waits in a socket. Takes nothing.
bool has_messages(int socket);
/// Drops what waits in a socket before the first message with descriptors. Returns whether there is one. The peer must not be
/// able to send any more: shut the socket down before.
bool drop_until_descriptors(int socket);

}  // namespace shoal::wire
