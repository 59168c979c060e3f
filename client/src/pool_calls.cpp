// PoolCore: control requests, and the descriptions of models.
#include "client/src/pool_core.hpp"
#include "shm/base/errors.hpp"

namespace shoal::client {
namespace {

constexpr std::size_t kMostCalls = 4096;  // with so many unanswered ones, no other model is described

Result<std::string> read_answer(const wire::Parcel& message, const wire::ControlHeader& header, ControlCall& call) try {
  if (message.size() > 2) call.attachment.assign(message[2].begin(), message[2].end());
  std::string text = "{}";
  if (message.size() > 1) text = wire::as_text(message[1]);
  const auto code = static_cast<StatusCode>(header.status);
  return code == StatusCode::kOk ? Result<std::string>(std::move(text)) : Status(code, parse_message(text));
} catch (const std::bad_alloc&) {
  return out_of_memory("the daemon's answer");
}

}  // namespace

//   is_current  it did not come from the connection that is being left, whose news may be older
void PoolCore::handle_control_reply(const wire::Parcel& message, bool is_current) {
  const auto header = wire::decode_control(message[0]);
  if (!header.ok()) return;
  if (header->seq == 0) {  // nobody asked
    if (is_current && message.size() > 1 && header->status == static_cast<std::uint16_t>(StatusCode::kOk))
      take_description(wire::as_text(message[1]));
    return;
  }
  const auto found = calls_.find(header->seq);
  if (found == calls_.end()) return;
  const std::shared_ptr<ControlCall> call = found->second;
  answer_call(call, read_answer(message, *header, *call));
  if (call->describes) forget_unknown(*call->describes);
}

void PoolCore::answer_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) {
  const auto found = call->describes ? models_.find(*call->describes) : models_.end();
  if (found != models_.end() && found->second.describe_seq == call->seq) handle_description(found->first, found->second, answer);
  finish_call(call, std::move(answer));
}

// Names that no daemon knows may be many.
void PoolCore::forget_unknown(const ModelKey& model) {
  const auto found = models_.find(model);
  if (found != models_.end() && !found->second.description && found->second.describe_seq == 0) {
    models_.erase(found);
    ++erasures_;
  }
}

// Null if the model is not known. By its name only if entries were erased since.
PoolCore::ModelEntry* PoolCore::find_entry(const ModelKey& model, void* known) {
  if (ModelEntry* const entry = entry_at(known)) return entry;
  const auto found = models_.find(model);
  if (found == models_.end()) return nullptr;
  if (known) *static_cast<KnownModel*>(known) = {&found->second, erasures_};
  return &found->second;
}

PoolCore::ModelEntry* PoolCore::entry_at(void* known) const {
  const auto* const place = static_cast<KnownModel*>(known);
  return place && place->erasures == erasures_ ? place->entry : nullptr;
}

std::shared_ptr<void> PoolCore::know() { return std::make_shared<KnownModel>(); }

void PoolCore::handle_description(const ModelKey& model, ModelEntry& entry, const Result<std::string>& answer) {
  entry.describe_seq = 0;
  Status status;
  try {
    status = answer.status();
    if (answer.ok()) {
      auto description = parse_description(*answer);
      status = description.status();
      if (status.ok()) entry.description = std::make_shared<const Description>(*std::move(description));
    }
  } catch (const std::bad_alloc&) {
    status = out_of_memory("the description of a model", model.name);
  }
  end_wait(model, entry, status);
}

// What the daemon tells unasked, with its WELCOME or when a model was loaded or changed. So the first request of a model is sent
// by submit(). One that cannot be read, or without memory, is none: whoever needs it asks.
void PoolCore::take_description(std::string_view text) try {
  Result<Description> parsed = parse_description(text);
  if (!parsed.ok()) return;
  const auto description = std::make_shared<const Description>(*std::move(parsed));
  const auto place = models_.try_emplace({description->info.name, 0}).first;
  const auto asked = calls_.find(place->second.describe_seq);
  if (asked != calls_.end() && asked->second->is_sent) return;  // the answer is newer
  place->second.description = description;
  end_wait(place->first, place->second, {});
} catch (const std::bad_alloc&) {
}

// Each request that waits for the description is sent or ends, also without memory.
void PoolCore::end_wait(const ModelKey& model, ModelEntry& entry, const Status& status) {
  for (auto next = parked_.begin(); next != parked_.end();) {
    if (next->second->model != model || (status.ok() && next->second->is_being_prepared)) {
      ++next;
      continue;
    }
    const std::shared_ptr<PendingRequest> request = std::move(next->second);
    parked_.erase(next);
    status.ok() ? send_request(request, entry) : fail(*request, copy_of(status));
    next = parked_.upper_bound(request->seq);  // send_request() may park it again, or end others
  }
}

