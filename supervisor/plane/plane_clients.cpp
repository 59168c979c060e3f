// Handles what clients send, and how clients come and go.
#include <algorithm>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/plane/request_shape.hpp"

namespace shoal::supervisor {

namespace {

// Of those that travel in the message.
std::uint64_t tensor_bytes(const wire::Parcel& parcel) { return parcel.size_bytes() - parcel.head.size(); }

constexpr int kClientMessagesPerTurn = 32;            // before the other sockets have their turn
constexpr std::uint32_t kCancelLooksAt = 64;          // a cancel counts as one message more per so many requests that it searches
constexpr std::uint64_t kLeastUnsent = 64 << 20;      // what a client may leave unread, even if client_message_mb is less
constexpr std::uint64_t kControlBytesPerTurn = 1024;  // a control answer counts as one message more for so many of its bytes
constexpr std::uint64_t kPagesPerMessage = 64;        // a look at an arena counts as one message more for so many of its pages
constexpr std::uint64_t kSmallAnswer = 24 * 1024;     // answers that take less memory are sent without a check

}  // namespace

Status DataPlane::client_bound(Client& client) {
  SHOAL_RETURN_IF_ERROR(client_transport_.connect(client.path, client.id, (client.features & wire::kBundles) != 0));
  client.last_message_ns = clock_.now_ns();
  const wire::ControlHeader welcome = wire::make_control(wire::Kind::kWelcome, 0);
  std::vector<std::span<const std::byte>> frames{std::as_bytes(std::span(&welcome, 1))};
  std::uint64_t bytes = 0;
  if ((client.features & wire::kDescriptions) != 0) {
    for (const std::string_view text : observer_.descriptions()) {
      frames.push_back(std::as_bytes(std::span(text)));
      bytes += text.size();
    }
  }
  if (!check_answer(client.id, bytes).ok()) frames.resize(1);  // it asks
  return client_transport_.push(client.id, frames, {}, &client.unsent);
}

void DataPlane::client_gone(Client& client) {
  log_.debug("client_gone client={} pid={}", client.id, client.pid);
  if (client_transport_.disconnect(client.path, client.id)) {
    clients_->remember_offence(client);
    cut_off_bytes_ += wire::Transport::kCutOffBytes;
  }
  observer_.client_left(client);
  ledger_.client_gone(client.id);
  perform();
}

// No lane holds a request of the client any more, so the workers can unmap its arenas.
void DataPlane::client_forgotten(Client& client) {
  for (auto& [incarnation, routed] : workers_) {
    if (client.place >= routed.attached.size() || routed.attached[client.place] != client.id) continue;
    routed.attached[client.place] = 0;
    WorkerProcess* worker = routed.version->processes.find_worker(incarnation);
    if (!worker || !worker->control) continue;
    // When the socket is full, the worker keeps the mapping until this is sent again.
    const Status sent = wire::send_control(worker->control.get(), {.kind = wire::ControlKind::kDetachClient, .id = client.id});
    if (sent.ok()) continue;
    log_.warn("detach_not_sent client={} worker={} reason=\"{}\"", client.id, worker->pid, sent.message());
    routed.to_detach.push_back(client.id);
    retry_unroutable_.set_earlier(now_ns_ + kUnroutableRetryNs);
  }
}

void DataPlane::receive_from_clients() {
  for (turn_left_ = kClientMessagesPerTurn; turn_left_ > 0; --turn_left_) {
    wire::PeerId peer = 0;
    const auto received = client_transport_.receive(peer, incoming_);
    if (!received.ok() || !*received) return;
    ++traffic_.client_messages;
    traffic_.client_bytes += incoming_.size_bytes();
    Client* client = clients_->find(peer);
    if (!client) continue;
    client->last_message_ns = now_ns_;
    client->told = 0;
    handle_client_message(*client, incoming_);
  }
}

void DataPlane::handle_client_message(Client& client, wire::Parcel& parcel) {
  const auto kind = wire::peek_kind(parcel.head);
  if (!kind.ok()) {
    // Its first message says whether it speaks our version. One that does not could not read an answer.
    if (client.state == Client::State::kWelcoming) return clients_->disconnect(client, kind.status().message());
    return handle_bad_message(client, parcel, kind.status());
  }
  if (*kind == wire::Kind::kWelcomed && client.state == Client::State::kWelcoming) {
    client.socket_fd = client_transport_.source_fd();
    return clients_->welcomed(client);
  }
  if (client.state != Client::State::kReady) return;
  switch (*kind) {
    case wire::Kind::kRequest:
      return handle_request(client, parcel);
    case wire::Kind::kCancel:
      if (const Status decoded = wire::decode_request(parcel.head, request_); !decoded.ok())
        return handle_bad_message(client, parcel, decoded);
      turn_left_ -= static_cast<int>(client.outstanding / kCancelLooksAt);
      ledger_.cancel(client.id, request_.header.seq, now_ns_);
      return perform();
    case wire::Kind::kControl:
      return handle_control(client, parcel);
    default:
      return handle_bad_message(client, parcel, invalid_argument("message of kind {} from a client", static_cast<int>(*kind)));
  }
}

void DataPlane::handle_request(Client& client, wire::Parcel& parcel) {
  if (const Status decoded = wire::decode_request(parcel.head, request_); !decoded.ok())
    return handle_bad_message(client, parcel, decoded);
  const wire::RequestHeader& header = request_.header;
  std::uint32_t wait_ms = 0;
  const Result<RoutedVersion*> version = check_request(client, parcel, wait_ms);
  if (!version.ok()) return refuse_request(client.id, header.seq, version.status(), wait_ms);
  const ModelIndex model = (*version)->index;
  const Result<RequestId> admitted = admit_request(client, parcel, model);
  if (!admitted.ok()) {
    wait_ms = retry_after_ms(model, client.id, header.flow, admitted.status().code());
    return refuse_request(client.id, header.seq, admitted.status(), wait_ms);
  }
  keep_request(client, parcel, **version, slot_of(*admitted));
  ledger_.dispatch(model, now_ns_);
  perform();
}

// Whether this client may make this request. Returns the version that it is for. `wait_ms`: after a refusal, when to try again.
Result<RoutedVersion*> DataPlane::check_request(Client& client, const wire::Parcel& parcel, std::uint32_t& wait_ms) {
  const wire::RequestHeader& header = request_.header;
  if (Status turn = client.allowance.take_turn(limits_, now_ns_); !turn.ok()) {
    wait_ms = client.allowance.retry_after_ms(now_ns_);
    return turn;
  }
  if (header.priority > 0 || header.flow != 0) SHOAL_RETURN_IF_ERROR(check_roles(client, header));
  SHOAL_ASSIGN_OR_RETURN(RoutedVersion * version, find_version(header));
  if (Status checked = check_tensors(client, parcel, *version); !checked.ok()) {
    if (checked.code() == StatusCode::kOverloaded) wait_ms = static_cast<std::uint32_t>(clients_->look_wait_ms(client));
    return checked;
  }
  return version;
}

Result<RequestId> DataPlane::admit_request(const Client& client, const wire::Parcel& parcel, ModelIndex model) {
  const std::uint64_t message_bytes = parcel.memory_bytes();
  SHOAL_RETURN_IF_ERROR(client.allowance.check_room(limits_, message_bytes));
  SHOAL_RETURN_IF_ERROR(memory_.check_request(client.process->message_bytes(), message_bytes));
  const wire::RequestHeader& header = request_.header;
  const RequestShape shape = shape_of(request_);
  // A lane receives the messages of a whole batch before it runs.
  const ModelConfig& config = models_[model]->served.config;
  const std::uint64_t brought_bytes = tensor_bytes(parcel);
  const bool leaves_room =
      brought_bytes <= lane_message_bytes(config) / static_cast<std::uint64_t>(std::max(config.max_batch, 1));
  return ledger_.admit({.client = client.id,
                        .flow = header.flow,
                        .seq = header.seq,
                        .model = model,
                        .priority = header.priority,
                        .timeout_ns = header.timeout_ns,
                        .shape = shape.hash,
                        .rows = shape.rows,
                        .joinable = shape.joinable && leaves_room,
                        .message_bytes = brought_bytes},
                       now_ns_);
}

// The message stays until kForget: it may have to be sent to another lane.
void DataPlane::keep_request(Client& client, wire::Parcel& parcel, RoutedVersion& version, std::uint32_t slot) {
  const std::uint64_t message_bytes = parcel.memory_bytes();
  if (slot >= requests_.size()) {
    requests_.resize(slot + 1);
    died_ns_.resize(slot + 1);
  }
  if (parcel.size() > 1) {
    const std::uint64_t tensor_bytes = parcel.size_bytes() - parcel[0].size();
    version.copied_requests.add(tensor_bytes);
    client.process->copied_requests.add(tensor_bytes);
  }
  std::swap(requests_[slot], parcel);
  ++client.outstanding;
  client.allowance.add(message_bytes);
  memory_.add_request(*client.process, message_bytes);
}

Status DataPlane::check_roles(const Client& client, const wire::RequestHeader& header) {
  if (header.flow != 0 && !client.may(Role::kGateway)) return lacks_role("a flow", {Role::kGateway}, client.uid, client.roles);
  if (header.priority <= 0 || client.may(Role::kGateway) || client.may(Role::kOperator)) return {};
  return lacks_role(format("priority {}, which is above normal (0),", int{header.priority}), {Role::kGateway, Role::kOperator},
                    client.uid, client.roles);
}

std::uint32_t DataPlane::retry_after_ms(ModelIndex model, ClientId client, std::uint64_t flow, StatusCode refusal) const {
  const bool worth_it =
      refusal == StatusCode::kOverloaded || (refusal == StatusCode::kUnavailable && !ledger_.model(model).breaker.closed());
  return worth_it ? ledger_.retry_after_ms(model, client, flow, now_ns_) : 0;
}

// The version that a request is admitted for. The request stays with it.
Result<RoutedVersion*> DataPlane::find_version(const wire::RequestHeader& header) const {
  const auto found = routes_.find(header.model_id);
  if (found == routes_.end()) {
    if (header.model_id == 0 || header.model_id > last_wire_id_)
      return not_found("no model has the number {}: ask for its description first", header.model_id);
    return failed_precondition("the model with the number {} was unloaded: ask for its description again", header.model_id);
  }
  const ModelRoute& route = found->second;
  if (route.is_drained) {
    return unavailable("model '{}' is drained and takes no requests: `shoal reload {}` opens it again", route.name, route.name);
  }
  VersionId version = route.current;
  if (header.model_version != 0) {
    const auto target = std::ranges::find(route.targets, header.model_version, &ModelRoute::Target::number);
    if (target == route.targets.end()) return route.no_such_version(header.model_version);
    version = target->version;
  }
  if (version == 0) return unavailable("model '{}' is not available: {}", route.name, route.reason);
  return versions_.at(version).get();
}

// Whether arenas and frames hold what the request names. The lane checks the tensors themselves.
Status DataPlane::check_tensors(Client& client, const wire::Parcel& parcel, const RoutedVersion& version) {
  const wire::RequestHeader& header = request_.header;
  if (header.signature != version.signature && !version.has_failed()) {
    return failed_precondition(
        "model '{}': its inputs or outputs are not the ones the request was made for: ask for its description again",
        version.served.name);
  }
  // A worker without memory for a frame dies. While it is idle it has memory for two such messages for each lane, and the ledger
  // gives a lane no more than two of them bring.
  if (const std::uint64_t most = lane_message_bytes(version.served.config); tensor_bytes(parcel) > most) {
    return invalid_argument(
        "model '{}': the message of this request brings tensors of {} bytes, and may bring {} (an eighth of memory_mb for all "
        "contexts together): raise memory_mb, or send the tensors in an arena, where they do not count",
        version.served.name, tensor_bytes(parcel), most);
  }
  const auto lies_in_arena = [](const wire::WireTensor& input) {
    return input.location != static_cast<std::uint8_t>(wire::Location::kFrame);
  };
  if (!client.input && std::ranges::any_of(request_.inputs, lies_in_arena))
    return invalid_argument("its inputs lie in an arena, and the client attached none");
  std::size_t frames = 1;
  std::uint64_t input_end = 0, output_end = 0;
  for (std::size_t i = 0; i < request_.inputs.size(); ++i) {
    const wire::WireTensor& input = request_.inputs[i];
    if (input.location == static_cast<std::uint8_t>(wire::Location::kFrame)) {
      if (frames >= parcel.size() || parcel[frames].size() != input.size_bytes)
        return invalid_argument("input {}: its {} bytes did not come as a frame", i, input.size_bytes);
      ++frames;
    } else if (!fits(input.offset_bytes, input.size_bytes, client.input_bytes)) {
      return invalid_argument("input {}: {} bytes at {} lie outside the input arena of {} bytes", i, input.size_bytes,
                              input.offset_bytes, client.input_bytes);
    } else if (input.size_bytes > 0) {
      input_end = std::max(input_end, input.offset_bytes + input.size_bytes);
    }
  }
  if (frames != parcel.size())
    return invalid_argument("{} frames came with the request, {} belong to its inputs", parcel.size() - 1, frames - 1);
  for (std::size_t i = 0; i < request_.outputs.size(); ++i) {
    const wire::WireTensor& output = request_.outputs[i];
    if (!fits(output.offset_bytes, output.capacity_bytes, client.output_bytes)) {
      return invalid_argument("output slot {}: {} bytes at {} lie outside the output arena of {} bytes", i, output.capacity_bytes,
                              output.offset_bytes, client.output_bytes);
    }
    if (output.capacity_bytes > 0) output_end = std::max(output_end, output.offset_bytes + output.capacity_bytes);
  }
  if (input_end <= client.input_allocated && output_end <= client.output_allocated) return {};
  const std::uint64_t cost_before = clients_->look_cost();
  const Status allocated = clients_->check_allocated(client, input_end, output_end);
  turn_left_ -= static_cast<int>((clients_->look_cost() - cost_before) / kPagesPerMessage);
  return allocated;
}

// The answer has the message's seq, which is at the same offset in all kinds of messages.
void DataPlane::handle_bad_message(Client& client, const wire::Parcel& parcel, const Status& why) {
  ++traffic_.bad_messages;
  const auto most = static_cast<std::uint64_t>(limits_.client_bad_messages);
  if (++client.bad_messages > most && most != 0) {
    return clients_->disconnect(
        client, format("more than {} of its messages do not follow the protocol ([limits] client_bad_messages): {}", most,
                       why.message()));
  }
  if (client.bad_messages == 1) log_.warn("bad_message client={} pid={} reason=\"{}\"", client.id, client.pid, why.message());
  if (!client.allowance.take_turn(limits_, now_ns_).ok()) return;
  std::uint64_t seq = 0;
  if (parcel.head.size() >= 16) std::memcpy(&seq, parcel.head.data() + 8, sizeof seq);
  refuse_request(client.id, seq, why, 0);
}

void DataPlane::handle_control(Client& client, const wire::Parcel& parcel) {
  const auto header = wire::decode_control(parcel.head);
  if (!header.ok()) return handle_bad_message(client, parcel, header.status());
  const bool has_json = parcel.size() >= 2 && parcel[1].size() <= kLongestControl;
  control_answer_bytes_ = 0;
  observer_.control_received(client, header->seq, has_json ? parcel[1] : std::span<const std::byte>());
  // A question that is not answered at once begins something. What the others cost is told by their length.
  turn_left_ = control_answer_bytes_ == 0
                   ? 0
                   : turn_left_ - static_cast<int>((control_answer_bytes_ + parcel.size_bytes()) / kControlBytesPerTurn);
}

void DataPlane::send_to_client(ClientId id, wire::Frames frames, const wire::Payload& payload) {
  Client* client = clients_->find(id);
  if (!client) return;
  for (const auto& frame : frames) control_answer_bytes_ += frame.size();
  // The attach socket tells when a client is gone. A client that does not read its answers takes memory.
  const std::uint64_t unsent = client->unsent.bytes();
  const std::uint64_t most = std::max(static_cast<std::uint64_t>(limits_.client_message_mb) << 20, kLeastUnsent);
  if (limits_.client_message_mb != 0 && unsent > most) {
    return clients_->disconnect(
        *client, format("it does not read its answers: {} MiB of them wait ([limits] client_message_mb)", unsent >> 20),
        StatusCode::kOverloaded);
  }
  if (memory_.must_yield(client->process->unread_bytes())) {
    return clients_->disconnect(
        *client,
        format("it does not read its answers: {} KiB of its process's wait, and the messages of all clients hold {} of {} "
               "MiB ([limits] total_message_mb)",
               client->process->unread_bytes() >> 10, memory_.bytes() >> 20, memory_.limit_mb()),
        StatusCode::kOverloaded);
  }
  const Status sent = client_transport_.push(id, frames, payload, &client->unsent);
  if (!sent.ok()) lost_answer(*client, sent);
}

// Every request gets an answer. So a client whose answer cannot be sent is disconnected.
void DataPlane::lost_answer(Client& client, const Status& why) {
  if (why.code() == StatusCode::kUnavailable) return;  // it is gone
  if (why.code() == StatusCode::kOverloaded)
    return clients_->disconnect(client, "it does not read its answers", StatusCode::kOverloaded);
  clients_->disconnect(client, format("an answer to it was lost: {}", why.message()), StatusCode::kUnavailable);
}

Status DataPlane::check_answer(ClientId id, std::uint64_t bytes) const {
  if (bytes < kSmallAnswer) return {};
  const Client* client = clients_->find(id);
  return client ? memory_.check_answer(client->process->unread_bytes(), bytes) : Status();
}

void DataPlane::refuse_request(ClientId client, std::uint64_t seq, const Status& status, std::uint32_t retry_after_ms) {
  write_reply({.seq = seq,
               .status = static_cast<std::uint16_t>(status.code()),
               .ran = static_cast<std::uint8_t>(Ran::kNo),
               .released = 1,
               .retry_after_ms = retry_after_ms},
              client, status.message());
}

// Sends a reply that was not made by a lane: header and text.
void DataPlane::write_reply(wire::ReplyHeader header, ClientId client, const std::string& text) {
  header.magic = wire::kMagic;
  header.version = wire::kVersionMajor;
  header.kind = static_cast<std::uint16_t>(wire::Kind::kReply);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(text))};
  send_to_client(client, frames);
}

}  // namespace shoal::supervisor
