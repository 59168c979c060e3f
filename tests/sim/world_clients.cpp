// Clients: how they come, ask, lie and hear.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "shm/base/format.hpp"
#include "supervisor/repository/model_text.hpp"
#include "tests/sim/world.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

constexpr std::size_t kMostClients = 6, kMostHandshakes = 4;
constexpr std::size_t kMostAsked = 40;  // of one client
constexpr std::uint64_t kGuiltyInputs = 3;

// Both arenas, for all clients of all histories. They are written once, because what was never written cannot be named.
std::vector<UniqueFd> arenas() {
  const auto make = [](const char* label, Seals seals) {
    UniqueFd fd = create_memfd(label, kArenaBytes).value();
    Segment::map(fd, Segment::Access::kReadWrite).value().populate(0, kArenaBytes);
    if (!seal(fd, seals).ok()) throw std::runtime_error("an arena cannot be sealed");
    return fd;
  };
  static const UniqueFd input = make("sim-input", Seals::kOneWriter), output = make("sim-output", Seals::kFixedSize);
  std::vector<UniqueFd> fds;
  fds.push_back(duplicate_fd(input.get()).value());
  fds.push_back(duplicate_fd(output.get()).value());
  return fds;
}

// Whoever maps it may get a SIGBUS.
UniqueFd shrinking_arena() {
  UniqueFd fd = create_memfd("sim-shrinks", 4096).value();
  (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  return fd;
}

template <typename T>
Bytes bytes_of(const T& value) {
  const auto view = std::as_bytes(std::span(&value, 1));
  return {view.begin(), view.end()};
}

// Changes some bytes of a message, or its length.
void spoil(Bytes& bytes, std::uint64_t draw) {
  for (std::uint64_t i = 1 + pick(draw, 3); i > 0 && !bytes.empty(); --i) {
    draw = stirred(draw + i);
    if (pick(draw, 6) == 0)
      bytes.resize(pick(draw, bytes.size() + 16));
    else
      bytes[pick(draw, bytes.size())] = static_cast<std::byte>(pick(draw, 256));
  }
}

}  // namespace

World::SimClient* World::some_client(std::uint64_t draw, bool is_hostile) {
  if (rules_.is_even && !clients_.empty()) return &clients_[draw % 8 == 0 ? draw / 8 % clients_.size() : 0];  // the first floods
  std::vector<SimClient*> fitting;
  for (SimClient& client : clients_) {
    if (client.is_hostile == is_hostile) fitting.push_back(&client);
  }
  return fitting.empty() ? nullptr : fitting[draw % fitting.size()];
}

World::Asked* World::find_asked(std::uint64_t client, std::uint64_t seq) {
  for (SimClient& each : clients_) {
    if (each.id != client || each.is_hostile) continue;
    const auto found = each.asked.find(seq);
    return found == each.asked.end() ? nullptr : &found->second;
  }
  return nullptr;
}

// ---- they come ----

bool World::client_comes(std::uint64_t draw) {
  if (clients_.size() >= kMostClients || handshakes_.size() >= kMostHandshakes) return false;
  Handshake handshake;
  handshake.client.attach = connected_socket(directory_.attach_path(), SOCK_SEQPACKET);
  handshake.steps = 1;
  handshake.lived_ns = processes_.lived_ns;
  loop_.run_ready();
  handshake.client.is_hostile = !rules_.is_even && pick(draw, 6) == 0;
  handshake.client.has_arenas = !rules_.is_even && pick(draw, 3) != 0;
  const std::uint64_t stops_after = rules_.is_even || pick(draw, 6) != 0 ? 4 : 1 + pick(draw, 3);
  while (static_cast<std::uint64_t>(handshake.steps) < stops_after) {
    if (!goes_on(handshake)) return true;
  }
  if (handshake.steps == 4) return true;
  words_ = format("one that waits after step {}", handshake.steps);
  handshakes_.push_back(std::move(handshake));
  return true;
}

