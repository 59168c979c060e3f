#include "shm/wire/messages.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal::wire {
namespace {

struct Prefix {  // the start of every header
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
};

template <typename T>
T read(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template <typename Header>
Result<Header> decode_header(std::span<const std::byte> frame, std::initializer_list<Kind> kinds) {
  SHOAL_ASSIGN_OR_RETURN(const Kind kind, peek_kind(frame));
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return invalid_argument("unexpected message of kind {}", static_cast<int>(kind));
  }
  if (frame.size() < sizeof(Header)) return invalid_argument("short message: {} bytes of {}", frame.size(), sizeof(Header));
  return read<Header>(frame);
}

Status check_tensor(const WireTensor& tensor, std::size_t index) {
  if (tensor.rank > kMaxRank) return invalid_argument("tensor {}: rank {} (at most {})", index, int{tensor.rank}, kMaxRank);
  const auto element_size = dtype_size_bytes(static_cast<DType>(tensor.dtype));
  if (element_size == 0) return invalid_argument("tensor {}: dtype number {} is not known", index, int{tensor.dtype});
  if (tensor.location > static_cast<std::uint8_t>(Location::kFrame)) {
    return invalid_argument("tensor {}: location {} is not known", index, int{tensor.location});
  }
  if (tensor.offset_bytes % kSlotAlignment != 0)
    return invalid_argument("tensor {}: offset {} is not a multiple of {}", index, tensor.offset_bytes, kSlotAlignment);
  return {};
}

// size_bytes must agree with dtype and dims.
Status check_tensor_size(const WireTensor& tensor, std::size_t index) {
  const std::int64_t count = shape_of(tensor).element_count();
  const auto size = count < 0
                        ? std::nullopt
                        : checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(static_cast<DType>(tensor.dtype)));
  if (!size || *size != tensor.size_bytes) {
    return invalid_argument("tensor {}: {} bytes do not match shape {} of {}", index, tensor.size_bytes,
                            shape_of(tensor).to_string(), dtype_name(static_cast<DType>(tensor.dtype)));
  }
  return {};
}

Status read_tensors(std::span<const std::byte> bytes, std::vector<WireTensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = read<WireTensor>(bytes.subspan(i * sizeof(WireTensor)));
    SHOAL_RETURN_IF_ERROR(check_tensor(tensors[i], i));
  }
  return {};
}

template <typename Header>
void encode(const Header& header, std::initializer_list<std::span<const WireTensor>> tensor_lists,
            std::vector<std::byte>& frame) {
  std::size_t size = sizeof header;
  for (const auto tensors : tensor_lists) size += tensors.size_bytes();
  frame.resize(size);
  std::memcpy(frame.data(), &header, sizeof header);
  std::size_t offset = sizeof header;
  for (const auto tensors : tensor_lists) {
    if (!tensors.empty()) std::memcpy(frame.data() + offset, tensors.data(), tensors.size_bytes());
    offset += tensors.size_bytes();
  }
}

}  // namespace

Result<Kind> peek_kind(std::span<const std::byte> frame) {
  if (frame.size() < sizeof(Prefix)) return invalid_argument("short message: {} bytes", frame.size());
  const auto prefix = read<Prefix>(frame);
  if (prefix.magic != kMagic) return invalid_argument("not a Shoal message: magic {}", prefix.magic);
  if (prefix.version != kVersionMajor)
    return invalid_argument("protocol version {}, this side speaks {}: use the same release of both", prefix.version,
                            kVersionMajor);
  return static_cast<Kind>(prefix.kind);
}

