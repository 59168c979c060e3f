#include "tests/sim/world.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "shm/base/format.hpp"
#include "shm/model/version_entry.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kLateNs = 10 * kMs;  // how late the supervisor may notice a deadline
constexpr std::size_t kMostClients = 6;
constexpr std::size_t kMostAsked = 40;  // of one client
constexpr std::array kModels = {"a", "b", "c"};
constexpr std::string_view kLoaded = R"({"inputs": [], "outputs": [], "hash": "0"})";

constexpr std::array<std::string_view, static_cast<std::size_t>(EventKind::kCount)> kNames = {
    "client comes", "request",        "cancel",         "client dies",
    "lane takes",   "lane answers",   "lane parks",     "lane fails",
    "lane lies",    "lane is full",   "search answers", "search dies",
    "model loads",  "load fails",     "worker ready",   "worker fails to start",
    "worker dies",  "probe answered", "probe fails",    "zygote exits",
    "load",         "reload",         "scale",          "drain",
    "unload",       "time",           "long time"};

// Takes a number below `most` out of the draw.
std::uint64_t pick(std::uint64_t& draw, std::uint64_t most) {
  const std::uint64_t picked = draw % most;
  draw /= most;
  return picked;
}

template <typename T>
Bytes bytes_of(const T& value) {
  const auto view = std::as_bytes(std::span(&value, 1));
  return {view.begin(), view.end()};
}

}  // namespace

