// PoolCore: sending requests and receiving replies.
#include <algorithm>
#include <cstring>

#include "client/src/pool_core.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::client {
namespace {

constexpr std::size_t kMaxLearnedShapes = 64;
constexpr std::size_t kMostUnderWay = 32'768;  // with a CANCEL for each, they fit ZeroMQ's queue of 100 000

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::uint64_t shape_key_of(const PendingRequest& request) {
  std::uint64_t key = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t value) { key = (key ^ value) * 0x100000001b3; };
  for (const TensorSpec& input : request.specs) {
    mix(static_cast<std::uint64_t>(input.shape.rank()));
    for (const std::int64_t dim : input.shape.dims()) mix(static_cast<std::uint64_t>(dim));
  }
  return key;
}

// The size of an output according to describe(). An open first dimension counts as the batch. 0 if the size is not known.
std::uint64_t guess_bytes(const TensorSpec& output, const PendingRequest& request) {
  Shape shape = output.shape;
  if (shape.rank() == 0 || request.specs.empty()) return 0;
  const Shape& first_input = request.specs.front().shape;
  if (shape[0] < 0 && first_input.rank() > 0) shape[0] = first_input[0];
  const std::int64_t count = shape.element_count();
  return count < 0 ? 0 : static_cast<std::uint64_t>(count) * dtype_size_bytes(output.dtype);
}

}  // namespace

std::shared_ptr<PendingRequest> PoolCore::submit(std::string_view model, Tensors inputs, SubmitOptions options) {
  auto request = std::make_shared<PendingRequest>();
  request->model = {std::string(model), options.version};
  request->options = options;
  Status placed = usable();
  if (options.timeout.count() < 0) {
    placed = deadline_exceeded("model '{}': the request was submitted with a negative timeout", model);
  } else if (options.timeout.count() > 0) {
    request->deadline_ns = monotonic_now_ns() + static_cast<std::uint64_t>(options.timeout.count());
  }
  if (placed.ok()) placed = place_inputs(std::move(inputs), *request);  // copies, so without the mutex
  if (!placed.ok()) {
    request->complete({.outputs = placed});
    return request;
  }
  const MutexLock lock(mutex_);
  if (is_closed_) {
    request->complete({.outputs = Status(cancelled("the pool was destroyed"))});
    return request;
  }
  request->seq = ++last_seq_;
  if (!is_ready()) advance_connection();
  route(request);
  progress();  // sending may have consumed the edge of ZeroMQ's descriptor
  return request;
}

Status PoolCore::place_inputs(Tensors inputs, PendingRequest& request) {
  if (!input_) return failed_precondition("this pool was made without arenas: it cannot submit requests");
  if (inputs.size() > wire::kMaxTensors)
    return invalid_argument("{} inputs in one request (at most {})", inputs.size(), wire::kMaxTensors);
  for (NamedTensor& named : inputs) {
    RequestInput input{.view = named.tensor.view()};
    const std::int64_t count = input.view.element_count();
    if (count < 0 || dtype_size_bytes(input.view.dtype) == 0 || (count > 0 && input.view.size_bytes() == 0)) {
      return invalid_argument("input '{}': {} of shape {} is not a valid tensor", named.name, dtype_name(input.view.dtype),
                              input.view.shape.to_string());
    }
    request.specs.push_back({std::move(named.name), input.view.dtype, input.view.shape});
    const std::size_t size_bytes = input.view.size_bytes();
    if (size_bytes > 0 && !input.view.data)
      return invalid_argument("input '{}': its tensor has no bytes", request.specs.back().name);
    if (const auto offset = input_->offset_of(input.view)) {  // a loan
      input.owner = named.tensor.owner();
      input.in_arena = true;
      input.offset = *offset;
    } else if (auto slot = input_->allocate(size_bytes)) {
      std::memcpy(slot->data(), input.view.data, size_bytes);
      input.view.data = slot->data();
      input.offset = slot->offset();
      input.in_arena = true;
      input.owner = std::move(slot);
    } else {  // no room in the arena: the bytes travel as a frame
      SHOAL_ASSIGN_OR_RETURN(Tensor copy, Tensor::create(input.view.dtype, input.view.shape));
      std::memcpy(copy.view().data, input.view.data, size_bytes);
      input.view.data = copy.view().data;
      input.owner = copy.owner();
    }
    request.inputs.push_back(std::move(input));
  }
  request.shape_key = shape_key_of(request);
  return {};
}

