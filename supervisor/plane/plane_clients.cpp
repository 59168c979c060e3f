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

constexpr int kClientMessagesPerTurn = 32;        // before the other sockets have their turn
constexpr std::uint32_t kCancelLooksAt = 64;      // a cancel counts as one message more per so many requests that it searches
constexpr std::uint64_t kLeastUnsent = 64 << 20;  // what a client may leave unread, even if client_message_mb is less
constexpr std::uint64_t kSmallAnswer = wire::kReceiveBuffer + 4096;  // answers that take less are sent without a check

}  // namespace

Status DataPlane::client_bound(Client& client) {
  SHOAL_RETURN_IF_ERROR(client_transport_.connect(client.path, client.id));
  client.last_message_ns = clock_.now_ns();
  const wire::ControlHeader welcome = wire::make_control(wire::Kind::kWelcome, 0);
  return client_transport_.send(client.id, std::as_bytes(std::span(&welcome, 1)));
}

void DataPlane::client_gone(Client& client) {
  log_.debug("client_gone client={} pid={}", client.id, client.pid);
  client_transport_.disconnect(client.path, client.id);
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
    // When the socket is full, the worker keeps the mapping until attach_client() sends this again.
    const Status sent = wire::send_control(worker->control.get(), {.kind = wire::ControlKind::kDetachClient, .id = client.id});
    if (sent.ok()) continue;
    log_.warn("detach_not_sent client={} worker={} reason=\"{}\"", client.id, worker->pid, sent.message());
    routed.to_detach.push_back(client.id);
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
    handle_client_message(*client, incoming_);
  }
}

void DataPlane::handle_client_message(Client& client, wire::Message& message) {
  if (message.empty()) return;
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return handle_bad_message(client, message, kind.status());
  if (*kind == wire::Kind::kWelcomed) {
    client.socket_fd = message.source_fd();
    return clients_->welcomed(client);
  }
  if (client.state != Client::State::kReady) return;
  switch (*kind) {
    case wire::Kind::kRequest:
      return handle_request(client, message);
    case wire::Kind::kCancel:
      if (const Status decoded = wire::decode_request(message[0], request_); !decoded.ok())
        return handle_bad_message(client, message, decoded);
      turn_left_ -= static_cast<int>(client.outstanding / kCancelLooksAt);
      ledger_.cancel(client.id, request_.header.seq, now_ns_);
      return perform();
    case wire::Kind::kControl:
      return handle_control(client, message);
    default:
      return handle_bad_message(client, message, invalid_argument("message of kind {} from a client", static_cast<int>(*kind)));
  }
}

void DataPlane::handle_request(Client& client, wire::Message& message) {
  if (const Status decoded = wire::decode_request(message[0], request_); !decoded.ok())
    return handle_bad_message(client, message, decoded);
  const wire::RequestHeader& header = request_.header;
  if (const Status turn = client.allowance.take_turn(limits_, now_ns_); !turn.ok())
    return refuse_request(client.id, header.seq, turn, client.allowance.retry_after_ms(now_ns_));
  const Result<RoutedVersion*> version = find_version(header);
  if (!version.ok()) return refuse_request(client.id, header.seq, version.status(), 0);
  if (const Status checked = check_request(client, message, **version); !checked.ok())
    return refuse_request(client.id, header.seq, checked, 0);
  const ModelIndex model = (*version)->index;
  const std::uint64_t message_bytes = message.memory_bytes();
  Status room = client.allowance.check_room(limits_, message_bytes);
  if (room.ok()) {
    room = memory_.check_request(client.process->message_bytes(), message_bytes);
  }
  if (!room.ok()) return refuse_request(client.id, header.seq, room, retry_after_ms(model, client.id, room.code()));
  const RequestShape shape = shape_of(request_);
  const auto admitted = ledger_.admit({.client = client.id,
                                       .seq = header.seq,
                                       .model = model,
                                       .priority = header.priority,
                                       .timeout_ns = header.timeout_ns,
                                       .shape = shape.hash,
                                       .rows = shape.rows,
                                       .joinable = shape.joinable},
                                      now_ns_);
  if (!admitted.ok())
    return refuse_request(client.id, header.seq, admitted.status(), retry_after_ms(model, client.id, admitted.status().code()));
  const std::uint32_t slot = slot_of(*admitted);
  if (slot >= payloads_.size()) {
    payloads_.resize(slot + 1);
    died_ns_.resize(slot + 1);
  }
  std::swap(payloads_[slot], message);
  ++client.outstanding;
  client.allowance.add(message_bytes);
  memory_.add_request(*client.process, message_bytes);
  ledger_.dispatch(model, now_ns_);
  perform();
}