bool World::handshake_goes_on(std::uint64_t draw) {
  if (handshakes_.empty()) return false;
  const auto chosen = handshakes_.begin() + static_cast<std::ptrdiff_t>(pick(draw, handshakes_.size()));
  if (clients_.size() >= kMostClients || !goes_on(*chosen)) return false;
  words_ += format("; step {}", chosen->steps);
  if (chosen->steps == 4) handshakes_.erase(chosen);
  return true;
}

// The next step. After the last one it is a client.
bool World::goes_on(Handshake& handshake) {
  SimClient& client = handshake.client;
  const int socket = client.attach.get();
  if (++handshake.steps != 2) handshake.lived_ns = processes_.lived_ns;  // ATTACH gives it no more time
  if (handshake.steps == 2) {
    wire::ControlMessage attach{.kind = wire::ControlKind::kAttach};
    if (client.has_arenas) attach.fds = arenas();
    attach.fds.insert(attach.fds.begin(), unbound_socket());
    (void)wire::send_control(socket, attach);
    loop_.run_ready();
    auto said = wire::receive_control(socket);
    if (said.ok() && *said && (*said)->kind == wire::ControlKind::kPath) return client.id = (*said)->id, true;
    breaks("a client is not let in");
    return false;
  }
  if (handshake.steps == 3) {
    (void)wire::send_control(socket, {.kind = wire::ControlKind::kBound});
    loop_.run_ready();
    plane_.flush();
    if (!client_transport_.take(client.id)) breaks("a client is not welcomed");
    return true;
  }
  send(client.id, {bytes_of(wire::make_control(wire::Kind::kWelcomed, 0))}, false);
  words_ = format("client {}{}{}", client.id, client.has_arenas ? " with arenas" : "", client.is_hostile ? ", hostile" : "");
  clients_.push_back(std::move(client));
  return true;
}

// Whoever does not go on is disconnected after two seconds in which the supervisor ran, and not before.
void World::check_handshakes() {
  std::erase_if(handshakes_, [&](const Handshake& handshake) {
    const std::uint64_t waited_ns = processes_.lived_ns - handshake.lived_ns;
    auto said = wire::receive_control(handshake.client.attach.get());
    const bool is_out = !said.ok() || (*said && (*said)->kind == wire::ControlKind::kRefused);
    if (is_out && waited_ns < Clients::kHandshakeLimitNs)
      breaks(format("a client was disconnected after {} ms of its handshake", waited_ns / kMs));
    if (!is_out && waited_ns > Clients::kHandshakeLimitNs + 10 * kMs) breaks("a client that is silent is not disconnected");
    return is_out;
  });
}

// ---- they ask ----

wire::Request World::make_request(SimClient& client, const Service& service, std::uint64_t& draw, Bytes& content) {
  const std::uint64_t rows = rules_.is_even ? 1 : 1 + pick(draw, 3), width = rules_.is_even ? 4 : 4 << pick(draw, 3);
  wire::Request asked;
  asked.header.kind = static_cast<std::uint16_t>(wire::Kind::kRequest);
  asked.header.seq = ++client.last_seq;
  asked.header.model_id = service.wire_id;
  asked.header.signature = LoadReport{}.signature(service.name);
  asked.header.priority = rules_.is_even ? std::int8_t{0} : static_cast<std::int8_t>(pick(draw, 3));
  if (rules_.is_hurried)
    asked.header.timeout_ns = 4 * kMs << pick(draw, 4);
  else if (!rules_.is_even && pick(draw, 3) == 0)
    asked.header.timeout_ns = kMs << pick(draw, 14);
  if (!rules_.is_even && pick(draw, 2) == 0) asked.header.flow = pick(draw, 4);  // `is_even`: a flow has turns of its own
  asked.inputs = {
      wire::to_wire({DType::kFloat32, Shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)}, nullptr})};
  ++last_content_;
  if (client.has_arenas && pick(draw, 2) == 0) {  // its place in the arena says what it is
    asked.inputs[0].offset_bytes = last_content_ * wire::kSlotAlignment % (kArenaBytes / 2);
    content = bytes_of(asked.inputs[0].offset_bytes);
    if (pick(draw, 2) == 0) {
      asked.outputs = {asked.inputs[0]};
      asked.outputs[0].capacity_bytes = asked.inputs[0].size_bytes;
    }
    return asked;
  }
  asked.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  content.resize(asked.inputs[0].size_bytes);
  std::memcpy(content.data(), &last_content_, sizeof last_content_);
  return asked;
}

