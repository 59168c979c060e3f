#include "supervisor/plane/death_log.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shm/base/fault_signals.hpp"
#include "shm/base/format.hpp"
#include "shm/base/json_text.hpp"
#include "supervisor/process/spawn.hpp"

namespace shoal::supervisor {
namespace {

using nlohmann::json;

std::string printable(const char* text, std::size_t most) {
  std::string result(text, ::strnlen(text, most));
  std::ranges::replace_if(
      result, [](unsigned char c) { return (c < 0x20 && c != '\n') || c > 0x7e; }, '?');
  return result;
}

std::string hex(std::uint64_t value) {
  std::ostringstream text;
  text << std::hex << "0x" << value;
  return text.str();
}

std::string iso_time(std::uint64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03uZ", static_cast<unsigned>(unix_ms % 1000));
  return text;
}

std::string_view fate_name(DeathOutcome::Fate fate) {
  switch (fate) {
    case DeathOutcome::Fate::kRunsAgain:
      return "runs again";
    case DeathOutcome::Fate::kRunsAlone:
      return "runs again, alone";
    case DeathOutcome::Fate::kAnsweredPoison:
      return "answered POISON";
    case DeathOutcome::Fate::kAnsweredAborted:
      return "answered ABORTED";
    case DeathOutcome::Fate::kAnsweredUnavailable:
      return "answered UNAVAILABLE";
    case DeathOutcome::Fate::kWasAnswered:
      return "nobody waited";
  }
  return "?";
}

json request_json(const DeathOutcome& request) {
  return {{"request", request.request},
          {"client", request.client},
          {"flow", request.flow},
          {"seq", request.seq},
          {"attempts", request.begun},
          {"blamed", request.blamed},
          {"was_running", request.was_running},
          {"decision", fate_name(request.fate)}};
}

json crash_json(const CrashText& crash) {
  json stack = json::array();
  std::istringstream lines(crash.stack);
  for (std::string line; std::getline(lines, line);) stack.push_back(line);
  return {{"signal", crash.signal},          {"code", crash.code},
          {"address", hex(crash.address)},   {"sender_pid", crash.sender_pid},
          {"operator", crash.operator_name}, {"stack", stack}};
}

json death_json(const Death& death) {
  json requests = json::array();
  for (const DeathOutcome& request : death.requests) requests.push_back(request_json(request));
  return {{"time", iso_time(death.unix_ms)},
          {"model", death.model},
          {"version", death.version},
          {"pid", death.pid},
          {"incarnation", death.incarnation},
          {"cause", death_cause_name(death.cause())},
          {"what", death.what()},
          {"how", death.wait_status ? json(describe_wait_status(*death.wait_status)) : json()},
          {"crash", death.crash ? crash_json(*death.crash) : json()},
          {"lived_s", static_cast<double>(death.lived_ns) / 1e9},
          {"answered", death.answered},
          {"noticed_ns", death.noticed_ns},
          {"unrouted_ns", death.unrouted_ns},
          {"requests", requests},
          {"requests_held", death.held}};
}

}  // namespace

std::string_view death_cause_name(DeathCause cause) {
  switch (cause) {
    case DeathCause::kUnknown:
      return "unknown";
    case DeathCause::kCrash:
      return "crash";
    case DeathCause::kException:
      return "exception";
    case DeathCause::kOutOfMemory:
      return "out_of_memory";
    case DeathCause::kStopped:
      return "stopped";
    case DeathCause::kHung:
      return "hung";
    case DeathCause::kRunLimit:
      return "run_limit";
    case DeathCause::kEnded:
      return "ended";
    case DeathCause::kKilled:
      return "killed";
    case DeathCause::kOomKilled:
      return "oom_killed";
    case DeathCause::kExited:
      return "exited";
  }
  return "unknown";
}

std::optional<CrashText> read_crash(const wire::CrashRecord& record) {
  if (record.valid.load(std::memory_order_acquire) != 1) return std::nullopt;  // pairs with the handler's release
  constexpr auto relaxed = std::memory_order_relaxed;
  CrashText text{.cause = static_cast<wire::CrashCause>(record.cause.load(relaxed)),
                 .signal = record.signal.load(relaxed),
                 .code = record.code.load(relaxed),
                 .sender_pid = record.sender_pid.load(relaxed),
                 .address = record.address.load(relaxed),
                 .operator_name = printable(record.operator_name, sizeof record.operator_name),
                 .stack = printable(record.stack, sizeof record.stack)};
  std::ranges::replace(text.operator_name, '\n', '?');
  return text;
}

DeathCause Death::cause() const {
  switch (ended) {
    case EndReason::kStopped:
      return DeathCause::kStopped;
    case EndReason::kHung:
      return DeathCause::kHung;
    case EndReason::kRunLimit:
      return DeathCause::kRunLimit;
    case EndReason::kRules:
      return DeathCause::kEnded;
    case EndReason::kNone:
      break;
  }
  if (crash) {
    if (crash->sender_pid != 0) return DeathCause::kKilled;
    if (crash->cause == wire::CrashCause::kOutOfMemory) return DeathCause::kOutOfMemory;
    return crash->cause == wire::CrashCause::kException ? DeathCause::kException : DeathCause::kCrash;
  }
  if (!wait_status) return DeathCause::kUnknown;
  if (!WIFSIGNALED(*wait_status)) return DeathCause::kExited;
  if (was_oom_kill) return DeathCause::kOomKilled;
  return std::ranges::count(kFaultSignals, WTERMSIG(*wait_status)) > 0 ? DeathCause::kCrash : DeathCause::kKilled;
}

std::string Death::what() const {
  const std::string where = crash && !crash->operator_name.empty() ? " in " + crash->operator_name : "";
  if (ended != EndReason::kNone) return ended_because + where;
  if (crash && crash->sender_pid < 0)
    return format("signal {} sent by a process that cannot be seen from here{}", crash->signal, where);
  if (crash && crash->sender_pid != 0) return format("signal {} sent by process {}{}", crash->signal, crash->sender_pid, where);
  if (crash && crash->cause == wire::CrashCause::kOutOfMemory) return "out of memory" + where;
  if (crash && crash->cause == wire::CrashCause::kException) return "an exception that nobody caught" + where;
  if (crash) return format("signal {} (code {}) at address {}{}", crash->signal, crash->code, hex(crash->address), where);
  if (was_oom_kill) return "killed by the kernel for memory";
  const std::string how = wait_status ? describe_wait_status(*wait_status) : "ended; nobody saw how";
  return cause() == DeathCause::kKilled ? how + " from outside" : how;
}

void DeathLog::add(Death death, std::uint64_t now_ns) {
  // Requests that were running come first: readers look for them, and not all requests may be shown.
  std::stable_partition(death.requests.begin(), death.requests.end(), std::mem_fn(&DeathOutcome::was_running));
  death.held = death.requests.size();
  for (const DeathOutcome& request : death.requests) {
    death.running += request.was_running;
    death.rerun += request.fate == DeathOutcome::Fate::kRunsAgain || request.fate == DeathOutcome::Fate::kRunsAlone;
  }
  if (death.requests.size() > kShownRequests) death.requests.resize(kShownRequests);
  death.requests.shrink_to_fit();
  deaths_.push_back(std::move(death));
  if (deaths_.size() > kKept) deaths_.pop_front();
  if (deaths_.back().wait_status) return complete(deaths_.back(), now_ns);
  incomplete_.push_back(deaths_.back().incarnation);
  set_timer();
}

void DeathLog::reaped(std::uint64_t incarnation, int wait_status, std::uint64_t now_ns) {
  if (std::erase(incomplete_, incarnation) == 0) return;
  set_timer();
  const auto death = std::ranges::find(deaths_, incarnation, &Death::incarnation);
  if (death == deaths_.end()) return;
  death->wait_status = wait_status;
  complete(*death, now_ns);
}

void DeathLog::report_late(std::uint64_t now_ns) {
  std::erase_if(incomplete_, [&](std::uint64_t incarnation) {
    const auto death = std::ranges::find(deaths_, incarnation, &Death::incarnation);
    if (death != deaths_.end() && now_ns < death->noticed_ns + kReportLimitNs) return false;
    if (death != deaths_.end()) complete(*death, now_ns);
    return true;
  });
  set_timer();
}

void DeathLog::set_timer() {
  if (incomplete_.empty()) return report_.clear();
  const auto oldest = std::ranges::find(deaths_, incomplete_.front(), &Death::incarnation);
  report_.set(oldest == deaths_.end() ? 0 : oldest->noticed_ns + kReportLimitNs);
}

void DeathLog::complete(Death& death, std::uint64_t now_ns) {
  const bool was_sigkill = death.wait_status && WIFSIGNALED(*death.wait_status) && WTERMSIG(*death.wait_status) == SIGKILL;
  if (was_sigkill && death.ended == EndReason::kNone) death.was_oom_kill = oom_kills_.take_recent(now_ns);
  log_.warn("worker_died model={} version={} pid={} incarnation={} cause={} what=\"{}\" lived_ms={} held={} running={} rerun={}",
            death.model, death.version, death.pid, death.incarnation, death_cause_name(death.cause()), death.what(),
            death.lived_ns / 1'000'000, death.held, death.running, death.rerun);
}

std::string DeathLog::what(std::uint64_t incarnation) const {
  const auto death = std::ranges::find(deaths_, incarnation, &Death::incarnation);
  return death == deaths_.end() ? "" : death->what();
}

std::string DeathLog::json(const std::string& model) const {
  nlohmann::json crashes = nlohmann::json::array();
  for (const Death& death : deaths_) {
    if (model.empty() || death.model == model) crashes.push_back(death_json(death));
  }
  return json_text(nlohmann::json{{"crashes", crashes}});
}

}  // namespace shoal::supervisor
