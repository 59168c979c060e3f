// PoolCore: sending requests and receiving replies.
#include <sys/eventfd.h>

#include <algorithm>

#include "client/src/pool_core.hpp"
#include "client/src/session_state.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::client {
namespace {

constexpr std::size_t kMaxLearnedShapes = 64;
constexpr int kMostSentBlindly = 32;
constexpr std::uint64_t kMostBytesSentBlindly = 1 << 20;
constexpr std::size_t kMostUnderWay =
    32'768;  // whatever the option says: with a CANCEL for each, they fit ZeroMQ's queue of 100 000

// What a reply says, apart from its outputs. Allocates nothing.
Outcome outcome_of(const wire::ReplyHeader& header, const PendingRequest& request, Result<Tensors> outputs) {
  // This daemon knows of no earlier one.
  const auto least_ran = static_cast<std::uint8_t>(request.may_have_run ? Ran::kMaybe : Ran::kNo);
  return {.outputs = std::move(outputs),
          .ran = static_cast<Ran>(std::clamp<std::uint8_t>(header.ran, least_ran, 2)),
          .attempts = header.attempts,
          .batch = header.batch,
          .model_version = header.model_version,
          .queue_time = std::chrono::nanoseconds(header.queue_ns),
          .compute_time = std::chrono::nanoseconds(header.compute_ns),
          .retry_after = std::chrono::milliseconds(header.retry_after_ms)};
}

Status unreadable(const PendingRequest& request, const Status& why) {
  return internal_error("model '{}': its answer cannot be read: {}", request.model.name, why.message());
}

/// Whether an output must be copied to memory of the caller's.
bool has_outputs_elsewhere(const PendingRequest& request, const Tensors& outputs) {
  return std::ranges::any_of(request.own_outputs, [&](const NamedTensor& own) {
    const auto output = std::ranges::find(outputs, own.name, &NamedTensor::name);
    return output != outputs.end() &&
           (output->tensor.view().data != own.tensor.view().data || output->tensor.shape() != own.tensor.shape() ||
            output->tensor.dtype() != own.tensor.dtype());
  });
}

}  // namespace

// Copies inputs, so without the mutex.
Status PoolCore::take_inputs(PendingRequest& request, const completion::Submission& submission) try {
  SHOAL_RETURN_IF_ERROR(usable());
  SHOAL_RETURN_IF_ERROR(check_model_name(submission.model));
  if (request.options.timeout.count() < 0)
    return deadline_exceeded("model '{}': the timeout was over when the request was submitted", submission.model);
  request.model.name = submission.model;
  request.model.version = request.options.version;
  request.known = submission.known;
  request.own_outputs.assign(submission.outputs.begin(), submission.outputs.end());
  return place_inputs(submission.inputs, request);
} catch (const std::bad_alloc&) {
  return out_of_memory("the inputs of a request", submission.model);
}

void PoolCore::submit(completion::Submission submission, completion::HandleSlot& handle) {
  submit(std::move(submission), nullptr, handle);
}

// Once there is a handle, the request completes, also without memory.
void PoolCore::submit(completion::Submission submission, std::shared_ptr<SessionState> session, completion::HandleSlot& handle) {
  const auto request = begin_handle(std::static_pointer_cast<PoolCore>(shared_from_this()), handle);
  request->session = std::move(session);
  if (submission.notice) request->notices.add(std::move(submission.notice));
  try {
    send_new(request, submission);
  } catch (const std::bad_alloc&) {
    const Lock lock(*this);
    request->is_begun = true;
    fail(*request, out_of_memory("a request", submission.model));
  }
}

bool PoolCore::is_unshared(const std::shared_ptr<PendingRequest>& request) {
  const Lock lock(*this);  // whoever dropped it did so with the mutex held
  return request.use_count() == 1 && request->is_done();
}

void PoolCore::send_new(const std::shared_ptr<PendingRequest>& request, const completion::Submission& submission) {
  const SubmitOptions& options = request->options = submission.options;
  if (options.timeout.count() > 0) request->deadline_ns = monotonic_now_ns() + count_ns(options.timeout);
  Status placed = take_inputs(*request, submission);
  if (!placed.ok()) {
    Owners callers;
    release_inputs_of(*request, callers);
    if (fork_guard_.in_child()) return request->complete({.outputs = std::move(placed)});
    if (placed.code() == StatusCode::kOverloaded) poll();  // what the daemon has released meanwhile makes room for the next one
    const Lock lock(*this);
    request->is_begun = true;
    return complete(*request, {.outputs = std::move(placed)});
  }
  const Lock lock(*this);
  request->is_begun = true;
  if (std::exchange(request->is_cancelled, false)) return fail(*request, request->canceled_by_caller());
  Status begun = begin(request);
  begun.ok() ? start(request) : fail(*request, std::move(begun));
}