Status decode_request(std::span<const std::byte> frame, Request& request) {
  SHOAL_ASSIGN_OR_RETURN(request.header, decode_header<RequestHeader>(frame, {Kind::kRequest, Kind::kCancel}));
  const std::size_t inputs = request.header.input_count, outputs = request.header.output_count;
  if (inputs + outputs > kMaxTensors)
    return invalid_argument("{} tensors in one request (at most {})", inputs + outputs, kMaxTensors);
  const auto body = frame.subspan(sizeof(RequestHeader));
  if (body.size() != (inputs + outputs) * sizeof(WireTensor)) {
    return invalid_argument("request of {} bytes does not hold {} tensors", frame.size(), inputs + outputs);
  }
  request.inputs.resize(inputs);
  request.outputs.resize(outputs);
  SHOAL_RETURN_IF_ERROR(read_tensors(body, request.inputs));
  for (std::size_t i = 0; i < inputs; ++i) SHOAL_RETURN_IF_ERROR(check_tensor_size(request.inputs[i], i));
  for (std::size_t i = 0; i < outputs; ++i) {
    request.outputs[i] = read<WireTensor>(body.subspan((inputs + i) * sizeof(WireTensor)));
    if (request.outputs[i].offset_bytes % kSlotAlignment != 0) {
      return invalid_argument("output slot {}: offset {} is not a multiple of {}", i, request.outputs[i].offset_bytes,
                              kSlotAlignment);
    }
  }
  return {};
}

Status decode_reply(std::span<const std::byte> frame, Reply& reply) {
  SHOAL_ASSIGN_OR_RETURN(reply.header, decode_header<ReplyHeader>(frame, {Kind::kReply, Kind::kRelease, Kind::kParked}));
  const std::size_t outputs = reply.header.output_count;
  if (outputs > kMaxTensors) return invalid_argument("{} tensors in one reply (at most {})", outputs, kMaxTensors);
  const auto body = frame.subspan(sizeof(ReplyHeader));
  if (body.size() != outputs * sizeof(WireTensor))
    return invalid_argument("reply of {} bytes does not hold {} tensors", frame.size(), outputs);
  reply.outputs.resize(outputs);
  SHOAL_RETURN_IF_ERROR(read_tensors(body, reply.outputs));
  for (std::size_t i = 0; i < outputs; ++i) SHOAL_RETURN_IF_ERROR(check_tensor_size(reply.outputs[i], i));
  return {};
}

Result<Request> decode_request(std::span<const std::byte> frame) {
  Request request;
  SHOAL_RETURN_IF_ERROR(decode_request(frame, request));
  return request;
}

Result<Reply> decode_reply(std::span<const std::byte> frame) {
  Reply reply;
  SHOAL_RETURN_IF_ERROR(decode_reply(frame, reply));
  return reply;
}

Result<ControlHeader> decode_control(std::span<const std::byte> frame) {
  return decode_header<ControlHeader>(frame, {Kind::kControl, Kind::kControlReply, Kind::kWelcome, Kind::kWelcomed});
}

void encode_request(const Request& request, std::vector<std::byte>& frame) {
  RequestHeader header = request.header;
  header.magic = kMagic;
  header.version = kVersionMajor;
  header.input_count = static_cast<std::uint16_t>(request.inputs.size());
  header.output_count = static_cast<std::uint16_t>(request.outputs.size());
  encode(header, {request.inputs, request.outputs}, frame);
}

void encode_reply(const Reply& reply, std::vector<std::byte>& frame) {
  ReplyHeader header = reply.header;
  header.magic = kMagic;
  header.version = kVersionMajor;
  header.output_count = static_cast<std::uint16_t>(reply.outputs.size());
  encode(header, {reply.outputs}, frame);
}

ControlHeader make_control(Kind kind, std::uint64_t seq, StatusCode status) {
  return {.magic = kMagic,
          .version = kVersionMajor,
          .kind = static_cast<std::uint16_t>(kind),
          .seq = seq,
          .status = static_cast<std::uint16_t>(status),
          .reserved = {}};
}

WireTensor to_wire(const TensorView& tensor) {
  WireTensor wire{};
  wire.size_bytes = tensor.size_bytes();
  std::ranges::copy(tensor.shape.dims(), wire.dims);
  wire.rank = static_cast<std::uint8_t>(tensor.shape.rank());
  wire.dtype = static_cast<std::uint8_t>(tensor.dtype);
  return wire;
}

Shape shape_of(const WireTensor& tensor) {
  return Shape(std::span<const std::int64_t>(tensor.dims, std::min<std::size_t>(tensor.rank, kMaxRank)));
}

}  // namespace shoal::wire