std::string_view event_name(EventKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Logger& World::log() {
  static Logger log("sim");
  return log;
}

World::World(const std::string& directory, std::string model)
    : directory_(SocketDirectory::open(directory).value()),
      model_(std::move(model)),
      plane_({clock_, client_transport_, lane_transport_, directory_, loop_, log()}, *this),
      fleet_({.models = {},
              .configuration_file = {},
              .worker_file = "shoal-worker",
              .make_processes = [this](ProcessOptions options, ProcessObserver& observer) -> std::unique_ptr<Processes> {
                return std::make_unique<SimProcesses>(std::move(options), observer, processes_);
              },
              .spawn_finder = [this](const SpawnOptions& options) { return begin_search(options); }},
             clock_, directory_, loop_, plane_, *this, log()) {
  clock_.advance_ns(1'000 * kMs);
  if (const Status opened = plane_.open(); !opened.ok()) breaks(opened.to_string());
  ClientLimits limits;
  limits.total_message_mb = 0;  // nothing is measured of this process
  limits.connection_rate = 0;
  plane_.apply_limits(limits);
  plane_.begin_turn(clock_.now_ns());
}

World::~World() {
  fleet_.close(Status(StatusCode::kUnavailable, "the world ends"));
  fleet_.end();
}

void World::breaks(const std::string& what) {
  if (broken_.empty()) broken_ = what;
}

bool World::happen(const Event& event) {
  const std::uint64_t draw = event.draw;
  words_.clear();
  const auto once = [&]() -> bool {
    switch (event.kind) {
      case EventKind::kClientComes:
        return client_comes();
      case EventKind::kRequest:
        return request(draw);
      case EventKind::kCancel:
        return cancel(draw);
      case EventKind::kClientDies:
        return client_dies(draw);
      case EventKind::kLaneTakes:
        return lane_takes(draw);
      case EventKind::kLaneAnswers:
        return lane_answers(draw, StatusCode::kOk);
      case EventKind::kLaneFails:
        return lane_answers(draw, StatusCode::kInternal);
      case EventKind::kLaneParks:
        return lane_parks(draw);
      case EventKind::kLaneLies:
        return lane_lies(draw);
      case EventKind::kLaneFull:
        return lane_is_full(draw);
      case EventKind::kSearchAnswers:
        return search_ends(draw, true);
      case EventKind::kSearchDies:
        return search_ends(draw, false);
      case EventKind::kLoads:
        return for_some_model(draw, [](SimProcesses& model) { return model.loads(std::string(kLoaded)); });
      case EventKind::kLoadFails:
        return for_some_model(draw, [](SimProcesses& model) { return model.fails_to_load(); });
      case EventKind::kZygoteExits:
        return for_some_model(draw, [](SimProcesses& model) { return model.zygote_exits(); });
      case EventKind::kWorkerReady:
        return for_some_worker(draw, [this](SimProcesses& model, std::uint64_t id) { return worker_ready(model, id); });
      case EventKind::kWorkerFails:
        return for_some_worker(draw, [](SimProcesses& model, std::uint64_t id) { return model.fails_to_start(id); });
      case EventKind::kWorkerDies:
        return for_some_worker(draw, [this](SimProcesses& model, std::uint64_t id) { return worker_died(model, id); });
      case EventKind::kProbeAnswered:
        return for_some_worker(draw, [](SimProcesses& model, std::uint64_t id) { return model.answers_probe(id, {}); });
      case EventKind::kProbeFails:
        return for_some_worker(draw, [](SimProcesses& model, std::uint64_t id) {
          return model.answers_probe(id, Status(StatusCode::kInternal, "not the stored output"));
        });
      case EventKind::kLoad:
        return wish(WishKind::kLoad, draw);
      case EventKind::kReload:
        return wish(WishKind::kReload, draw);
      case EventKind::kScale:
        return wish(WishKind::kScale, draw);
      case EventKind::kDrain:
        return wish(WishKind::kDrain, draw);
      case EventKind::kUnload:
        return wish(WishKind::kUnload, draw);
      case EventKind::kTime:
        pass(1'000 + draw % (5 * kMs));
        return true;
      case EventKind::kLongTime:
        pass(100 * kMs + draw % (40'000 * kMs));
        return true;
      case EventKind::kCount:
        break;
    }
    return false;
  };
  if (!once()) return false;
  turn();
  return true;
}

void World::turn() {
  plane_.begin_turn(clock_.now_ns());
  plane_.receive_from_clients();
  plane_.receive_from_lanes();
  loop_.run_ready();
  fleet_.events_came();
  plane_.tick(clock_.now_ns());
  (void)fleet_.tick(clock_.now_ns());
  for (const auto& [number, model] : processes_.all) model->read_controls();
  read_answers();
  check_deadlines();
  check_routes();
}

void World::pass(std::uint64_t ns) { clock_.advance_ns(ns); }

// ---- clients ----

World::SimClient* World::some_client(std::uint64_t draw) {
  return clients_.empty() ? nullptr : &clients_[draw % clients_.size()];
}

bool World::client_comes() {
  if (clients_.size() >= kMostClients) return false;
  SimClient client;
  client.attach = connected_socket(directory_.attach_path(), SOCK_SEQPACKET);
  const auto hears = [&](wire::ControlKind kind) -> std::optional<wire::ControlMessage> {
    loop_.run_ready();
    auto said = wire::receive_control(client.attach.get());
    if (said.ok() && *said && (*said)->kind == kind) return std::move(*said);
    breaks("a client is not let in");
    return std::nullopt;
  };
  (void)wire::send_control(client.attach.get(), {.kind = wire::ControlKind::kAttach});
  loop_.run_ready();
  const auto path = hears(wire::ControlKind::kPath);
  if (!path) return true;
  client.id = path->id;
  (void)wire::send_control(client.attach.get(), {.kind = wire::ControlKind::kBound});
  loop_.run_ready();
  if (!client_transport_.take(client.id)) breaks("a client is not welcomed");
  send(client.id, {bytes_of(wire::make_control(wire::Kind::kWelcomed, 0))}, false);
  words_ = format("client {}", client.id);
  clients_.push_back(std::move(client));
  return true;
}

void World::send(wire::PeerId from, SimMessage message, bool is_lane) {
  (is_lane ? lane_transport_ : client_transport_).arrive(from, std::move(message));
}

bool World::request(std::uint64_t draw) {
  SimClient* client = some_client(pick(draw, 64));
  const auto& services = fleet_.catalog().services();
  if (!client || services.empty() || client->asked.size() >= kMostAsked) return false;
  const Service& service = *services[pick(draw, services.size())];
  const auto rows = static_cast<std::int64_t>(1 + pick(draw, 3)), width = static_cast<std::int64_t>(4 << pick(draw, 3));
  wire::Request asked;
  asked.header.kind = static_cast<std::uint16_t>(wire::Kind::kRequest);
  asked.header.seq = ++client->last_seq;
  asked.header.model_id = service.wire_id;
  asked.header.signature = LoadReport{}.signature(service.name);
  asked.header.priority = static_cast<std::int8_t>(pick(draw, 3));
  if (pick(draw, 3) == 0) asked.header.timeout_ns = kMs << pick(draw, 14);
  asked.inputs = {wire::to_wire({DType::kFloat32, Shape{rows, width}, nullptr})};
  asked.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  Bytes head, content(asked.inputs[0].size_bytes);
  wire::encode_request(asked, head);
  ++last_content_;
  std::memcpy(content.data(), &last_content_, sizeof last_content_);
  Asked& noted = client->asked[asked.header.seq];
  noted.content = content;
  if (asked.header.timeout_ns != 0) noted.deadline_ns = clock_.now_ns() + asked.header.timeout_ns;
  words_ = format("client {} asks {} for {}", client->id, service.name, asked.header.seq);
  send(client->id, {std::move(head), std::move(content)}, false);
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
  words_ = format("client {} cancels {}", client->id, chosen->first);
  send(client->id, {std::move(head)}, false);
  return true;
}

bool World::client_dies(std::uint64_t draw) {
  SimClient* client = some_client(draw);
  if (!client) return false;
  words_ = format("client {}", client->id);
  clients_.erase(clients_.begin() + (client - clients_.data()));
  return true;
}

void World::read_answers() {
  for (SimClient& client : clients_) {
    while (const std::optional<SimMessage> message = client_transport_.take(client.id)) read_answer(client, *message);
    if (!client_transport_.is_connected(client.id)) breaks(format("client {} was disconnected", client.id));
  }
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
  asked.is_answered = true;
  words_ += format("; {} of client {}: {}", reply.seq, client.id, status_code_name(static_cast<StatusCode>(reply.status)));
  if (reply.status == 0 && message.back() != asked.content) return breaks(name + " has the answer to another one");
  if (reply.released == 1) client.asked.erase(found);
}

// Whatever a request waits for, its client hears by its deadline.
void World::check_deadlines() {
  for (const SimClient& client : clients_) {
    for (const auto& [seq, asked] : client.asked) {
      if (!asked.is_answered && asked.deadline_ns && clock_.now_ns() > *asked.deadline_ns + kLateNs)
        breaks(format("request {} of client {} was not answered by its deadline", seq, client.id));
    }
  }
}

// A version serves when its workers are ready, and not before; and a model that serves goes on while it is changed.
void World::check_routes() {
  std::set<VersionId> serving;
  for (const auto& service : fleet_.catalog().services()) {
    const bool served_before =
        std::ranges::any_of(service->versions, [&](const auto& one) { return serving_.contains(one->id); });
    if (served_before && !service->current) breaks(format("nothing of model {} serves any more", service->name));
    for (const auto& version : service->versions) {
      if (!version->serves()) continue;
      serving.insert(version->id);
      const Processes& processes = fleet_.version(version->id).processes();
      const bool is_new = !serving_.contains(version->id) && processes.state() != ModelState::kFailed;
      if (is_new && processes.ready_workers() < processes.options().workers)
        breaks(format("version {} of model {} serves without its workers", version->id, service->name));
    }
  }
  serving_ = std::move(serving);
}

// ---- lanes ----

std::vector<World::Held>* World::some_lane(std::uint64_t draw, wire::PeerId& lane,
                                           const std::function<bool(const std::vector<Held>&)>& fits) {
  std::vector<wire::PeerId> fitting;
  for (const auto& [peer, held] : lanes_) {
    if (fits(held)) fitting.push_back(peer);
  }
  if (fitting.empty()) return nullptr;
  lane = fitting[draw % fitting.size()];
  return &lanes_.at(lane);
}

// A request that runs again must not run anywhere else: its earlier run must have ended with its worker.
bool World::lane_takes(std::uint64_t draw) {
  std::vector<wire::PeerId> peers;
  for (const auto& [peer, held] : lanes_) peers.push_back(peer);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const wire::PeerId peer = peers[(draw + i) % peers.size()];
    const std::optional<SimMessage> message = lane_transport_.take(peer);
    if (!message) continue;
    const auto decoded = wire::decode_request(message->at(0));
    if (!decoded.ok() || message->size() != 2) {
      breaks("a lane got something that is no request");
      return true;
    }
    const wire::RequestHeader& header = decoded->header;
    words_ = format("lane {} takes request {}, attempt {}", peer, header.request_id, header.attempt);
    for (const auto& [other, held] : lanes_) {
      for (const Held& one : held) {
        if (one.header.request_id == header.request_id)
          breaks(format("request {} runs on lane {} while lane {} has it", header.request_id, peer, other));
      }
    }
    lanes_.at(peer).push_back({header, message->at(1)});
    return true;
  }
  return false;
}

bool World::lane_answers(std::uint64_t draw, StatusCode status) {
  wire::PeerId peer = 0;
  std::vector<Held>* held = some_lane(pick(draw, 64), peer, [](const auto& lane) { return !lane.empty(); });
  if (!held) return false;
  const auto chosen = held->begin() + static_cast<std::ptrdiff_t>(pick(draw, 4) == 0 ? pick(draw, held->size()) : 0);
  wire::Reply reply;
  reply.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                  .seq = chosen->header.seq,
                  .request_id = chosen->header.request_id,
                  .incarnation = chosen->header.incarnation,
                  .attempt = chosen->header.attempt,
                  .status = static_cast<std::uint16_t>(status),
                  .batch = 1,
                  .compute_ns = 1'000 + pick(draw, 20) * kMs};
  Bytes head;
  wire::encode_reply(reply, head);
  words_ = format("lane {} answers request {}", peer, chosen->header.request_id);
  send(peer, {std::move(head), {}, chosen->content}, true);
  held->erase(chosen);
  return true;
}

bool World::lane_parks(std::uint64_t draw) {
  wire::PeerId peer = 0;
  const auto may_park = [](const Held& one) { return !one.is_parked; };
  std::vector<Held>* held = some_lane(draw, peer, [&](const auto& lane) { return std::ranges::any_of(lane, may_park); });
  if (!held) return false;
  const auto chosen = std::ranges::find_if(*held, may_park);
  chosen->is_parked = true;
  wire::Reply parked;
  parked.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kParked),
                   .request_id = chosen->header.request_id,
                   .incarnation = chosen->header.incarnation,
                   .attempt = chosen->header.attempt};
  Bytes head;
  wire::encode_reply(parked, head);
  words_ = format("lane {} parks request {}", peer, chosen->header.request_id);
  send(peer, {std::move(head)}, true);
  return true;
}

// It answers what it was not asked, or what another one was asked, or an earlier request that had the slot of the one it has; or
// it sends what is no message.
bool World::lane_lies(std::uint64_t draw) {
  wire::PeerId peer = 0;
  const std::vector<Held>* held = some_lane(pick(draw, 64), peer, [](const auto&) { return true; });
  if (!held) return false;
  wire::Reply reply;
  reply.header = {.kind = static_cast<std::uint16_t>(pick(draw, 2) == 0 ? wire::Kind::kReply : wire::Kind::kParked),
                  .seq = pick(draw, 8),
                  .request_id = (1 + pick(draw, 4)) << 32 | pick(draw, 16),
                  .incarnation = pick(draw, 4) == 0 ? pick(draw, 8) : lane_of(peer).incarnation,
                  .attempt = static_cast<std::uint16_t>(1 + pick(draw, 2)),
                  .batch = static_cast<std::uint16_t>(pick(draw, 3)),
                  .compute_ns = pick(draw, 2) == 0 ? ~std::uint64_t{0} : 0};
  if (!held->empty() && pick(draw, 2) == 0) {
    reply.header.request_id = held->front().header.request_id - (std::uint64_t{1} << 32);
    reply.header.attempt = held->front().header.attempt;
  }
  // What it says of its own requests, also of those that it has not read yet, is believed.
  const auto is_it = [&](const wire::RequestHeader& header) { return header.request_id == reply.header.request_id; };
  if (std::ranges::any_of(*held, is_it, &Held::header) ||
      std::ranges::any_of(lane_transport_.unread(peer),
                          [&](const SimMessage& sent) { return is_it(wire::decode_request(sent.at(0)).value().header); }))
    return false;
  Bytes head;
  wire::encode_reply(reply, head);
  if (pick(draw, 8) == 0) head.resize(pick(draw, head.size()));
  words_ = format("lane {}, of request {}", peer, reply.header.request_id);
  send(peer, {std::move(head)}, true);
  return true;
}

bool World::lane_is_full(std::uint64_t draw) {
  wire::PeerId peer = 0;
  if (!some_lane(pick(draw, 64), peer, [](const auto&) { return true; })) return false;
  const bool is_full = pick(draw, 2) == 0;
  words_ = format("lane {}: {}", peer, is_full ? "full" : "not full");
  lane_transport_.set_full(peer, is_full);
  return true;
}

// ---- processes ----

bool World::for_some_model(std::uint64_t draw, const std::function<bool(SimProcesses&)>& can) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, model] : processes_.all) numbers.push_back(number);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    SimProcesses& model = *processes_.all.at(numbers[(draw + i) % numbers.size()]);
    const std::string name = model.options().name;
    if (!can(model)) continue;
    if (words_.empty()) words_ = name;
    return true;
  }
  return false;
}