void PoolCore::start(const std::shared_ptr<PendingRequest>& request) {
  request->seq = ++last_seq_;
  try {
    want_connection();
    // The daemon may have told of the model since.
    if (const ModelEntry* const known = entry_of(*request); is_ready() && (!known || !known->description)) receive_all();
    route(request);
  } catch (const std::bad_alloc&) {
    fail(*request, out_of_memory("a request", request->model.name));
  }
  while (request->is_being_prepared && std::erase(unprepared_, request) > 0) prepare(request);
  for (const RequestInput& input : request->inputs) bytes_since_progress_ += input.view.size_bytes();  // states, too
  progress_after_sends();
}

// A thread that polls ZeroMQ's descriptor may have lost its edge by this send. Without one, to look for answers at every request
// would cost a system call each. But answers give slots back, and without them the arena grows.
void PoolCore::progress_after_sends() try {
  if (is_driven_ || ++sent_since_progress_ >= kMostSentBlindly || bytes_since_progress_ >= kMostBytesSentBlindly) progress();
} catch (const std::bad_alloc&) {  // the request is under way, and whoever waits goes on
}

// Sends the request, or parks it until the model is described.
void PoolCore::route(const std::shared_ptr<PendingRequest>& request) {
  if (const std::size_t most = std::min(options_.in_flight_limit, kMostUnderWay);
      requests_.size() + old_requests_.size() + parked_.size() >= most) {
    return fail(*request,
                overloaded("model '{}': {} requests of this pool are unanswered (PoolOptions::in_flight_limit), because the "
                           "daemon in {} is too slow, or because a model loads",
                           request->model.name, most, options_.directory));
  }
  if (ModelEntry* const known = entry_of(*request); known && known->description && is_ready())
    return send_request(request, *known);
  park(request);
  if (!is_ready()) {
    // When reconnect_timeout is over, the attempt that just failed decides.
    if (!connection_ && monotonic_now_ns() >= give_up_reconnecting_ns_) lose_connection(copy_of(lost_because_));
    return;
  }
  ask_description_for(request);
}

// The daemon does not need its inputs any more, so libzmq has sent the message, too.
void PoolCore::release_slots_of(PendingRequest& request) {
  release_inputs_of(request, left_owners_);
  take_back_outputs(request);
}

void PoolCore::release_inputs_of(PendingRequest& request, Owners& left) {
  frame_bytes_.fetch_sub(std::exchange(request.frame_bytes, 0), std::memory_order_relaxed);
  request.release_inputs(left);
}

// No worker writes its outputs any more.
void PoolCore::take_back_outputs(PendingRequest& request) {
  for (OutputSlot& slot : request.output_slots) {
    if (!slot.is_callers) continue;
    std::erase(own_in_use_, slot.data);
    leave(std::move(slot.owner), left_owners_);
  }
  request.output_slots.clear();
}

// Without memory it ends.
void PoolCore::park(const std::shared_ptr<PendingRequest>& request) try {
  take_back_outputs(*request);
  parked_[request->seq] = request;
  const std::uint64_t expiry_ns = std::max(request->deadline_ns, next_walk_ns_);
  if (expiry_ns >= next_expiry_ns_) return;
  next_expiry_ns_ = expiry_ns;
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver waits for less
} catch (const std::bad_alloc&) {
  fail(*request, out_of_memory("a request", request->model.name));
}

// Asks for the description again, at most once per request: the model's inputs have changed, or may have.
void PoolCore::look_again(const std::shared_ptr<PendingRequest>& request) {
  if (request->is_cancelled) return fail(*request, request->canceled_by_caller());
  request->has_described_again = true;
  park(request);
  ask_description_for(request);
}