Result<Tensor> PoolCore::loan(DType dtype, const Shape& shape) {
  SHOAL_RETURN_IF_ERROR(usable());
  if (!input_) return failed_precondition("this pool was made without arenas: it has no loans");
  const std::int64_t count = shape.element_count();
  const std::uint64_t element_bytes = dtype_size_bytes(dtype);
  if (count < 0 || element_bytes == 0)
    return invalid_argument("a loan of {} and shape {}: every dimension must be at least 0, and the dtype valid",
                            dtype_name(dtype), shape.to_string());
  if (static_cast<std::uint64_t>(count) <= input_->size_bytes() / element_bytes) {
    const TensorView view{dtype, shape, nullptr};
    if (auto slot = input_->allocate(view.size_bytes())) return Tensor({dtype, shape, slot->data()}, slot);
  }
  return overloaded(
      "the input arena of {} bytes has no room for a loan of {} and shape {} ({} bytes are free): release loans, or raise "
      "input_arena_bytes",
      input_->size_bytes(), dtype_name(dtype), shape.to_string(), input_->free_bytes());
}

// Sends the request, or parks it until the model is described.
void PoolCore::route(const std::shared_ptr<PendingRequest>& request) {
  if (requests_.size() + parked_.size() >= kMostUnderWay) {
    return fail(*request,
                overloaded("model '{}': {} requests of this pool are unanswered, because the daemon in {} is too slow, or "
                           "because a model loads",
                           request->model.name, kMostUnderWay, options_.directory));
  }
  ModelEntry& entry = models_[request->model];
  if (entry.description && is_ready()) return send_request(request, entry);
  park(request);
  if (!is_ready()) {
    // When reconnect_timeout is over, the attempt that just failed decides.
    if (!connection_ && monotonic_now_ns() >= give_up_reconnecting_ns_) {
      lose_connection(unavailable("no daemon in {}: start one with `SHOAL_DIR={} shoald --model NAME=PATH`", options_.directory,
                                  options_.directory));
    }
    return;
  }
  if (entry.describe_seq == 0) ask_description(request->model, entry);
}

void PoolCore::park(const std::shared_ptr<PendingRequest>& request) {
  request->output_slots.clear();
  parked_[request->seq] = request;
  next_expiry_ns_ = std::min(next_expiry_ns_, request->deadline_ns);
}

// Asks for the description again, at most once per request: the model's inputs have changed, or may have.
void PoolCore::look_again(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) {
  request->has_described_again = true;
  park(request);
  if (entry.describe_seq == 0) ask_description(request->model, entry);
}

void PoolCore::send_request(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) {
  std::uint64_t timeout_ns = 0;
  if (request->deadline_ns != kForever) {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns >= request->deadline_ns)
      return fail(*request,
                  deadline_exceeded("model '{}': the timeout was over before the request could be sent", request->model.name));
    timeout_ns = request->deadline_ns - now_ns;
  }
  request->description = entry.description;
  const Description& model = *entry.description;
  const auto order = match_inputs(model, request->specs);
  if (!order.ok()) {
    if (request->has_described_again) return fail(*request, order.status());
    return look_again(request, entry);
  }

  offer_outputs(*request, entry);
  outgoing_.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest),
                      .seq = request->seq,
                      .model_id = model.model_id,
                      .signature = model.signature,
                      .timeout_ns = timeout_ns,
                      .priority = request->options.priority,
                      .model_version = request->model.version};
  outgoing_.inputs.clear();
  outgoing_.outputs.clear();
  frames_.assign(1, {});
  for (const std::size_t index : *order) {
    const RequestInput& input = request->inputs[index];
    wire::WireTensor tensor = wire::to_wire(input.view);
    tensor.offset_bytes = input.offset;
    tensor.location = static_cast<std::uint8_t>(input.in_arena ? wire::Location::kArena : wire::Location::kFrame);
    if (!input.in_arena) frames_.push_back(input.view.bytes());
    if (!input.in_arena && input.view.size_bytes() > connection_->longest_frame_bytes()) {
      return fail(*request,
                  invalid_argument("model '{}', input '{}': {} bytes do not fit the arena, and the daemon takes no message of "
                                   "more than {} ([limits] client_message_mb): raise input_arena_bytes",
                                   request->model.name, model.info.inputs[outgoing_.inputs.size()].name, input.view.size_bytes(),
                                   connection_->longest_frame_bytes()));
    }
    outgoing_.inputs.push_back(tensor);
  }
  for (const auto& slot : request->output_slots) {
    wire::WireTensor tensor{};
    if (slot) {
      tensor.offset_bytes = slot->offset();
      tensor.capacity_bytes = slot->capacity_bytes();
    }
    outgoing_.outputs.push_back(tensor);
  }
  wire::encode_request(outgoing_, frame_);
  frames_[0] = frame_;
  if (timeout_ns == 0) request->sent_ns = monotonic_now_ns();
  request->is_cancelled = false;
  requests_[request->seq] = request;
  const Status sent = connection_->socket().send(frames_);
  if (sent.ok()) return;
  if (sent.code() != StatusCode::kUnavailable) {  // no memory for its frames: nothing was sent
    requests_.erase(request->seq);
    return fail(*request, sent.with_context(format("model '{}'", request->model.name)));
  }
  // The daemon is gone. The attach socket reports that soon, and then the request is sent again.
  attach_read_ns_ = 0;
}