bool World::request(std::uint64_t draw) {
  SimClient* client = some_client(pick(draw, 64));
  const auto& services = fleet_.catalog().services();
  if (!client || services.empty() || client->asked.size() >= kMostAsked) return false;
  const Service& service = *services[pick(draw, services.size())];
  Bytes head, content;
  const wire::Request asked = make_request(*client, service, draw, content);
  Asked noted{.number = last_content_, .asked_ns = clock_.now_ns()};
  if (asked.inputs[0].location == static_cast<std::uint8_t>(wire::Location::kFrame) && !rules_.is_even && pick(draw, 10) == 0) {
    noted.is_guilty = true;  // its content is that of other guilty ones
    const std::uint64_t which = ~pick(draw, kGuiltyInputs);
    std::memcpy(content.data(), &which, sizeof which);
  }
  wire::encode_request(asked, head);
  noted.content = content;
  if (asked.header.timeout_ns != 0) noted.deadline_ns = noted.asked_ns + asked.header.timeout_ns;
  if (service.current && !service.is_drained && fleet_.lets_in(service, *service.current)) noted.version = service.current->id;
  for (const auto& [seq, other] : client->asked) noted.own_before += !other.is_answered;
  words_ = format("client {} asks {} for {}{}", client->id, service.name, asked.header.seq, noted.is_guilty ? ", guilty" : "");
  noted.is_muted = rules_.muted.contains(noted.number);
  const bool is_muted = noted.is_muted, has_frame = asked.inputs[0].location == static_cast<std::uint8_t>(wire::Location::kFrame);
  client->asked[asked.header.seq] = std::move(noted);
  if (is_muted) return true;
  SimMessage message;
  message.push_back(std::move(head));
  if (has_frame) message.push_back(std::move(content));
  send(client->id, std::move(message), false);
  return true;
}

bool World::cancel(std::uint64_t draw) {
  SimClient* client = some_client(pick(draw, 64));
  if (!client || client->asked.empty()) return false;
  const auto chosen = std::next(client->asked.begin(), static_cast<std::ptrdiff_t>(pick(draw, client->asked.size())));
  wire::Request cancelled;
  cancelled.header.kind = static_cast<std::uint16_t>(wire::Kind::kCancel);
  cancelled.header.seq = chosen->first;
  Bytes head;
  wire::encode_request(cancelled, head);
  chosen->second.is_cancelled = true;
  words_ = format("client {} cancels {}", client->id, chosen->first);
  send(client->id, {std::move(head)}, false);
  return true;
}

bool World::client_dies(std::uint64_t draw) {
  SimClient* client = some_client(draw / 4, draw % 4 == 0);
  if (!client) return false;
  words_ = format("client {}", client->id);
  clients_.erase(clients_.begin() + (client - clients_.data()));
  return true;
}

// ---- they lie ----

// A request that is nearly right, or used twice; a message of another kind; bytes.
bool World::client_lies(std::uint64_t draw) {
  SimClient* client = some_client(pick(draw, 64), true);
  const auto& services = fleet_.catalog().services();
  if (!client || services.empty()) return false;
  const std::uint64_t how = pick(draw, 8);
  Bytes head, content;
  wire::Request asked = make_request(*client, *services[pick(draw, services.size())], draw, content);
  if (how == 0) asked.header.seq = pick(draw, 4);
  if (how == 1) asked.header.kind = static_cast<std::uint16_t>(pick(draw, 12));
  if (how == 2) asked.inputs[0].offset_bytes = draw & ~(wire::kSlotAlignment - 1);
  if (how == 3) asked.outputs = {asked.inputs[0]}, asked.outputs[0].capacity_bytes = draw;
  if (how == 3 && pick(draw, 2) == 0)
    asked.inputs[0].size_bytes += 4 << pick(draw, 4), content.resize(asked.inputs[0].size_bytes);
  if (how == 4) asked.header.client_id = 1 + pick(draw, 4), asked.header.incarnation = pick(draw, 8), asked.header.batch_size = 3;
  wire::encode_request(asked, head);
  if (how == 5) spoil(head, draw);
  SimMessage message;
  message.push_back(std::move(head));
  if (asked.inputs[0].location == static_cast<std::uint8_t>(wire::Location::kFrame) && how != 6) message.push_back(content);
  if (how == 7) message.push_back(content);
  words_ = format("client {} lies, {}", client->id, how);
  send(client->id, std::move(message), false);
  return true;
}