// Without memory the request ends.
void PoolCore::send_request(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) try {
  request->sent_ns = monotonic_now_ns();
  if (request->sent_ns >= request->deadline_ns)
    return fail(*request, deadline_exceeded("model '{}': the timeout was over before it could be sent", request->model.name));
  if (Status ordered = order_inputs(*request, entry); !ordered.ok())
    return request->has_described_again ? fail(*request, std::move(ordered)) : look_again(request);
  if (waits_for_copies(request, entry) || waits_for_memory(request)) return;
  offer_outputs(*request, entry);
  if (Status written = write_request(*request); !written.ok()) return fail(*request, std::move(written));
  request->is_cancelled = false;
  add_sent(request);
  if (overdue_ns(*request) < next_overdue_ns_) {
    next_overdue_ns_ = overdue_ns(*request);
    if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver waits for less
  }
  const Status sent = connection_->socket().send(frames_);
  if (sent.ok()) return;
  if (sent.code() != StatusCode::kUnavailable) {  // no memory for its frames: nothing was sent
    requests_.erase(request->seq);
    return fail(*request, sent.with_context(format("model '{}'", request->model.name)));
  }
  // The daemon is gone. The attach socket reports that soon, and then the request is sent again.
  attach_read_ns_ = 0;
} catch (const std::bad_alloc&) {  // nothing was sent
  requests_.erase(request->seq);
  fail(*request, out_of_memory("a request", request->model.name));
}

// Writes the message into frames_: it says where the tensors lie. Inputs that lie in no arena follow as frames.
Status PoolCore::write_request(PendingRequest& request) {
  const Description& model = *request.description;
  outgoing_.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest),
                      .seq = request.seq,
                      .model_id = model.model_id,
                      .signature = model.signature,
                      .timeout_ns = request.deadline_ns == kForever ? 0 : request.deadline_ns - request.sent_ns,
                      .priority = request.options.priority,
                      .model_version = request.model.version,
                      .flow = request.options.flow};
  outgoing_.inputs.clear();
  outgoing_.outputs.clear();
  frames_.assign(1, {});
  for (const std::size_t index : request.order) {
    const RequestInput& input = request.inputs[index];
    wire::WireTensor tensor = wire::to_wire(input.view);
    tensor.offset_bytes = input.offset;
    tensor.location = static_cast<std::uint8_t>(input.arena ? wire::Location::kArena : wire::Location::kFrame);
    if (!input.arena) frames_.push_back(input.view.bytes());
    if (!input.arena && input.view.size_bytes() > connection_->longest_frame_bytes()) {
      const std::string& name = model.info.inputs[outgoing_.inputs.size()].name;
      return no_room_for(input, name, request);
    }
    outgoing_.inputs.push_back(tensor);
  }
  for (const OutputSlot& slot : request.output_slots) {
    wire::WireTensor tensor{};
    tensor.offset_bytes = slot.offset;
    tensor.capacity_bytes = slot.capacity_bytes;
    outgoing_.outputs.push_back(tensor);
  }
  wire::encode_request(outgoing_, frame_);
  frames_[0] = frame_;
  return {};
}

void PoolCore::receive_all() {
  if (old_) receive_from(old_);
  receive_from(connection_);
  leave_old_connection();
}

void PoolCore::receive_from(const std::unique_ptr<Connection>& connection) {
  while (connection) {
    const auto received = connection->socket().receive(incoming_);
    if (!received.ok() || !*received) return;
    ++heard_;
    dispatch(incoming_, connection == connection_);
  }
}

// Requests of the connection that is being left are looked for second.
std::shared_ptr<PendingRequest> PoolCore::find_sent(std::uint64_t seq) const {
  if (const auto found = requests_.find(seq); found != requests_.end()) return found->second;
  const auto old = old_requests_.find(seq);
  return old == old_requests_.end() ? nullptr : old->second;
}

void PoolCore::add_sent(const std::shared_ptr<PendingRequest>& request) {
  if (request->place.empty()) {
    requests_[request->seq] = request;
    return;
  }
  request->place.key() = request->seq;
  request->place.mapped() = request;
  try {
    requests_.insert(std::move(request->place));
  } catch (const std::bad_alloc&) {
    request->place.mapped().reset();  // it would keep itself
    throw;
  }
}

// A request that is used again keeps its place.
void PoolCore::forget_sent(std::uint64_t seq) {
  for (PendingRequest::ByNumber* const sent : {&requests_, &old_requests_}) {
    if (auto place = sent->extract(seq)) {
      const std::shared_ptr<PendingRequest> request = std::move(place.mapped());
      request->place = std::move(place);
      return;
    }
  }
}