void PoolCore::offer_outputs(PendingRequest& request, const ModelEntry& entry) {
  const auto& outputs = entry.description->info.outputs;
  const auto learned = entry.output_bytes.find(request.shape_key);
  request.output_slots.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::uint64_t bytes =
        learned != entry.output_bytes.end() && i < learned->second.size() ? learned->second[i] : guess_bytes(outputs[i], request);
    request.output_slots.push_back(bytes > 0 ? output_->allocate(bytes) : nullptr);
  }
}

void PoolCore::receive_all() {
  while (connection_) {
    const auto received = connection_->socket().receive(incoming_);
    if (!received.ok() || !*received) return;
    ++heard_;
    dispatch(incoming_);
  }
}

void PoolCore::dispatch(const wire::Message& message) {
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return;
  switch (*kind) {
    case wire::Kind::kReply:
      return handle_reply(message);
    case wire::Kind::kRelease:
      return handle_release(message);
    case wire::Kind::kControlReply:
      return handle_control_reply(message);
    default:
      return;
  }
}

void PoolCore::handle_reply(const wire::Message& message) {
  const auto reply = wire::decode_reply(message[0]);
  if (!reply.ok()) return;
  const auto found = requests_.find(reply->header.seq);
  if (found == requests_.end()) return;
  const std::shared_ptr<PendingRequest> request = found->second;
  if (reply->header.released != 0) requests_.erase(found);
  if (!request->is_done()) take_reply(message, *reply, request);
  if (reply->header.released != 0 && request->is_done()) request->release_slots();
}

void PoolCore::take_reply(const wire::Message& message, const wire::Reply& reply,
                          const std::shared_ptr<PendingRequest>& request) {
  const wire::ReplyHeader& header = reply.header;
  const auto status = static_cast<StatusCode>(header.status);
  ModelEntry& entry = models_[request->model];
  if (status == StatusCode::kFailedPrecondition && header.ran == 0 && !request->has_described_again) {
    requests_.erase(request->seq);
    entry.description.reset();
    return look_again(request, entry);
  }
  // This daemon knows of no earlier one.
  const auto least_ran = static_cast<std::uint8_t>(request->may_have_run ? Ran::kMaybe : Ran::kNo);
  Outcome outcome{.ran = static_cast<Ran>(std::clamp<std::uint8_t>(header.ran, least_ran, 2)),
                  .attempts = header.attempts,
                  .batch = header.batch,
                  .model_version = header.model_version,
                  .queue_time = std::chrono::nanoseconds(header.queue_ns),
                  .compute_time = std::chrono::nanoseconds(header.compute_ns),
                  .retry_after = std::chrono::milliseconds(header.retry_after_ms)};
  if (status != StatusCode::kOk) {
    outcome.outputs =
        Status(status, message.size() > 1 ? std::string(as_text(message[1])) : format("model '{}'", request->model.name));
  } else {
    outcome.outputs = read_outputs(message, reply, *request);
    if (outcome.outputs.ok()) {
      if (entry.output_bytes.size() >= kMaxLearnedShapes) entry.output_bytes.clear();
      auto& learned = entry.output_bytes[request->shape_key];
      learned.clear();
      for (const wire::WireTensor& output : reply.outputs) learned.push_back(output.size_bytes);
    }
  }
  complete(*request, std::move(outcome));
}

