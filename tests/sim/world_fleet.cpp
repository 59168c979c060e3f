// Zygotes, searches for files, wishes and the configuration.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "shm/base/format.hpp"
#include "shm/model/version_entry.hpp"
#include "tests/sim/world.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

constexpr std::array kModels = {"a", "b", "c"};

// A text that somebody else has spoiled.
std::string spoiled(std::string text, std::uint64_t draw) {
  if (pick(draw, 4) == 0) return text.substr(0, pick(draw, text.size() + 1));
  for (std::uint64_t i = 1 + pick(draw, 4); i > 0 && !text.empty(); --i) {
    draw = stirred(draw + i);
    text[pick(draw, text.size())] = "09{}[]\",:-ex \xff"[pick(draw, 14)];
  }
  return text;
}

}  // namespace

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
    model.for_each_worker([&](const WorkerProcess& worker) { ids.push_back(worker.incarnation); });
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t id = ids[(worker_draw + i) % ids.size()];
      if (!can(model, id)) continue;
      if (words_.empty()) words_ = format("worker {} of {}", id, model.options().name);
      return true;
    }
    return false;
  });
}

bool World::load_lies(SimProcesses& model, std::uint64_t draw) {
  return model.loads(spoiled(R"({"inputs": [], "outputs": [], "hash": "0", "packed_bytes": 4096, "warnings": ["w"]})", draw));
}

// ---- searches for files ----

Result<Child> World::begin_search(const SpawnOptions& options) {
  Search search{.control = duplicate_fd(options.control).value(),
                .pidfd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                .lived_ns = processes_.lived_ns};
  Child child{.pid = ::getpid(), .pidfd = duplicate_fd(search.pidfd.get()).value()};
  searches_.push_back(std::move(search));
  return child;
}

bool World::search_ends(std::uint64_t draw, SearchEnd how) {
  if (searches_.empty()) return false;
  const auto chosen = searches_.begin() + static_cast<std::ptrdiff_t>(pick(draw, searches_.size()));
  const Search search = std::move(*chosen);
  searches_.erase(chosen);
  longest_search_ns_ = std::max(longest_search_ns_, processes_.lived_ns - search.lived_ns);
  auto asked = wire::receive_control(search.control.get());
  if (how != SearchEnd::kDies && asked.ok() && *asked) {
    const std::string& question = (*asked)->text;
    std::string text = shoal::answer(parse_question(question.substr(question.find('\n') + 1)).value());
    wire::ControlMessage said{.kind = wire::ControlKind::kFound, .a = 1};
    if (how == SearchEnd::kLies) {
      if (pick(draw, 4) == 0) said.kind = static_cast<wire::ControlKind>(pick(draw, 50));
      if (pick(draw, 4) == 0) said.a = 0;
      text = spoiled(std::move(text), draw);
    }
    said.text = std::move(text);
    (void)wire::send_control(search.control.get(), said);
  }
  (void)::eventfd_write(search.pidfd.get(), 1);  // it ends
  return true;
}

// ---- wishes ----

// Keys of a model, as an argument or as lines of the configuration.
std::string World::drawn_keys(std::uint64_t& draw, bool is_toml) {
  const std::string path = pick(draw, 2) == 0 ? model_ : "builtin:identity";
  const std::string keys[] = {format("workers={}", 1 + pick(draw, 3)), format("contexts={}", 1 + pick(draw, 2)),
                              format("max_batch={}", 1 + 3 * pick(draw, 2)),
                              format("queue_limit={}", pick(draw, 2) == 0 ? 1024 : 4)};
  std::string text = is_toml ? format("path = \"{}\"\ntimeout_ms = 0\n", path) : path + ",timeout_ms=0";
  for (const std::string& key : keys) text += is_toml ? key + "\n" : "," + key;
  if (is_toml && pick(draw, 2) == 0) text += "run_limit_ms = 700\nquarantine_ms = 1500\nmax_delay_ms = 3\n";
  return text;
}

bool World::wish(WishKind kind, std::uint64_t draw) {
  Wish wish{.kind = kind, .model = kModels[pick(draw, kModels.size())], .caller = {1'000'000, ++last_wish_}};
  if (rules_.is_even) {
    wish.request =
        parse_model_argument(format("{}=builtin:identity,timeout_ms=0,workers=1,contexts={}", wish.model, 1 + pick(draw, 2)))
            .value();
  } else if (kind == WishKind::kLoad || (kind == WishKind::kReload && pick(draw, 2) == 0)) {
    wish.request = parse_model_argument(format("{}={}", wish.model, drawn_keys(draw, false))).value();
    if (pick(draw, 4) != 0) wish.request->overrides.run_limit_ms = 1'000;
    if (pick(draw, 2) == 0) wish.request->overrides.quarantine_ms = 1'500;
    if (pick(draw, 4) == 0) wish.request->overrides.max_delay_ms = 3;
  }
  wish.workers = static_cast<int>(1 + pick(draw, 4));
  wish.force = pick(draw, 2) == 0;
  words_ = wish.model;
  if (fleet_.ask(std::move(wish)).ok()) wishes_.insert(last_wish_);
  return true;
}

// SIGHUP, after the configuration was written anew.
bool World::hangup(std::uint64_t draw) {
  std::string text = pick(draw, 8) == 0 ? "limits = 3\n" : "";
  for (const char* model : kModels) {
    if (pick(draw, 2) == 0) text += format("[models.{}]\n{}", model, drawn_keys(draw, true));
  }
  text +=
      format("[limits]\nclient_requests = {}\nclient_queue_percent = {}\nmodels = {}\nclient_bad_messages = {}\n",
             pick(draw, 2) == 0 ? 4096 : 3, 25 + 25 * pick(draw, 4), pick(draw, 4) == 0 ? 2 : 1024, pick(draw, 2) == 0 ? 2 : 16);
  std::ofstream(configuration_) << text;
  fleet_.reload_configuration();
  return true;
}

void World::wish_answered(const AnswerCaller& answer) {
  const std::string told = format("; wish {}: {}", answer.caller.seq, status_code_name(answer.status.code()));
  words_ += told;
  trace(told);
  // An answer may come before ask() has returned.
  if (answer.caller.seq != last_wish_ && wishes_.count(answer.caller.seq) == 0)
    breaks(format("wish {} was answered twice, or never asked", answer.caller.seq));
  wishes_.erase(answer.caller.seq);
  for (const Search& search : searches_) longest_search_ns_ = std::max(longest_search_ns_, processes_.lived_ns - search.lived_ns);
  if (answer.status.message().find("not read within") != std::string::npos && longest_search_ns_ < FinderChildren().limit_ns)
    breaks(format("a search that took {} ms at most was ended", longest_search_ns_ / kMs));
  if (!answer.status.ok() || answer.result.outcome != "scaled") return;
  for (const auto& version : fleet_.catalog().find(answer.result.model)->versions) {
    const Processes& processes = fleet_.version(version->id).processes();
    if (version->serves() && processes.state() == ModelState::kReady && processes.ready_workers() != answer.result.workers)
      breaks(format("model {} has {} workers and not {}", answer.result.model, processes.ready_workers(), answer.result.workers));
  }
}

}  // namespace shoal::test
