// Messages between client, supervisor and lane: fixed little-endian structs. PROTOCOL.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::wire {

inline constexpr std::uint32_t kMagic = 0x4c4f4853;  // "SHOL"
inline constexpr std::uint16_t kVersionMajor = 3;    // both sides must have the same
inline constexpr std::uint64_t kSlotAlignment = 64;
inline constexpr std::uint64_t kLargestArenaBytes = std::uint64_t{4} << 30;  // so a process of workers has addresses for all
inline constexpr std::size_t kMaxTensors = 256;                              // inputs plus outputs of one request

/// What a client and a daemon of one wire version may do besides. ATTACH names what the client knows, PATH what both know. A bit
/// that one side does not know means nothing to it.
enum Features : std::uint64_t {
  kBundles = 1,       // several requests or replies travel in one message
  kDescriptions = 2,  // WELCOME describes models, and so do CONTROL_REPLYs with seq 0
};
inline constexpr std::uint64_t kKnownFeatures = kBundles | kDescriptions;  // of this build

enum class Kind : std::uint16_t {
  kRequest = 1,       // client -> supervisor -> lane: RequestHeader, WireTensor[inputs + outputs], then frames
  kReply = 2,         // lane -> supervisor -> client: ReplyHeader, WireTensor[outputs]; then a text frame and frames, or nothing
  kRelease = 3,       // supervisor -> client: ReplyHeader; the slots of seq may be used again
  kCancel = 4,        // client -> supervisor: RequestHeader without tensors
  kControl = 5,       // client -> supervisor: ControlHeader, JSON frame {"what": "describe"|"list"|..., ...}: PROTOCOL.md
  kControlReply = 6,  // supervisor -> client: ControlHeader (status), JSON frame
  kWelcome = 7,       // supervisor -> client, first message on the socket: ControlHeader, descriptions
  kWelcomed = 8,      // client -> supervisor: the answer to kWelcome
  kParked = 9,        // lane -> supervisor: ReplyHeader; the request waits for its program, and the lane runs others meanwhile
  kBundle = 10,       // supervisor <-> lane, supervisor -> client: BundleHeader, then messages without frames
};

enum class Location : std::uint8_t { kArena = 0, kFrame = 1 };

// One tensor of a request or reply. Inputs lie in the client's input arena, outputs in its output arena, or in a frame.
struct WireTensor {
  std::uint64_t offset_bytes;    // from the arena's start; multiple of kSlotAlignment
  std::uint64_t capacity_bytes;  // outputs: room at offset; a larger output is sent as a frame
  std::uint64_t size_bytes;
  std::int64_t dims[kMaxRank];  // row-major, outermost first; dims[rank..7] are 0
  std::uint8_t rank;
  std::uint8_t dtype;     // shoal::DType
  std::uint8_t location;  // Location
  std::uint8_t reserved[5];
};
static_assert(sizeof(WireTensor) == 96 && std::is_trivially_copyable_v<WireTensor>);

struct RequestHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t seq;         // the client's number; used again only after an answer with FAILED_PRECONDITION
  std::uint32_t model_id;    // from describe; per name, never reused
  std::uint32_t signature;   // from describe; changes when the model's name, inputs, outputs or states change
  std::uint64_t timeout_ns;  // relative; 0 = the model's
  std::int8_t priority;
  std::uint8_t quarantine;  // set by the supervisor: number of the list in force when it was sent; 0 = the list is empty
  std::uint16_t flags;
  std::uint16_t input_count;
  std::uint16_t output_count;   // output slots offered; may be 0
  std::uint64_t model_version;  // 0 = the default version
  std::uint64_t flow;           // whom a gateway asks for: a number of its own; 0 = itself
  // Set by the supervisor for the lane, ignored when a client sends them:
  std::uint64_t client_id;    // names the attached arenas
  std::uint64_t request_id;   // the ledger's
  std::uint64_t incarnation;  // of the worker
  std::uint16_t attempt;      // 1 for the first
  std::uint16_t batch_size;   // requests that run together; they are sent one right after the other, 1 = alone
  std::uint16_t batch_index;  // of this one, 0 first
  std::uint16_t lane_flags;   // LaneFlags
};
static_assert(sizeof(RequestHeader) == 88 && std::is_trivially_copyable_v<RequestHeader>);

// What the lane must do beside the run.
enum LaneFlags : std::uint16_t {
  kHashInputs = 1,  // for a suspect: write the hash of its inputs to the status line before the run
};

struct ReplyHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t seq;
  std::uint64_t request_id;  // lane -> supervisor: as leased; a reply that matches no lease is dropped
  std::uint64_t incarnation;
  std::uint16_t attempt;
  std::uint16_t status;    // StatusCode
  std::uint8_t ran;        // shoal::Ran
  std::uint8_t released;   // 1: the request's slots may be used again
  std::uint16_t attempts;  // number of runs begun
  std::uint16_t output_count;
  std::uint16_t batch;
  std::uint32_t retry_after_ms;
  std::uint64_t model_version;
  std::uint64_t queue_ns;
  std::uint64_t compute_ns;
};
static_assert(sizeof(ReplyHeader) == 72 && std::is_trivially_copyable_v<ReplyHeader>);

struct ControlHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t seq;
  std::uint16_t status;  // replies: StatusCode; unless it is OK, the JSON is {"message": ...}
  std::uint16_t reserved[3];
};
static_assert(sizeof(ControlHeader) == 24 && std::is_trivially_copyable_v<ControlHeader>);

// Messages that travel together. Each of them follows as its size (u64) and its bytes, filled up with zeros to a multiple of 8.
struct BundleHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t reserved;  // 0; where other messages have their seq
  std::uint32_t count;     // of messages
  std::uint32_t reserved2;
};
static_assert(sizeof(BundleHeader) == 24 && std::is_trivially_copyable_v<BundleHeader>);

/// A decoded request: header and tensors, which were copied out of the frame and then checked.
struct Request {
  RequestHeader header{};
  std::vector<WireTensor> inputs, outputs;
};
struct Reply {
  ReplyHeader header{};
  std::vector<WireTensor> outputs;
};

/// The kind of a message, from its first frame. Errors: kInvalidArgument (too short, wrong magic, or another version: names
/// both).
Result<Kind> peek_kind(std::span<const std::byte> frame);
/// Decoders accept any bytes. They check sizes, counts, ranks, dtypes, locations, alignment, and that `size_bytes` agrees with
/// dtype and dims. They do not know the arena's size, so the caller checks offsets.
Result<Request> decode_request(std::span<const std::byte> frame);
Result<Reply> decode_reply(std::span<const std::byte> frame);
/// The same, into a value that the caller reuses. After an error its header is that of the message, or as before if that cannot
/// be read, and its tensors are undefined.
Status decode_request(std::span<const std::byte> frame, Request& request);
Status decode_reply(std::span<const std::byte> frame, Reply& reply);
Result<ControlHeader> decode_control(std::span<const std::byte> frame);
/// Clears and fills a buffer that the caller reuses, so that sending requests does not keep allocating.
void encode_request(const Request& request, std::vector<std::byte>& frame);
void encode_reply(const Reply& reply, std::vector<std::byte>& frame);
ControlHeader make_control(Kind kind, std::uint64_t seq, StatusCode status = StatusCode::kOk);

/// Wire form of a tensor's type and shape (location arena, offset and capacity 0).
WireTensor to_wire(const TensorView& tensor);
Shape shape_of(const WireTensor& tensor);

}  // namespace shoal::wire