Result<Tensors> PoolCore::read_outputs(const wire::Message& message, const wire::Reply& reply, const PendingRequest& request) {
  const auto& specs = request.description->info.outputs;
  if (reply.outputs.size() != specs.size()) {
    return internal_error("model '{}' answered {} outputs (it has {})", request.model.name, reply.outputs.size(), specs.size());
  }
  Tensors outputs;
  std::size_t next_frame = 2;  // after the header and the text
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const wire::WireTensor& output = reply.outputs[i];
    const auto dtype = static_cast<DType>(output.dtype);
    const Shape shape = wire::shape_of(output);
    if (output.location == static_cast<std::uint8_t>(wire::Location::kFrame)) {
      if (next_frame >= message.size() || message[next_frame].size() != output.size_bytes) {
        return internal_error("model '{}': output '{}' of {} bytes did not come with its answer", request.model.name,
                              specs[i].name, output.size_bytes);
      }
      SHOAL_ASSIGN_OR_RETURN(Tensor copy, Tensor::create(dtype, shape));
      std::memcpy(copy.view().data, message[next_frame++].data(), output.size_bytes);
      outputs.push_back({specs[i].name, std::move(copy)});
      continue;
    }
    const auto slot = i < request.output_slots.size() ? request.output_slots[i] : nullptr;
    if (!slot || output.offset_bytes != slot->offset() || output.size_bytes > slot->capacity_bytes()) {
      return internal_error("model '{}': output '{}' lies outside the slot that was offered for it", request.model.name,
                            specs[i].name);
    }
    outputs.push_back({specs[i].name, Tensor({dtype, shape, slot->data()}, slot)});
  }
  return outputs;
}

void PoolCore::handle_release(const wire::Message& message) {
  const auto release = wire::decode_reply(message[0]);
  if (!release.ok()) return;
  const auto found = requests_.find(release->header.seq);
  if (found == requests_.end() || !found->second->is_done()) return;
  found->second->release_slots();
  requests_.erase(found);
}

void PoolCore::handle_control_reply(const wire::Message& message) {
  const auto header = wire::decode_control(message[0]);
  if (!header.ok()) return;
  const auto found = calls_.find(header->seq);
  if (found == calls_.end()) return;
  const std::shared_ptr<ControlCall> call = found->second;
  calls_.erase(found);
  if (message.size() > 2) call->attachment.assign(message[2].begin(), message[2].end());
  const std::string text(message.size() > 1 ? as_text(message[1]) : std::string_view("{}"));
  const auto code = static_cast<StatusCode>(header->status);
  const Result<std::string> answer = code == StatusCode::kOk ? Result<std::string>(text) : Status(code, parse_message(text));
  for (auto& [name, entry] : models_) {
    if (entry.describe_seq == call->seq) handle_description(name, entry, answer);
  }
  finish_call(call, answer);
}

void PoolCore::handle_description(const ModelKey& model, ModelEntry& entry, const Result<std::string>& answer) {
  entry.describe_seq = 0;
  Status status = answer.status();
  if (answer.ok()) {
    auto description = parse_description(*answer);
    status = description.status();
    if (status.ok()) entry.description = std::make_shared<const Description>(*std::move(description));
  }
  std::vector<std::shared_ptr<PendingRequest>> waiting;  // a list of its own, because send_request() may park one again
  for (const auto& [seq, request] : parked_) {
    if (request->model == model) waiting.push_back(request);
  }
  for (const auto& request : waiting) {
    parked_.erase(request->seq);
    if (status.ok()) {
      send_request(request, entry);
    } else {
      fail(*request, status);
    }
  }
}

std::shared_ptr<ControlCall> PoolCore::start_call(std::string json) {
  auto call = std::make_shared<ControlCall>();
  call->seq = ++last_seq_;
  call->json = std::move(json);
  calls_[call->seq] = call;
  if (is_ready()) send_call(*call);
  return call;
}