void PoolCore::dispatch(const wire::Parcel& message, bool is_current) {
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return;
  switch (*kind) {
    case wire::Kind::kReply:
      return handle_reply(message);
    case wire::Kind::kRelease:
      return handle_release(message);
    case wire::Kind::kControlReply:
      return handle_control_reply(message, is_current);
    default:
      return;
  }
}

// A request ends also if there is no memory for its answer.
void PoolCore::handle_reply(const wire::Parcel& message) {
  wire::Reply& reply = reply_;
  reply.header = {};
  std::shared_ptr<PendingRequest> request;
  try {
    const Status decoded = wire::decode_reply(message[0], reply);
    request = find_sent(reply.header.seq);  // none if not even the header could be read: no request has the number 0
    if (request && !request->is_settled())
      decoded.ok() ? take_reply(message, reply, request)
                   : complete(*request, outcome_of(reply.header, *request, unreadable(*request, decoded)));
  } catch (const std::bad_alloc&) {
    if (!request) request = find_sent(reply.header.seq);  // the header is read before anything is allocated
    if (request && !request->is_settled())
      complete(*request, outcome_of(reply.header, *request, out_of_memory("the answer of a request", request->model.name)));
  }
  if (!request || reply.header.released == 0) return;
  forget_sent(request->seq);
  if (request->is_settled()) release_slots_of(*request);
  send_what_waited();
}

void PoolCore::take_reply(const wire::Parcel& message, const wire::Reply& reply, const std::shared_ptr<PendingRequest>& request) {
  const wire::ReplyHeader& header = reply.header;
  const auto status = static_cast<StatusCode>(header.status);
  ModelEntry* const known = entry_of(*request);
  ModelEntry& entry = known ? *known : models_[request->model];
  // What is known of the model is of an earlier version, or of another daemon.
  const bool is_known_wrongly = status == StatusCode::kFailedPrecondition || status == StatusCode::kNotFound;
  if (is_known_wrongly && header.ran == 0 && !request->has_described_again) {
    forget_sent(request->seq);
    if (entry.description == request->description) entry.description.reset();
    return look_again(request);
  }
  if (status != StatusCode::kOk) {
    std::string text = message.size() > 1 ? std::string(wire::as_text(message[1])) : format("model '{}'", request->model.name);
    return complete(*request, outcome_of(header, *request, Status(status, std::move(text))));
  }
  auto outputs = read_outputs(message, reply, *request);
  if (!outputs.ok()) return complete(*request, outcome_of(header, *request, std::move(outputs)));
  if (entry.output_bytes.size() >= kMaxLearnedShapes) entry.output_bytes.clear();
  auto& learned = entry.output_bytes[request->shape_key];
  learned.clear();
  for (const wire::WireTensor& output : reply.outputs) learned.push_back(output.size_bytes);
  const bool is_whole = std::ranges::all_of(*outputs, [](const NamedTensor& each) { return each.tensor.owner() != nullptr; }) &&
                        !has_outputs_elsewhere(*request, *outputs);
  Outcome outcome = outcome_of(header, *request, std::move(outputs));
  if (is_whole && !request->session) return complete(*request, std::move(outcome));
  answers_.push_back({request, std::move(outcome), message.payload, {}});
  answers_.back().own_outputs.swap(request->own_outputs);
  request->is_answered = request->may_have_run = true;
}

Result<Tensors> PoolCore::read_outputs(const wire::Parcel& message, const wire::Reply& reply, PendingRequest& request) {
  const auto& specs = request.description->info.outputs;
  if (reply.outputs.size() != specs.size()) {
    return internal_error("model '{}' answered {} outputs (it has {})", request.model.name, reply.outputs.size(), specs.size());
  }
  Tensors outputs = std::move(request.room);
  outputs.resize(specs.size());
  std::size_t next_frame = 2;  // after the header and the text
  for (std::size_t i = 0; i < specs.size(); ++i) {
    outputs[i].name = specs[i].name;
    const wire::WireTensor& output = reply.outputs[i];
    const auto dtype = static_cast<DType>(output.dtype);
    const Shape shape = wire::shape_of(output);
    if (output.location == static_cast<std::uint8_t>(wire::Location::kFrame)) {
      if (next_frame >= message.size() || message[next_frame].size() != output.size_bytes) {
        return internal_error("model '{}': output '{}' of {} bytes did not come with its answer", request.model.name,
                              specs[i].name, output.size_bytes);
      }
      ++next_frame;
      outputs[i].tensor = Tensor({dtype, shape, nullptr}, nullptr);  // copy_answer() fills it
      continue;
    }
    const OutputSlot slot = i < request.output_slots.size() ? request.output_slots[i] : OutputSlot();
    if (!slot.owner || output.offset_bytes != slot.offset || output.size_bytes > slot.capacity_bytes) {
      return internal_error("model '{}': output '{}' lies outside the slot that was offered for it", request.model.name,
                            specs[i].name);
    }
    outputs[i].tensor = Tensor({dtype, shape, slot.data}, slot.owner);
  }
  return outputs;
}

