#include "supervisor/admin/admin.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/wire/socket.hpp"
#include "supervisor/plane/fair_share.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {

using nlohmann::json;

namespace {

constexpr std::uint32_t kMostWaitingDescribes = 256;  // of one client
constexpr std::uint64_t kAllWaitingDescribes = 65'536;
constexpr int kDescribesPerTurn = 8;
constexpr std::uint32_t kMostTold = 16;           // descriptions that a client did not ask for, since its last message
constexpr std::size_t kWelcomeBytes = 128 << 10;  // of descriptions
// They change what others are served, end the daemon, or show what others have sent (which client, when, what became of it) and
// what processes do in detail. Users see sums only: `stats` leaves out the rows of flows and of processes that copy, unless the
// asker is an operator or a gateway.
constexpr std::string_view kForOperators[] = {"load", "unload", "reload", "scale", "drain", "stop", "crashes", "trace"};
constexpr int kBytesPerSecond = 16 << 20;     // of the answers to one process
constexpr std::uint64_t kSmallAnswer = 4096;  // up to that, answers do not count among those of all processes

std::string error_json(const Status& status, std::uint32_t retry_after_ms) {
  json object{{"message", status.message()}};
  if (retry_after_ms != 0) object["retry_after_ms"] = retry_after_ms;
  return json_text(object);
}

// "" or 0 when there is no such key, or its value is something else.
std::string text_of(const json& asked, const char* key) {
  const auto found = asked.find(key);
  return found != asked.end() && found->is_string() ? found->get<std::string>() : std::string();
}
std::uint64_t number_of(const json& asked, const char* key) {
  const auto found = asked.find(key);
  return found != asked.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

}  // namespace

Admin::Admin(DataPlane& plane, Fleet& fleet, Timers& timers, std::string directory, std::function<void(const std::string&)> stop)
    : plane_(plane),
      fleet_(fleet),
      directory_(std::move(directory)),
      stop_(std::move(stop)),
      started_ns_(monotonic_now_ns()),
      answer_describes_(timers, Timer::Kind::kClock, [this](std::uint64_t) { answer_describes(); }) {}

void Admin::handle(Client& client, std::uint64_t seq, std::span<const std::byte> text) {
  const Question question{client.id, seq};
  if (const Status turn = plane_.take_turn(client); !turn.ok())
    return refuse(question, turn, client.allowance.retry_after_ms(plane_.now_ns()));
  if (text.empty()) {
    return refuse(question, invalid_argument("control: the message must have one JSON frame of at most {} bytes",
                                             DataPlane::kLongestControl));
  }
  json asked = json::parse(wire::as_text(text), nullptr, false);
  if (!asked.is_object()) asked = json::object();
  const std::string what = text_of(asked, "what"), model = text_of(asked, "model");
  const std::uint64_t version = number_of(asked, "version");
  if (!client.may(Role::kOperator) && std::ranges::count(kForOperators, what) > 0)
    return refuse(question, lacks_role(format("'{}'", what), {Role::kOperator}, client.uid, client.roles));
  if (what == "ping") return reply(question, {}, "{}");
  const Catalog& catalog = fleet_.catalog();
  if (what == "describe" && find_described(catalog.find(model), version)) return describe(question, model, version, false);
  const bool is_long = what == "describe" || what == "list" || what == "stats" || what == "crashes" || what == "trace";
  std::uint64_t wait_ms = 0;
  if (const Status rate = is_long ? check_rate(client, wait_ms) : Status(); !rate.ok())
    return refuse(question, rate, static_cast<std::uint32_t>(wait_ms));
  if (what == "describe") return describe(question, model, version, true);
  if (what == "list") return reply_counted(question, list_json());
  if (what == "stats") return reply_counted(question, stats_json(client.may(Role::kOperator) || client.may(Role::kGateway)));
  if (what == "crashes" || what == "trace") {
    if (!model.empty() && !catalog.find(model) && !plane_.deaths().knows(model))
      return refuse(question, catalog.no_such_model(model));
    if (what == "trace") return send_trace(question, model, number_of(asked, "pid"));
    return reply_counted(question, plane_.deaths().json(model));
  }
  if (what == "stop") {
    const pid_t pid = client.pid;
    reply(question, {}, R"({"stopping": true})");  // may disconnect the client
    return stop_(format("asked by pid {}", pid));
  }
  handle_wish(question, what, asked);
}

// The answer is sent when the wish has come true.
void Admin::handle_wish(Question question, std::string_view what, const json& asked) {
  constexpr WishKind kKinds[] = {WishKind::kLoad, WishKind::kReload, WishKind::kScale, WishKind::kDrain, WishKind::kUnload};
  const auto kind = std::ranges::find(kKinds, what, wish_name);
  if (kind == std::end(kKinds)) {
    return refuse(question,
                  invalid_argument("control: \"what\" must be one of describe, ping, list, stats, crashes, trace, stop, load, "
                                   "unload, reload, scale, drain"));
  }
  Wish wish{.kind = *kind, .model = text_of(asked, "model"), .caller = {question.client, question.seq}};
  const std::string text = text_of(asked, "text");
  if (!text.empty() || wish.kind == WishKind::kLoad) {
    auto request = parse_model_argument(wish.model + "=" + text);
    if (!request.ok()) return refuse(question, request.status());
    if (request->name != wish.model) {
      return refuse(question,
                    invalid_argument("'{}' is not a valid name of a model: it must not contain '=' or ','", wish.model));
    }
    wish.request = *std::move(request);
  }
  wish.workers = static_cast<int>(std::min<std::uint64_t>(number_of(asked, "workers"), 1 << 30));
  wish.force = asked.contains("force") && asked["force"].is_boolean() && asked["force"].get<bool>();
  if (const Status taken = fleet_.ask(std::move(wish)); !taken.ok()) refuse(question, taken);
}

void Admin::wish_answered(const AnswerCaller& answer) {
  const WishResult& result = answer.result;
  const json text{
      {"model", result.model},       {"outcome", result.outcome}, {"version", result.version ? json(*result.version) : json()},
      {"versions", result.versions}, {"workers", result.workers}, {"ms", result.took_ns / 1'000'000}};
  reply({answer.caller.client, answer.caller.seq}, answer.status, json_text(text));
}

void Admin::client_left(const Client& client) {
  if (client.waiting_describes == 0) return;
  client.process->waiting_describes -=
      std::erase_if(waiting_describes_, [&](const WaitingDescribe& waiting) { return waiting.question.client == client.id; });
}

// ---- descriptions ----

// The version that can be described at once. `service` may be null.
ModelVersion* Admin::find_described(const Service* service, std::uint64_t version) const {
  const CatalogVersion* serving = service ? service->serving(version) : nullptr;
  ModelVersion* model = serving ? &fleet_.version(serving->id) : nullptr;
  return model && !model->has_failed() ? model : nullptr;
}

std::vector<std::string_view> Admin::descriptions() {
  std::vector<std::string_view> texts;
  std::size_t left = kWelcomeBytes;
  for (const auto& service : fleet_.catalog().services()) {
    ModelVersion* const model = find_described(service.get(), 0);
    if (!model || texts.size() + 1 == wire::kMaxFrames) continue;
    const std::string_view text = model->description(*service);
    if (text.size() > left) continue;  // its clients ask
    left -= text.size();
    texts.push_back(text);
  }
  return texts;
}

// While the model loads, the answer waits: the client wants to use the model.
void Admin::describe(Question question, const std::string& name, std::uint64_t version, bool is_counted) {
  const Service* service = fleet_.catalog().find(name);
  if (!service) return refuse(question, fleet_.catalog().no_such_model(name));
  if (ModelVersion* model = find_described(service, version)) {
    const std::string& text = model->description(*service);
    return is_counted ? reply_counted(question, text) : reply(question, {}, text);
  }
  if (service->waits_for(version)) {
    Client* asking = plane_.clients().find(question.client);
    if (!asking) return;
    if (!may_wait(*asking)) {
      return refuse(question,
                    overloaded("{} describe requests of this client, {} of its process and {} of all clients wait for "
                               "models that are loading",
                               asking->waiting_describes, asking->process->waiting_describes, waiting_describes_.size()));
    }
    return wait_for_description(*asking, question.seq, name, version);
  }
  refuse(question, version != 0 && !service->serving(version)
                       ? service->route.no_such_version(version)
                       : unavailable("model '{}' is not available: {}", name, service->reason()));
}

bool Admin::may_wait(const Client& client) const {
  const FairShare share{.total = kAllWaitingDescribes, .clients = plane_.clients().most()};
  return client.waiting_describes < kMostWaitingDescribes &&
         share.fits(waiting_describes_.size(), client.process->waiting_describes, 1);
}

void Admin::wait_for_description(Client& client, std::uint64_t seq, const std::string& model, std::uint64_t version) {
  ++client.waiting_describes;
  ++client.process->waiting_describes;
  waiting_describes_.push_back({{client.id, seq}, model, version});
}

void Admin::services_changed() {
  tell_of_changes();
  describes_due_ = waiting_describes_.size();
  if (describes_due_ > 0) answer_describes_.set_earlier(0);
}

// A client that sends nothing may read nothing, so it is told a few at most. The others are not needed: it asks.
void Admin::tell_of_changes() {
  auto before = std::exchange(told_, {});
  for (const auto& service : fleet_.catalog().services()) {
    if (!find_described(service.get(), 0)) continue;
    const VersionId version = told_[service->wire_id] = service->serving(0)->id;
    if (const auto told = before.find(service->wire_id); told != before.end() && told->second == version) continue;
    plane_.clients().for_each([&](Client& client) {
      const bool is_welcomed = client.state == Client::State::kWelcoming || client.state == Client::State::kReady;
      if (!is_welcomed || (client.features & wire::kDescriptions) == 0 || client.told == kMostTold || !may_wait(client)) return;
      ++client.told;
      wait_for_description(client, 0, service->name, 0);
    });
  }
}

// It may be left out: nobody's answers wait for it, and it does not wait in the memory of this process.
void Admin::tell(const Client& client, const std::string& name) {
  const Service* service = fleet_.catalog().find(name);
  ModelVersion* model = find_described(service, 0);
  std::uint64_t wait_ms = 0;
  if (!model || client.unsent.bytes() > wire::Unsent::kCountedTogether || !check_rate(client, wait_ms).ok()) return;
  const std::string& text = model->description(*service);
  if (plane_.check_answer(client.id, text.size()).ok()) reply({client.id, 0}, {}, text);
}

// A turn answers only a few, because many may wait for one model, and answers may be long.
void Admin::answer_describes() {
  for (int left = kDescribesPerTurn; left > 0 && describes_due_ > 0; --left, --describes_due_) {
    if (waiting_describes_.empty()) {  // their clients have gone
      describes_due_ = 0;
      return;
    }
    const WaitingDescribe one = std::move(waiting_describes_.front());
    waiting_describes_.pop_front();
    Client* client = plane_.clients().find(one.question.client);
    if (!client) continue;
    --client->waiting_describes;
    --client->process->waiting_describes;
    if (one.question.seq == 0)
      tell(*client, one.model);
    else
      describe(one.question, one.model, one.version, true);  // goes to the end of the queue if it must still wait
  }
  if (describes_due_ > 0) answer_describes_.set(0);
}

// ---- answers ----

// A long answer keeps others waiting while it is made. Nobody knows before how long it will be, so an answer is made as soon as
// those before it fit the rate.
Status Admin::check_rate(const Client& client, std::uint64_t& wait_ms) {
  const std::uint64_t now_ns = plane_.now_ns();
  wait_ms = client.process->control_answers.wait_ms(now_ns);
  if (wait_ms != 0) {
    return overloaded("the answers to control requests of process {} exceed {} MiB per second: try again in {} ms", client.pid,
                      kBytesPerSecond >> 20, wait_ms);
  }
  if (rate_.allows(client.process->control_share, now_ns)) return {};
  wait_ms = rate_.wait_ms(now_ns);
  return overloaded(
      "the answers to control requests of all processes have {} of {} MiB in this second, and process {} has its share of them: "
      "try again in {} ms",
      rate_.used() >> 20, rate_.all() >> 20, client.pid, wait_ms);
}

void Admin::charge(ClientId client, std::uint64_t bytes) {
  const Client* asked = plane_.clients().find(client);
  if (!asked) return;
  asked->process->control_answers.charge(bytes, kBytesPerSecond, plane_.now_ns());
  if (bytes > kSmallAnswer) rate_.charge(asked->process->control_share, bytes, plane_.now_ns());
}

// What check_rate() has allowed.
void Admin::reply_counted(Question question, const std::string& text) {
  charge(question.client, text.size());
  reply(question, {}, text);
}

void Admin::reply(Question question, const Status& status, const std::string& text, std::uint32_t retry_after_ms) {
  const Status room = plane_.check_answer(question.client, text.size());
  const Status& said = status.ok() ? room : status;
  const wire::ControlHeader header = wire::make_control(wire::Kind::kControlReply, question.seq, said.code());
  const std::string body = said.ok() ? text : error_json(said, retry_after_ms);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(body))};
  plane_.send_to_client(question.client, frames);
}

}  // namespace shoal::supervisor