// Somebody attaches wrongly. It is told so.
bool World::lies_at_the_door(std::uint64_t draw) {
  const UniqueFd attach = connected_socket(directory_.attach_path(), SOCK_SEQPACKET);
  loop_.run_ready();
  wire::ControlMessage said{.kind = wire::ControlKind::kAttach, .id = pick(draw, 100), .text = "?"};
  const std::uint64_t how = pick(draw, 6);
  if (how == 0) said.kind = static_cast<wire::ControlKind>(2 + pick(draw, 50));
  if (how == 1) said.fds = arenas(), said.fds.pop_back();
  if (how == 2) said.fds = arenas(), std::swap(said.fds[0], said.fds[1]);
  if (how == 3) said.fds = arenas(), said.fds[pick(draw, 2)] = shrinking_arena();
  if (how == 4) said.fds = arenas(), said.fds[pick(draw, 2)] = UniqueFd(::dup(attach.get()));
  if (how != 0) said.fds.insert(said.fds.begin(), unbound_socket());
  if (how == 5)
    (void)::write(attach.get(), &draw, 1 + pick(draw, 7));
  else
    (void)wire::send_control(attach.get(), said);
  words_ = format("a stranger, {}", how);
  loop_.run_ready();
  const auto heard = wire::receive_control(attach.get());
  if (heard.ok() && *heard && (*heard)->kind != wire::ControlKind::kRefused) breaks("one that attached wrongly was let in");
  return true;
}

// ---- they hear ----

void World::read_answers() {
  std::erase_if(clients_, [&](SimClient& client) {
    while (const std::optional<SimMessage> message = client_transport_.take(client.id)) {
      if (!client.is_hostile) read_answer(client, *message);
    }
    if (client_transport_.is_connected(client.id)) return false;
    if (!client.is_hostile) breaks(format("client {} was disconnected", client.id));
    return true;
  });
}

// Each request has one terminal answer, and it is the answer to that request. Its slots are released once.
void World::read_answer(SimClient& client, const SimMessage& message) {
  const auto decoded = wire::decode_reply(message.at(0));
  if (!decoded.ok()) return breaks(format("client {} got something that is no reply: {}", client.id, decoded.status().message()));
  const wire::ReplyHeader& reply = decoded->header;
  const std::string name = format("request {} of client {}", reply.seq, client.id);
  const auto found = client.asked.find(reply.seq);
  if (found == client.asked.end()) return breaks(name + " was answered after it was over");
  Asked& asked = found->second;
  if (reply.kind == static_cast<std::uint16_t>(wire::Kind::kRelease)) {
    if (!asked.is_answered) return breaks(name + " was released before it was answered");
    client.asked.erase(found);
    return;
  }
  if (asked.is_answered) return breaks(name + " was answered twice");
  const auto status = static_cast<StatusCode>(reply.status);
  asked.is_answered = true;
  if (reply.retry_after_ms > 30'000) breaks(name + " is to be repeated later than the supervisor ever says");
  if (reply.compute_ns > clock_.now_ns() - asked.asked_ns) breaks(name + " was computed for longer than it is known");
  const std::string told = format("; {} of client {}: {}", reply.seq, client.id, status_code_name(status));
  words_ += told;
  if (status == StatusCode::kOk && message.back() != asked.content) return breaks(name + " has the answer to another one");
  if (asked.said != status) check_refusal(name, asked, status);
  const bool is_refused = reply.request_id == 0;  // it was never admitted
  if (is_refused)
    refused_.insert(asked.number);
  else
    trace(told);
  if (asked.due == status) asked.due.reset();
  if (reply.released == 1) client.asked.erase(found);
}

}  // namespace shoal::test
