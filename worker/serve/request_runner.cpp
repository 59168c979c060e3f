#include "worker/serve/request_runner.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal::worker {
namespace {

constexpr std::chrono::milliseconds kArenaWait{1000};

bool is_in_arena(const wire::WireTensor& tensor) { return tensor.location == static_cast<std::uint8_t>(wire::Location::kArena); }

}  // namespace

RequestRunner::RequestRunner(const ServedModelView& served, ArenaRegistry& arenas, const CancelledRequests& cancelled,
                             ProgramCompiler& compiler, wire::LaneLine& line, int wake_fd)
    : served_(served),
      arenas_(arenas),
      cancelled_(cancelled),
      compiler_(compiler),
      line_(line),
      wake_fd_(wake_fd),
      specs_(served.inputs) {
  progress_.step_counter = &line_.step_counter;
  context_.progress = &progress_;
}

std::span<const std::span<const std::byte>> RequestRunner::answer(std::span<const std::span<const std::byte>> message,
                                                                  std::shared_ptr<const PendingProgram> program) {
  brought_ = std::move(program);
  waits_for_.reset();
  run_.ran = Ran::kNo;
  run_.compute_ns = 0;
  reply_.outputs.clear();
  reply_frames_.assign(2, {});  // header and text; outputs that travel as frames follow
  run_.request.header = {};
  Status status = wire::decode_request(message[0], run_.request);
  if (run_.request.header.request_id == 0) return {};  // not even a header, or none of the ledger's
  start_reply(run_.request.header);
  if (status.ok() && cancelled_.contains(run_.request.header.request_id)) status = cancelled("cancelled before it began");
  if (status.ok()) {
    // Before the inputs are touched: from here on the request counts as begun, and a crash is its own.
    line_.running_attempt.store(run_.request.header.attempt, std::memory_order_relaxed);
    line_.running_request.store(run_.request.header.request_id, std::memory_order_relaxed);
    try {
      status = run(message);
    } catch (const std::exception& error) {
      status = internal_error("{}", error.what());
    }
    line_.running_request.store(0, std::memory_order_relaxed);
    if (!waits_for_) line_.completed.store(line_.completed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  if (waits_for_) {
    finish_notice();
  } else {
    finish_reply(status);
  }
  return reply_frames_;
}

Status RequestRunner::run(std::span<const std::span<const std::byte>> message) {
  SHOAL_RETURN_IF_ERROR(check_inputs());
  SHOAL_RETURN_IF_ERROR(find_arenas());
  SHOAL_RETURN_IF_ERROR(locate_inputs(message));
  SHOAL_RETURN_IF_ERROR(choose_program());
  if (waits_for_) return {};
  SHOAL_RETURN_IF_ERROR(locate_outputs());
  run_.ran = Ran::kMaybe;
  const std::uint64_t start_ns = monotonic_now_ns();
  SHOAL_RETURN_IF_ERROR(program_->run(context_, run_.src, run_.dst));
  run_.compute_ns = monotonic_now_ns() - start_ns;
  run_.ran = Ran::kYes;
  describe_outputs();
  return {};
}

Status RequestRunner::check_inputs() {
  const auto& given = run_.request.inputs;
  if (given.size() != served_.inputs.size())
    return invalid_argument("{} inputs (it has {})", given.size(), served_.inputs.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(check_matches(served_.inputs[i], static_cast<DType>(given[i].dtype), wire::shape_of(given[i])));
  }
  return {};
}

Status RequestRunner::find_arenas() {
  run_.arenas.reset();
  const bool needs_input = std::ranges::any_of(run_.request.inputs, is_in_arena);
  const bool needs_output =
      std::ranges::any_of(run_.request.outputs, [](const wire::WireTensor& slot) { return slot.capacity_bytes > 0; });
  if (!needs_input && !needs_output) return {};
  run_.arenas = arenas_.find(run_.request.header.client_id, kArenaWait);
  if (!run_.arenas)
    return internal_error("the arenas of client {} did not come within {} ms", run_.request.header.client_id, kArenaWait.count());
  return {};
}

Status RequestRunner::locate_inputs(std::span<const std::span<const std::byte>> message) {
  run_.src.clear();
  std::size_t next_frame = 1;
  for (std::size_t i = 0; i < run_.request.inputs.size(); ++i) {
    const wire::WireTensor& input = run_.request.inputs[i];
    const std::byte* data = nullptr;
    if (is_in_arena(input)) {
      const auto arena = run_.arenas->input.bytes();
      if (!fits(input.offset_bytes, input.size_bytes, arena.size())) {
        return invalid_argument("input '{}' lies outside its arena: {} bytes at {} of {}", served_.inputs[i].name,
                                input.size_bytes, input.offset_bytes, arena.size());
      }
      data = arena.data() + input.offset_bytes;
    } else {
      if (next_frame >= message.size() || message[next_frame].size() != input.size_bytes) {
        return invalid_argument("input '{}': its {} bytes did not come with the request", served_.inputs[i].name,
                                input.size_bytes);
      }
      data = message[next_frame++].data();
    }
    run_.src.push_back({static_cast<DType>(input.dtype), wire::shape_of(input), const_cast<std::byte*>(data)});  // read only
  }
  return {};
}

Status RequestRunner::choose_program() {
  bool is_as_before = program_ != nullptr;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    specs_[i].dtype = run_.src[i].dtype;
    specs_[i].shape = run_.src[i].shape;
    is_as_before =
        is_as_before && program_->inputs()[i].shape == specs_[i].shape && program_->inputs()[i].dtype == specs_[i].dtype;
  }
  if (is_as_before) {
    if (!brought_) compiler_.count_hit();
    return {};
  }
  program_.reset();  // its memory may be needed for the next
  if (brought_) {
    SHOAL_ASSIGN_OR_RETURN(program_, brought_->outcome());
  } else {
    SHOAL_ASSIGN_OR_RETURN(program_, served_.model.find_program(specs_));
    if (!program_) {
      waits_for_ = compiler_.compile(specs_, {run_.request.header.request_id, &line_, wake_fd_});
      return {};
    }
    compiler_.count_hit();
  }
  const std::uint64_t arena_bytes =
      std::max<std::uint64_t>(line_.arena_bytes.load(std::memory_order_relaxed), program_->arena_bytes());
  line_.arena_bytes.store(arena_bytes, std::memory_order_relaxed);
  return {};
}

Status RequestRunner::locate_outputs() {
  run_.dst.clear();
  const auto& outputs = program_->outputs();
  spare_outputs_.resize(std::max(spare_outputs_.size(), outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TensorView dst{outputs[i].dtype, outputs[i].shape, nullptr};
    const std::uint64_t size_bytes = dst.size_bytes();
    wire::WireTensor output = wire::to_wire(dst);
    const bool has_slot = i < run_.request.outputs.size() && run_.request.outputs[i].capacity_bytes > 0;
    if (has_slot) {
      const wire::WireTensor& slot = run_.request.outputs[i];
      const auto arena = run_.arenas->output.mutable_bytes();
      if (!fits(slot.offset_bytes, slot.capacity_bytes, arena.size())) {
        return invalid_argument("the slot of output '{}' lies outside its arena: {} bytes at {} of {}", outputs[i].name,
                                slot.capacity_bytes, slot.offset_bytes, arena.size());
      }
      if (size_bytes <= slot.capacity_bytes) {
        dst.data = arena.data() + slot.offset_bytes;
        output.offset_bytes = slot.offset_bytes;
        output.capacity_bytes = slot.capacity_bytes;
      }
    }
    if (!dst.data) {
      Tensor& spare = spare_outputs_[i];
      if (spare.dtype() != dst.dtype || spare.shape() != dst.shape) {
        SHOAL_ASSIGN_OR_RETURN(spare, Tensor::create(dst.dtype, dst.shape));
      }
      dst.data = spare.view().data;
      output.location = static_cast<std::uint8_t>(wire::Location::kFrame);
    }
    run_.dst.push_back(dst);
    reply_.outputs.push_back(output);
  }
  return {};
}

void RequestRunner::describe_outputs() {
  for (std::size_t i = 0; i < reply_.outputs.size(); ++i) {
    if (!is_in_arena(reply_.outputs[i])) reply_frames_.push_back(run_.dst[i].bytes());
  }
}

void RequestRunner::start_reply(const wire::RequestHeader& request) {
  reply_.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                   .seq = request.seq,
                   .request_id = request.request_id,
                   .incarnation = request.incarnation,
                   .attempt = request.attempt,
                   .batch = 1};
}

void RequestRunner::finish_reply(const Status& status) {
  run_.arenas.reset();  // a detached client's memory goes now, not with the next request
  if (!status.ok()) {
    reply_.outputs.clear();
    reply_frames_.resize(2);
  }
  text_ = status.ok() ? std::string() : format("model '{}': {}", served_.name, status.message());
  reply_.header.status = static_cast<std::uint16_t>(status.code());
  reply_.header.ran = static_cast<std::uint8_t>(run_.ran);
  reply_.header.compute_ns = run_.compute_ns;
  wire::encode_reply(reply_, reply_frame_);
  reply_frames_[0] = reply_frame_;
  reply_frames_[1] = std::as_bytes(std::span(text_));
  if (text_.empty() && reply_frames_.size() == 2) reply_frames_.resize(1);
}

void RequestRunner::finish_notice() {
  run_.arenas.reset();
  reply_.header.kind = static_cast<std::uint16_t>(wire::Kind::kParked);
  wire::encode_reply(reply_, reply_frame_);
  reply_frames_.assign(1, reply_frame_);
}

}  // namespace shoal::worker