void PoolCore::handle_release(const wire::Parcel& message) {
  const auto release = wire::decode_reply(message[0]);
  if (!release.ok()) return;
  const std::shared_ptr<PendingRequest> request = find_sent(release->header.seq);
  if (!request || !request->is_settled()) return;
  release_slots_of(*request);
  forget_sent(request->seq);
  send_what_waited();
}

void PoolCore::cancel(PendingRequest& request) {
  if (fork_guard_.in_child()) return;
  const Lock lock(*this);
  if (request.is_settled()) return;  // its answer is being copied
  if (!request.is_begun) {
    request.is_cancelled = true;
  } else if (find_sent(request.seq)) {
    try_to_cancel(request);
  } else {
    fail(request, request.canceled_by_caller());
  }
}

void PoolCore::give_up(PendingRequest& request) {
  if (fork_guard_.in_child()) return;
  const Lock lock(*this);
  while (request.is_being_copied) copied_.wait(mutex_);  // perhaps to memory that is the caller's again when this returns
  if (request.is_done()) return;
  if (!request.is_begun) {
    request.is_cancelled = true;
    return;
  }
  const bool is_under_way = find_sent(request.seq) != nullptr;
  fail(request, Status(StatusCode::kCancelled, "canceled"));  // nobody reads it; a text of this length allocates nothing
  if (is_under_way) try_to_cancel(request);                   // it keeps its slots until the daemon releases them
}

void PoolCore::try_to_cancel(PendingRequest& request) noexcept try {
  send_cancel(request);
  progress();
} catch (const std::bad_alloc&) {  // whoever waits goes on
}

void PoolCore::send_cancel(PendingRequest& request) {
  if (!is_ready() || request.is_cancelled) return;
  wire::Request cancel;
  cancel.header.kind = static_cast<std::uint16_t>(wire::Kind::kCancel);
  cancel.header.seq = request.seq;
  wire::encode_request(cancel, frame_);
  request.is_cancelled = true;
  const auto& connection = old_ && old_requests_.contains(request.seq) ? old_ : connection_;
  if (!connection->socket().send(frame_).ok()) attach_read_ns_ = 0;
}

void PoolCore::complete(PendingRequest& request, Outcome outcome) {
  if (request.is_done()) {  // canceled or expired
    if (outcome.outputs.ok()) leave_owners(*outcome.outputs, left_owners_);
    return;
  }
  request.complete(std::move(outcome));
  request.drop_frames(left_owners_);
  leave_owners(request.own_outputs, left_owners_);
  if (request.session && !request.session->closed.ok()) request.session->forget();
  wake_waiters_of(request);
  tell(request);
}

// What each notice belongs to is done now, and somebody may wait for that. A notice may keep tensors of the user's.
void PoolCore::tell(PendingRequest& request) noexcept {
  while (std::shared_ptr<completion::Notice> notice = request.notices.take()) {
    const auto done = notice->notify();
    wake_waiters_of(*done);
    leave(std::move(notice), left_owners_);
  }
}

void PoolCore::add_notice(PendingRequest& request, std::shared_ptr<completion::Notice> notice) {
  const Lock lock(*this);
  request.notices.add(std::move(notice));
  if (request.is_done()) tell(request);
}

// A request that is not under way releases its slots before anybody sees its outcome.
void PoolCore::fail(PendingRequest& request, Status status) {
  const bool is_under_way = find_sent(request.seq) != nullptr;
  if (!is_under_way) release_slots_of(request);
  complete(request, {.outputs = std::move(status), .ran = is_under_way || request.may_have_run ? Ran::kMaybe : Ran::kNo});
  parked_.erase(request.seq);  // last, because parked_ may hold the only reference
}

}  // namespace shoal::client
