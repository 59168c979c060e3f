// Messages on the SEQPACKET sockets: client attach, supervisor <-> worker, supervisor <-> zygote. One format for all.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

enum class ControlKind : std::uint16_t {
  // client -> supervisor, on $SHOAL_DIR/attach
  kAttach = 1,  // fds: input arena, output arena (or none: a tool that submits nothing)
  kBound = 2,   // the client has bound the path it was given
  // supervisor -> client
  kPath = 3,     // id = client id, text = path to bind a DEALER at
  kRefused = 4,  // a = StatusCode, text = message
  // supervisor -> zygote
  kLoad = 10,  // text = JSON (worker/zygote/README.md); fds: none, or the packed weights of an earlier load
  kFork = 11,  // id = incarnation, text = directory for lane sockets; fds: worker's end of its control socket, status page
  // zygote -> supervisor
  kLoaded = 12,      // text = JSON: inputs, outputs, hash, bytes; fds: packed weights (or none)
  kLoadFailed = 13,  // a = StatusCode, text = message
  kForked = 14,      // id = incarnation, a = pid; fds: pidfd
  kForkFailed = 15,  // id = incarnation, text
  kExited = 16,      // id = incarnation, a = pid, b = wait status
  // supervisor -> worker
  kAttachClient = 20,  // id = client id; fds: input arena (read-only), output arena
  kDetachClient = 21,  // id = client id
  kDrain = 22,         // finish what is running, then exit 0
  kCancelRun = 23,     // id = request id
  kQuarantine = 24,    // text = hashes of inputs that are refused from now on, 16 hex digits a line; the list so far is replaced
  kProbe = 25,         // id = number of the probe: lane 0 answers the model's stored input, or zeros where it has none
  // worker -> supervisor
  kReady = 30,         // id = incarnation, text = the lanes' socket paths, one per line
  kWorkerFailed = 31,  // a = StatusCode, text
  kProbed = 32,        // id = number of the probe, a = StatusCode, b = nanoseconds it took, text = message
};

/// Supervisor and worker must be one build: kLoad carries the supervisor's, the zygote compares it with its own.
std::string build_id();

/// One message. Descriptors are owned.
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

/// Sends without blocking. Errors: kOverloaded (socket full), kUnavailable (peer gone), kInvalidArgument (text or fds over the
/// limit).
Status send_control(int socket, const ControlMessage& message);
/// Receives one message: nothing when none waits (never blocks unless `wait`). Descriptors come close-on-exec.
///   lost_fds  null, or set: whether descriptors were lost, which is an error otherwise. The message then comes without any.
///   Errors  kUnavailable: the peer is gone (EOF); kInvalidArgument: bytes that are no message (descriptors that came along are
///   closed)
Result<std::optional<ControlMessage>> receive_control(int socket, bool wait = false, bool* lost_fds = nullptr);

}  // namespace shoal::wire
