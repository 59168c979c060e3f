#include "worker/serve/job.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::worker {
namespace {

// The arenas were sent before the request, by another socket. The thread that receives them may have to wait for a processor.
constexpr std::chrono::seconds kArenaWait{10};

bool is_in_arena(const wire::WireTensor& tensor) { return tensor.location == static_cast<std::uint8_t>(wire::Location::kArena); }

}  // namespace

bool Job::begin(Frames message) {
  forget_inputs();
  dst_.clear();
  reply_.outputs.clear();
  ran = Ran::kNo;
  compute_ns = 0;
  batch = 1;
  request_.header = {};
  status = wire::decode_request(message[0], request_);
  return request_.header.request_id != 0;  // 0: no header, or not one of the ledger's
}

Status Job::find_arenas(const ServedModelView& served, ArenaRegistry& registry, const std::function<void()>& before_wait) {
  const auto& inputs = request_.inputs;
  if (inputs.size() != served.inputs.size())
    return invalid_argument("{} inputs (it has {})", inputs.size(), served.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(check_matches(served.inputs[i], static_cast<DType>(inputs[i].dtype), wire::shape_of(inputs[i])));
  }
  const bool needs_output =
      std::ranges::any_of(request_.outputs, [](const wire::WireTensor& slot) { return slot.capacity_bytes > 0; });
  if (needs_output || std::ranges::any_of(inputs, is_in_arena)) {
    SHOAL_ASSIGN_OR_RETURN(arenas_, registry.find(request_.header.client_id, kArenaWait, before_wait));
  }
  return {};
}

Status Job::locate_inputs(const ServedModelView& served, Frames message) {
  const auto& inputs = request_.inputs;
  std::size_t next_frame = 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const wire::WireTensor& input = inputs[i];
    const std::byte* data = nullptr;
    if (is_in_arena(input)) {
      const auto arena = arenas_->input.bytes();
      if (!fits(input.offset_bytes, input.size_bytes, arena.size())) {
        return invalid_argument("input '{}' lies outside its arena: {} bytes at {} of {}", served.inputs[i].name,
                                input.size_bytes, input.offset_bytes, arena.size());
      }
      data = arena.data() + input.offset_bytes;
    } else {
      if (next_frame >= message.size() || message[next_frame].size() != input.size_bytes) {
        return invalid_argument("input '{}': its {} bytes did not come with the request", served.inputs[i].name,
                                input.size_bytes);
      }
      data = message[next_frame++].data();
    }
    src_.push_back({static_cast<DType>(input.dtype), wire::shape_of(input), const_cast<std::byte*>(data)});  // read only
  }
  return {};
}

bool Job::keep_inputs() try {
  for (const TensorView& input : src_) {
    auto copy = Tensor::create(input.dtype, input.shape);
    if (!copy.ok()) throw std::bad_alloc();  // shapes and types were checked
    if (input.size_bytes() > 0) std::memcpy(copy->view().data, input.data, input.size_bytes());
    kept_.push_back(*std::move(copy));
  }
  std::ranges::transform(kept_, src_.begin(), [](Tensor& copy) { return copy.view(); });
  return true;
} catch (const std::bad_alloc&) {
  kept_.clear();
  return false;
}

void Job::forget_inputs() {
  src_.clear();
  kept_.clear();
}

Status Job::locate_outputs(const ServedModelView& served, const std::vector<TensorSpec>& outputs) {
  frame_bytes_ = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    dst_.push_back({outputs[i].dtype, outputs[i].shape, nullptr});
    reply_.outputs.emplace_back();
    if (!is_dynamic(outputs[i])) SHOAL_RETURN_IF_ERROR(locate_output(outputs[i], i));
  }
  return check_frames(served);
}

Status Job::place_output(const ServedModelView& served, const TensorSpec& output, std::size_t index, const Shape& shape) {
  dst_[index].shape = shape;
  SHOAL_RETURN_IF_ERROR(locate_output(output, index));
  return check_frames(served);
}

Status Job::locate_output(const TensorSpec& output, std::size_t index) {
  TensorView& dst = dst_[index];
  wire::WireTensor& located = reply_.outputs[index];
  located = wire::to_wire(dst);
  located.location = static_cast<std::uint8_t>(wire::Location::kFrame);
  if (index < request_.outputs.size() && request_.outputs[index].capacity_bytes > 0) {
    const wire::WireTensor& slot = request_.outputs[index];
    const auto arena = arenas_->output.mutable_bytes();
    if (!fits(slot.offset_bytes, slot.capacity_bytes, arena.size())) {
      return invalid_argument("the slot of output '{}' lies outside its arena: {} bytes at {} of {}", output.name,
                              slot.capacity_bytes, slot.offset_bytes, arena.size());
    }
    if (dst.size_bytes() <= slot.capacity_bytes) {
      dst.data = arena.data() + slot.offset_bytes;
      located.offset_bytes = slot.offset_bytes;
      located.capacity_bytes = slot.capacity_bytes;
      located.location = static_cast<std::uint8_t>(wire::Location::kArena);
    }
  }
  if (!dst.data) frame_bytes_ += dst.size_bytes();
  return {};
}

Status Job::check_frames(const ServedModelView& served) const {
  const bool is_sent = request_.header.request_id != wire::kProbeRequest;
  if (!is_sent || served.longest_reply_bytes == 0 || frame_bytes_ <= served.longest_reply_bytes) return {};
  return invalid_argument(
      "its outputs have {} bytes for which it offers no room in the output arena, and a message may have {} ([limits] "
      "total_message_mb of the daemon's configuration)",
      frame_bytes_, served.longest_reply_bytes);
}

Frames Job::finish(const std::string& model_name) {
  arenas_.reset();  // frees a detached client's memory now, not with the next request
  text_.clear();
  if (!status.ok()) text_ = format("model '{}': {}", model_name, status.message());
  reply_frames_.assign(2, {});  // header and text; then outputs that travel as frames
  if (!status.ok()) reply_.outputs.clear();
  for (std::size_t i = 0; i < reply_.outputs.size(); ++i) {
    if (!is_in_arena(reply_.outputs[i])) reply_frames_.push_back(dst_[i].bytes());
  }
  reply_.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                   .seq = request_.header.seq,
                   .request_id = request_.header.request_id,
                   .incarnation = request_.header.incarnation,
                   .attempt = request_.header.attempt,
                   .status = static_cast<std::uint16_t>(status.code()),
                   .ran = static_cast<std::uint8_t>(ran),
                   .batch = batch,
                   .compute_ns = compute_ns};
  wire::encode_reply(reply_, reply_frame_);
  reply_frames_[0] = reply_frame_;
  reply_frames_[1] = std::as_bytes(std::span(text_));
  if (text_.empty() && reply_frames_.size() == 2) reply_frames_.resize(1);
  return reply_frames_;
}

void Job::prepare_notice() {
  arenas_.reset();
  reply_.outputs.clear();
  reply_.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kParked),
                   .seq = request_.header.seq,
                   .request_id = request_.header.request_id,
                   .incarnation = request_.header.incarnation,
                   .attempt = request_.header.attempt,
                   .batch = 1};
  wire::encode_reply(reply_, reply_frame_);
  reply_frames_.assign(1, reply_frame_);
}

}  // namespace shoal::worker