bool World::for_some_worker(std::uint64_t draw, const std::function<bool(SimProcesses&, std::uint64_t)>& can) {
  const std::uint64_t worker_draw = draw / 16;
  return for_some_model(draw % 16, [&](SimProcesses& model) {
    std::vector<std::uint64_t> ids;
    for (const auto& worker : model.workers()) ids.push_back(worker->incarnation);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t id = ids[(worker_draw + i) % ids.size()];
      if (!can(model, id)) continue;
      words_ = format("worker {} of {}", id, model.options().name);
      return true;
    }
    return false;
  });
}

bool World::worker_ready(SimProcesses& model, std::uint64_t incarnation) {
  if (!model.becomes_ready(incarnation)) return false;
  for (int lane = 0; lane < model.options().lanes; ++lane) lanes_[peer_of({incarnation, static_cast<std::uint32_t>(lane)})];
  return true;
}

bool World::worker_died(SimProcesses& model, std::uint64_t incarnation) {
  const WorkerProcess* worker = model.find_worker(incarnation);
  if (!worker || worker->state == WorkerProcess::State::kForking) return false;
  std::erase_if(lanes_, [&](const auto& lane) { return lane_of(lane.first).incarnation == incarnation; });
  return model.dies(incarnation);
}

// ---- searches for files ----