// It may be finished already, if there was no memory to send it.
//   describes  the model whose description it asks for, or null
std::shared_ptr<ControlCall> PoolCore::start_call(std::string json, const ModelKey* describes) {
  auto call = std::make_shared<ControlCall>();
  call->seq = ++last_seq_;
  call->json = std::move(json);
  if (describes) call->describes = *describes;
  ModelEntry* const entry = describes ? &models_[*describes] : nullptr;
  calls_[call->seq] = call;
  if (entry) entry->describe_seq = call->seq;
  if (is_ready()) send_call(call);
  return call;
}

void PoolCore::send_call(const std::shared_ptr<ControlCall>& call) {
  const wire::ControlHeader header = wire::make_control(wire::Kind::kControl, call->seq);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(call->json))};
  call->is_sent = true;
  Status sent;
  try {
    sent = connection_->socket().send(frames);
    if (sent.code() == StatusCode::kFailedPrecondition) sent = sent.with_context(name_question(call->json));
  } catch (const std::bad_alloc&) {
    sent = out_of_memory("a question");
  }
  if (sent.code() == StatusCode::kUnavailable) {  // the daemon is gone, as in send_request()
    attach_read_ns_ = 0;
  } else if (!sent.ok()) {  // no memory for its frames: nothing was sent
    answer_call(call, std::move(sent));
  }
}

// A call is kept until it is answered, also after its last request has expired: a request for the same model would have to ask
// again, and ZeroMQ keeps all questions that the daemon does not read.
Result<std::shared_ptr<ControlCall>> PoolCore::ask_description(const ModelKey& model) {
  if (calls_.size() >= kMostCalls) {
    return overloaded(
        "model '{}': {} questions of this pool are unanswered, because the daemon in {} is too slow, or because models load",
        model.name, kMostCalls, options_.directory);
  }
  return start_call(control_json("describe", model.name, model.version), &model);
}

// Without memory the request ends.
void PoolCore::ask_description_for(const std::shared_ptr<PendingRequest>& request) try {
  if (const ModelEntry* const known = entry_of(*request); known && known->describe_seq != 0) return;
  if (auto asked = ask_description(request->model); !asked.ok()) fail(*request, asked.status());
} catch (const std::bad_alloc&) {
  fail(*request, out_of_memory("a request", request->model.name));
}

// The description is kept, so that a later request is sent at once.
Result<ModelInfo> PoolCore::describe(std::string_view model, std::uint64_t version) {
  SHOAL_RETURN_IF_ERROR(usable());
  SHOAL_RETURN_IF_ERROR(check_model_name(model));
  std::shared_ptr<ControlCall> call;
  {
    const Lock lock(*this);
    if (is_closed_) return cancelled("the pool was destroyed");
    const ModelKey key{std::string(model), version};
    const auto known = models_.find(key);
    const auto under_way = known == models_.end() ? calls_.end() : calls_.find(known->second.describe_seq);
    if (under_way != calls_.end()) {
      call = under_way->second;
    } else {
      SHOAL_ASSIGN_OR_RETURN(call, ask_description(key));
    }
    want_connection();
    progress();
  }
  // If there is no answer, the call stays, because requests may wait for it.
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, answer_of(*call));
  SHOAL_ASSIGN_OR_RETURN(Description description, parse_description(answer));
  return std::move(description.info);
}

std::shared_ptr<const Description> PoolCore::known_description(std::string_view model, std::uint64_t version, void* known) {
  if (fork_guard_.in_child()) return nullptr;
  const Lock lock(*this);
  const ModelEntry* entry = entry_at(known);
  if (!entry) entry = find_entry({std::string(model), version}, known);
  return entry ? entry->description : nullptr;
}

std::shared_ptr<const ModelInfo> PoolCore::known_info(std::string_view model, std::uint64_t version, void* known) {
  const auto description = known_description(model, version, known);
  return description ? std::shared_ptr<const ModelInfo>(description, &description->info) : nullptr;
}

Result<ModelChange> PoolCore::change(const ChangeRequest& change) {
  SHOAL_RETURN_IF_ERROR(check_model_name(change.model));
  SHOAL_ASSIGN_OR_RETURN(const std::string question, change_json(change));
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, ask(question));
  return parse_change(answer);
}

Result<std::string> PoolCore::ask(std::string json, std::vector<std::byte>* attachment, bool ends_daemon) {
  SHOAL_RETURN_IF_ERROR(usable());
  std::shared_ptr<ControlCall> call;
  {
    const Lock lock(*this);
    if (is_closed_) return cancelled("the pool was destroyed");
    call = start_call(std::move(json));
    call->ends_daemon = ends_daemon;
    want_connection();
    progress();
  }
  Result<std::string> answer = answer_of(*call);
  const Lock lock(*this);
  calls_.erase(call->seq);  // if the wait ended without an answer: the next daemon is not asked
  if (attachment) *attachment = std::move(call->attachment);
  return answer;
}

void PoolCore::finish_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) {
  calls_.erase(call->seq);
  call->complete(std::move(answer));
  wake_waiters_of(*call);
}

}  // namespace shoal::client