void PoolCore::send_call(ControlCall& call) {
  const wire::ControlHeader header = wire::make_control(wire::Kind::kControl, call.seq);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(call.json))};
  call.is_sent = true;
  if (!connection_->socket().send(frames).ok()) attach_read_ns_ = 0;
}

std::shared_ptr<ControlCall> PoolCore::ask_description(const ModelKey& model, ModelEntry& entry) {
  auto call = start_call(control_json("describe", model.name, model.version));
  entry.describe_seq = call->seq;
  return call;
}

// The description is kept, so that a later request is sent at once.
Result<ModelInfo> PoolCore::describe(std::string_view model, std::uint64_t version) {
  SHOAL_RETURN_IF_ERROR(usable());
  std::shared_ptr<ControlCall> call;
  {
    const MutexLock lock(mutex_);
    const ModelKey key{std::string(model), version};
    ModelEntry& entry = models_[key];
    const auto under_way = calls_.find(entry.describe_seq);
    call = under_way != calls_.end() ? under_way->second : ask_description(key, entry);
    progress();
  }
  // If there is no answer, the call stays, because requests may wait for it.
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, answer_of(*call));
  SHOAL_ASSIGN_OR_RETURN(Description description, parse_description(answer));
  return std::move(description.info);
}

Result<ModelChange> PoolCore::change(const ChangeRequest& change) {
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, ask(change_json(change)));
  return parse_change(answer);
}

Result<std::string> PoolCore::ask(std::string json, std::vector<std::byte>* attachment, bool ends_daemon) {
  SHOAL_RETURN_IF_ERROR(usable());
  std::shared_ptr<ControlCall> call;
  {
    const MutexLock lock(mutex_);
    call = start_call(std::move(json));
    call->ends_daemon = ends_daemon;
    progress();
  }
  Result<std::string> answer = answer_of(*call);
  const MutexLock lock(mutex_);
  calls_.erase(call->seq);  // if the wait ended without an answer: the next daemon is not asked
  if (attachment) *attachment = std::move(call->attachment);
  return answer;
}

void PoolCore::cancel(PendingRequest& request) {
  if (fork_guard_.in_child()) return;
  const MutexLock lock(mutex_);
  if (request.is_done()) return;
  if (requests_.contains(request.seq)) {
    send_cancel(request);
    progress();
  } else {
    fail(request, cancelled("model '{}': the caller canceled the request", request.model.name));
  }
}

void PoolCore::give_up(PendingRequest& request) {
  if (fork_guard_.in_child()) return;
  const MutexLock lock(mutex_);
  if (request.is_done()) return;
  const bool is_under_way = requests_.contains(request.seq);
  fail(request, cancelled("model '{}': the caller canceled the request", request.model.name));
  if (is_under_way) {  // it keeps its slots until the daemon releases them
    send_cancel(request);
    progress();
  }
}

void PoolCore::send_cancel(PendingRequest& request) {
  if (!is_ready() || std::exchange(request.is_cancelled, true)) return;
  wire::Request cancel;
  cancel.header.kind = static_cast<std::uint16_t>(wire::Kind::kCancel);
  cancel.header.seq = request.seq;
  wire::encode_request(cancel, frame_);
  if (!connection_->socket().send(frame_).ok()) attach_read_ns_ = 0;
}

void PoolCore::complete(PendingRequest& request, Outcome outcome) {
  if (request.is_done()) return;  // canceled or expired
  request.complete(std::move(outcome));
  wake_waiters_of(request);
}

// A request that is not under way releases its slots before anybody sees its outcome.
void PoolCore::fail(PendingRequest& request, Status status) {
  const bool is_under_way = requests_.contains(request.seq);
  if (!is_under_way) request.release_slots();
  complete(request, {.outputs = std::move(status), .ran = is_under_way || request.may_have_run ? Ran::kMaybe : Ran::kNo});
  parked_.erase(request.seq);  // last, because parked_ may hold the only reference
}

void PoolCore::finish_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) {
  calls_.erase(call->seq);
  call->complete(std::move(answer));
  wake_waiters_of(*call);
}

}  // namespace shoal::client