Result<Child> World::begin_search(const SpawnOptions& options) {
  Search search{.control = duplicate_fd(options.control).value(), .pidfd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  Child child{.pid = ::getpid(), .pidfd = duplicate_fd(search.pidfd.get()).value()};
  searches_.push_back(std::move(search));
  return child;
}

bool World::search_ends(std::uint64_t draw, bool with_answer) {
  if (searches_.empty()) return false;
  const auto chosen = searches_.begin() + static_cast<std::ptrdiff_t>(draw % searches_.size());
  const Search search = std::move(*chosen);
  searches_.erase(chosen);
  auto asked = wire::receive_control(search.control.get());
  if (with_answer && asked.ok() && *asked) {
    const std::string text = answer(parse_question((*asked)->text).value());
    (void)wire::send_control(search.control.get(), {.kind = wire::ControlKind::kFound, .a = 1, .text = text});
  }
  (void)::eventfd_write(search.pidfd.get(), 1);  // it ends
  return true;
}

// ---- wishes ----

bool World::wish(WishKind kind, std::uint64_t draw) {
  Wish wish{.kind = kind, .model = kModels[pick(draw, kModels.size())], .caller = {1'000'000, ++last_wish_}};
  if (kind == WishKind::kLoad || (kind == WishKind::kReload && pick(draw, 2) == 0)) {
    wish.request = parse_model_argument(format("{}={},timeout_ms=0,workers={},contexts={},max_batch={},queue_limit={}",
                                               wish.model, pick(draw, 2) == 0 ? model_ : "builtin:identity", 1 + pick(draw, 3),
                                               1 + pick(draw, 2), 1 + 3 * pick(draw, 2), pick(draw, 2) == 0 ? 1024 : 4))
                       .value();
  }
  wish.workers = static_cast<int>(1 + pick(draw, 4));
  wish.force = pick(draw, 2) == 0;
  words_ = wish.model;
  if (fleet_.ask(std::move(wish)).ok()) wishes_.insert(last_wish_);
  return true;
}

void World::wish_answered(const AnswerCaller& answer) {
  words_ += format("; wish {}: {}", answer.caller.seq, status_code_name(answer.status.code()));
  // An answer may come before ask() has returned.
  if (answer.caller.seq != last_wish_ && wishes_.count(answer.caller.seq) == 0)
    breaks(format("wish {} was answered twice, or never asked", answer.caller.seq));
  wishes_.erase(answer.caller.seq);
  if (!answer.status.ok() || answer.result.outcome != "scaled") return;
  for (const auto& version : fleet_.catalog().find(answer.result.model)->versions) {
    const Processes& processes = fleet_.version(version->id).processes();
    if (version->serves() && processes.state() == ModelState::kReady && processes.ready_workers() != answer.result.workers)
      breaks(format("model {} has {} workers and not {}", answer.result.model, processes.ready_workers(), answer.result.workers));
  }
}

// ---- the end ----

std::string World::unquiet() const {
  for (const SimClient& client : clients_) {
    if (!client.asked.empty()) return format("request {} of client {} is not over", client.asked.begin()->first, client.id);
  }
  if (!wishes_.empty()) return format("wish {} has no answer", *wishes_.begin());
  if (!plane_.ledger().idle()) return "the ledger has requests that nobody asked for";
  if (fleet_.catalog().is_busy()) return "a change of what is served does not end";
  std::size_t versions = 0;
  for (const auto& service : fleet_.catalog().services()) versions += service->versions.size();
  if (processes_.all.size() != versions) return "the processes of a version that is gone are kept";
  if (plane_.message_bytes() != 0) return format("{} bytes of messages are kept for nothing", plane_.message_bytes());
  return "";
}

bool World::is_quiet() const { return unquiet().empty(); }

// Everything that is due happens well.
bool World::go_on() {
  for (const auto& [peer, held] : lanes_) lane_transport_.set_full(peer, false);
  for (int i = 0; i < 64; ++i) {
    bool has_happened = for_some_model(0, [](SimProcesses& model) { return model.loads(std::string(kLoaded)); });
    has_happened |= search_ends(0, true);
    has_happened |= for_some_model(0, [](SimProcesses& model) { return model.zygote_exits(); });
    has_happened |= for_some_worker(0, [this](SimProcesses& model, std::uint64_t id) {
      const WorkerProcess* worker = model.find_worker(id);
      return worker && SimProcesses::is_told_to_end(*worker) && worker_died(model, id);
    });
    has_happened |= for_some_worker(0, [this](SimProcesses& model, std::uint64_t id) { return worker_ready(model, id); });
    has_happened |= for_some_worker(0, [](SimProcesses& model, std::uint64_t id) { return model.answers_probe(id, {}); });
    has_happened |= lane_takes(0);
    has_happened |= lane_answers(0, StatusCode::kOk);
    turn();
    if (!has_happened) break;
  }
  return is_quiet();
}

void World::settle() {
  for (int i = 0; i < 3'000 && broken_.empty(); ++i) {
    if (go_on()) return;
    pass(i < 100 ? kMs : 100 * kMs);
  }
  breaks(format("it does not come to an end: {}", unquiet()));
}

}  // namespace shoal::test
