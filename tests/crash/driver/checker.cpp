#include "tests/crash/driver/checker.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "shoal/status.hpp"
#include "supervisor/plane/flight_archive.hpp"

namespace shoal::test {
namespace {

using nlohmann::json;
using Kind = Violation::Kind;

constexpr std::array<const char*, 14> kKindNames = {"lost",   "twice",      "unasked", "wrong bytes", "wrong version",
                                                    "poison", "failed",     "spared",  "late",        "torn",
                                                    "died",   "miscounted", "unready", "leaked"};

StatusCode code_of(const Answered& answered) { return static_cast<StatusCode>(answered.status); }

template <typename... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// The largest of each quantity over the processes of one role. Workers are replaced, but the bound for each stays the same.
std::map<std::string, std::map<std::string, double>> holdings_of(const json& snapshot) {
  std::map<std::string, std::map<std::string, double>> holdings;
  for (const json& process : snapshot.at("processes")) {
    auto& role = holdings[process.at("role")];
    for (const char* what : {"descriptors", "memfds", "mappings", "pages", "private_bytes"})
      role[what] = std::max(role[what], process.at(what).get<double>());
    ++role["processes"];
  }
  return holdings;
}

bool is_served(const json& model) {
  const auto ready = std::ranges::count_if(model.at("workers"), [](const json& worker) { return worker.at("state") == "ready"; });
  return model.at("state") == "ready" && ready == model.at("wanted_workers") && model.at("zygote").at("pid").is_number();
}

}  // namespace

bool Checker::at_rest(const json& snapshot) {
  const bool has_no_arenas =
      std::ranges::all_of(snapshot.at("processes"), [](const json& process) { return process.at("arenas") == 0; });
  return has_no_arenas && std::ranges::all_of(snapshot.at("stats").at("models"), [](const json& model) {
           return is_served(model) && model.at("queue").at("length") == 0 && model.at("queue").at("running") == 0;
         });
}

std::string to_string(const Violation& violation) {
  return text_of(kKindNames[static_cast<std::size_t>(violation.kind)], " in ", violation.where, ": ", violation.what);
}

void Checker::read_waits(std::istream& waits) {
  std::uint64_t last_ns = 0;
  for (std::uint64_t time_ns = 0, waited_ns = 0; waits >> time_ns >> waited_ns; last_ns = waited_ns) {
    if (waited_ns < last_ns) add(Kind::kTorn, "waits", text_of(waited_ns, " ns waited, and before it ", last_ns));
    waits_[time_ns] = std::max(waited_ns, last_ns);
  }
}

// The time between the last sample before the interval and the first one after it.
std::uint64_t Checker::waited_between(std::uint64_t begin_ns, std::uint64_t end_ns) const {
  if (waits_.empty()) return 0;
  const auto after = waits_.upper_bound(begin_ns), last = waits_.lower_bound(end_ns);
  const std::uint64_t before_ns = after == waits_.begin() ? after->second : std::prev(after)->second;
  return (last == waits_.end() ? waits_.rbegin()->second : last->second) - before_ns;
}

void Checker::read_history(std::istream& history, const std::string& name, bool was_killed) {
  std::map<std::uint64_t, Asked> open;
  std::map<std::uint64_t, std::uint64_t> closed;  // id → when
  bool has_ended = false;
  for (std::string text; std::getline(history, text);) {
    const bool is_last = history.eof();  // a line without newline was cut by the kill
    const auto line = parse_line(text);
    if (!line || is_last) {
      if (!(was_killed && is_last)) add(Kind::kTorn, name, text);
      continue;
    }
    if (const auto* asked = std::get_if<Asked>(&*line)) {
      ++report_.asked;
      if (!open.emplace(asked->id, *asked).second || closed.contains(asked->id)) add(Kind::kTorn, name, text);
    } else if (const auto* answered = std::get_if<Answered>(&*line)) {
      ++report_.answered;
      const auto question = open.find(answered->id);
      if (question != open.end()) {
        judge(question->second, *answered, name);
        closed[answered->id] = answered->time_ns;
        open.erase(question);
      } else {
        add(closed.contains(answered->id) ? Kind::kTwice : Kind::kUnasked, name, text);
      }
    } else {
      has_ended = true;
    }
  }
  if (was_killed) {
    report_.unknown += open.size();
    for (const auto& [id, asked] : open) ++unknown_by_model_[asked.question.model];
    return;
  }
  if (!has_ended) add(Kind::kDied, name, "the history has no end");
  for (const auto& [id, asked] : open) add(Kind::kLost, name, to_line(asked));
}

void Checker::judge(const Asked& asked, const Answered& answered, const std::string& where) {
  const std::string what = to_line(asked) + "  " + to_line(answered);
  if (answered.time_ns < asked.time_ns) add(Kind::kUnasked, where, what);
  if (answered.attempts > 1) ++report_.rerun;
  const std::uint64_t excused_ns = answered.stalled_ns + waited_between(asked.time_ns, answered.time_ns);
  if (asked.timeout_ns != 0 && answered.time_ns > asked.time_ns + asked.timeout_ns + excused_ns + kLateNs)
    add(Kind::kLate, where, what);
  switch (code_of(answered)) {
    case StatusCode::kOk: {
      ++report_.ok;
      ++ok_by_model_[asked.question.model];
      if (asked.how == How::kGuilty) return add(Kind::kSpared, where, what);
      auto& versions = known_[asked.question];
      if (!versions.contains(answered.version)) versions[answered.version] = answer_(asked.question, answered.version);
      const auto& right = versions[answered.version];
      if (!right) return add(Kind::kWrongVersion, where, what);
      if (*right != answered.hash) add(Kind::kWrongBytes, where, what);
      return;
    }
    case StatusCode::kPoison:
      ++report_.poisoned;
      if (asked.how != How::kGuilty) add(Kind::kPoison, where, what);
      return;
    case StatusCode::kCancelled:
      ++report_.cancelled;
      ++cancelled_by_model_[asked.question.model];
      if (asked.how != How::kCancel) add(Kind::kFailed, where, what);
      return;
    case StatusCode::kDeadlineExceeded:
      ++report_.expired;
      ++expired_by_model_[asked.question.model];
      if (asked.timeout_ns == 0) add(Kind::kFailed, where, what);
      return;
    default:
      add(Kind::kFailed, where, what);
  }
}

void Checker::compare_snapshots(const json& start, const json& end, const std::string& name) {
  for (const json& model : end.at("stats").at("models")) compare_counts(model, text_of(name, " model ", model.at("name")));
  compare_holdings(start, end, name);
}

void Checker::compare_holdings(const json& start, const json& end, const std::string& name) {
  const auto before = holdings_of(start), after = holdings_of(end);
  for (const auto& [role, holding] : after) {
    const auto known = before.find(role);
    if (known == before.end()) {
      add(Kind::kLeaked, name, text_of("a process that nobody knows: ", role));
      continue;
    }
    for (const auto& [what, amount] : holding) {
      // A worker's memory grows while its caches fill. soak_test checks how it grows.
      if (what == "private_bytes" && role.starts_with("worker")) continue;
      double allowed = known->second.at(what) + (what == "private_bytes" ? kMemoryNoise : 0);
      // The supervisor keeps the pages of the last dead workers.
      if (what == "pages" && role == "supervisor")
        allowed += static_cast<double>(supervisor::FlightArchive::kKeptPerModel * end.at("stats").at("models").size());
      if (amount > allowed) add(Kind::kLeaked, name, text_of(role, ": ", what, " ", known->second.at(what), " to ", amount));
    }
  }
  for (const json* snapshot : {&start, &end}) {  // both were taken when no client was left
    for (const json& process : snapshot->at("processes")) {
      if (process.at("arenas") > 0)
        add(Kind::kLeaked, name, text_of(process.at("role"), ": arenas of clients that are gone: ", process.dump()));
    }
  }
  if (end.at("zombies") > 0) add(Kind::kLeaked, name, text_of(end.at("zombies"), " zombies"));
  for (const json& file : end.at("strangers")) add(Kind::kLeaked, name, text_of("a file in the directory: ", file));
}

// Every request has exactly one outcome: an answer, which may be a refusal, or a client that is gone.
void Checker::compare_counts(const json& model, const std::string& where) {
  const json& counts = model.at("counts");
  std::uint64_t answered = counts.at("ok").get<std::uint64_t>() + counts.at("orphaned").get<std::uint64_t>();
  for (const auto& [code, count] : counts.at("failed").items()) answered += count.get<std::uint64_t>();
  if (answered != counts.at("admitted").get<std::uint64_t>() + counts.at("refused").get<std::uint64_t>())
    add(Kind::kMiscounted, where, text_of("not one outcome for each request: ", counts.dump()));
  const std::string name = model.at("name");
  // A client whose deadline has passed does not wait for the daemon, which may have answered in time. Nor does one in Python that
  // has canceled its future.
  const auto perhaps_answered = [&](std::uint64_t told, const char* code) {
    return told - std::min(told, counts.at("failed").value(code, std::uint64_t{0}));
  };
  const std::uint64_t ok = counts.at("ok"), seen = ok_by_model_[name];
  const std::uint64_t most = seen + unknown_by_model_[name] + perhaps_answered(expired_by_model_[name], "DEADLINE_EXCEEDED") +
                             perhaps_answered(cancelled_by_model_[name], "CANCELLED");
  if (ok < seen || ok > most)
    add(Kind::kMiscounted, where, text_of("clients had ", seen, " answers, ", most, " at most: ", counts.dump()));
  if (!is_served(model)) add(Kind::kUnready, where, model.dump());
  if (model.at("queue").at("length") != 0 || model.at("queue").at("running") != 0)
    add(Kind::kLeaked, where, text_of("requests in the ledger: ", model.at("queue").dump()));
}

void Checker::add(Kind kind, const std::string& where, const std::string& what) {
  ++report_.violation_count;
  if (report_.violations.size() < 100) report_.violations.push_back({kind, where, what});
}

}  // namespace shoal::test