std::uint32_t DataPlane::retry_after_ms(ModelIndex model, ClientId client, StatusCode refusal) const {
  const bool worth_it =
      refusal == StatusCode::kOverloaded || (refusal == StatusCode::kUnavailable && !ledger_.model(model).breaker.closed());
  return worth_it ? ledger_.retry_after_ms(model, client, now_ns_) : 0;
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
Status DataPlane::check_request(const Client& client, const wire::Message& message, const RoutedVersion& version) const {
  const wire::RequestHeader& header = request_.header;
  if (header.signature != version.signature && !version.has_failed()) {
    return failed_precondition(
        "model '{}': its inputs or outputs are not the ones the request was made for: ask for its description again",
        version.served.name);
  }
  // A worker without room for a frame loses its connection.
  const auto memory_mb = static_cast<std::uint64_t>(version.served.config.memory_mb);
  if (memory_mb != 0 && message.size_bytes() > memory_mb << 20) {
    return invalid_argument(
        "model '{}': the message of this request has {} bytes, and a worker may take {} MiB (memory_mb): raise memory_mb, or use "
        "a larger arena, tensors in it do not count",
        version.served.name, message.size_bytes(), memory_mb);
  }
  const auto lies_in_arena = [](const wire::WireTensor& input) {
    return input.location != static_cast<std::uint8_t>(wire::Location::kFrame);
  };
  if (!client.input && std::ranges::any_of(request_.inputs, lies_in_arena))
    return invalid_argument("its inputs lie in an arena, and the client attached none");
  std::size_t frames = 1;
  for (std::size_t i = 0; i < request_.inputs.size(); ++i) {
    const wire::WireTensor& input = request_.inputs[i];
    if (input.location == static_cast<std::uint8_t>(wire::Location::kFrame)) {
      if (frames >= message.size() || message[frames].size() != input.size_bytes)
        return invalid_argument("input {}: its {} bytes did not come as a frame", i, input.size_bytes);
      ++frames;
    } else if (!fits(input.offset_bytes, input.size_bytes, client.input_bytes)) {
      return invalid_argument("input {}: {} bytes at {} lie outside the input arena of {} bytes", i, input.size_bytes,
                              input.offset_bytes, client.input_bytes);
    }
  }
  if (frames != message.size())
    return invalid_argument("{} frames came with the request, {} belong to its inputs", message.size() - 1, frames - 1);
  for (std::size_t i = 0; i < request_.outputs.size(); ++i) {
    const wire::WireTensor& output = request_.outputs[i];
    if (!fits(output.offset_bytes, output.capacity_bytes, client.output_bytes)) {
      return invalid_argument("output slot {}: {} bytes at {} lie outside the output arena of {} bytes", i, output.capacity_bytes,
                              output.offset_bytes, client.output_bytes);
    }
  }
  return {};
}

// The answer has the message's seq, which is at the same offset in all kinds of messages.
void DataPlane::handle_bad_message(Client& client, const wire::Message& message, const Status& why) {
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
  if (message[0].size() >= 16) std::memcpy(&seq, message[0].data() + 8, sizeof seq);
  refuse_request(client.id, seq, why, 0);
}

void DataPlane::handle_control(Client& client, const wire::Message& message) {
  turn_left_ = 0;  // the answer may be long
  const auto header = wire::decode_control(message[0]);
  if (!header.ok()) return handle_bad_message(client, message, header.status());
  const bool has_json = message.size() >= 2 && message[1].size() <= kLongestControl;
  observer_.control_received(client, header->seq, has_json ? message[1] : std::span<const std::byte>());
}

void DataPlane::send_to_client(ClientId id, wire::Frames head, const wire::Message* tail, std::size_t tail_first) {
  Client* client = clients_->find(id);
  if (!client) return;
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
  const Status sent = client_transport_.send(id, head, tail, tail_first, &client->unsent);
  if (sent.ok() || sent.code() == StatusCode::kUnavailable) return;
  // Every request gets an answer. So a client whose answer cannot be sent is disconnected.
  if (sent.code() == StatusCode::kOverloaded)
    return clients_->disconnect(*client, "it does not read its answers", StatusCode::kOverloaded);
  clients_->disconnect(*client, format("an answer to it was lost: {}", sent.message()), StatusCode::kUnavailable);
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
  send_to_client(client, frames, nullptr, 0);
}

}  // namespace shoal::supervisor
