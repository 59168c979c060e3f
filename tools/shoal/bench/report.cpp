#include "tools/shoal/bench/report.hpp"

#include <optional>

#include "shm/base/errors.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr double kReached = 0.95;  // of the requests that were due
constexpr double kLateMs = 1;

double to_ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

/// The time that so many do not exceed; 1: the longest. Nothing if there are none.
std::optional<double> ms_at(const FineHistogram& times, double fraction) {
  if (times.count() == 0) return std::nullopt;
  return to_ms(fraction < 1 ? times.quantile(fraction) : times.max());
}

/// Three digits at least, and no exponent.
std::string ms_text(const FineHistogram& times, double fraction) {
  const auto ms = ms_at(times, fraction);
  return ms ? number_text(*ms, *ms < 1 ? "%.3f" : *ms < 10 ? "%.2f" : *ms < 100 ? "%.1f" : "%.0f") : "-";
}

std::string load_text(const LoadPoint& load) {
  return load.is_open() ? number_text(load.rate, "%.6g") + "/s" : format("{}", load.in_flight);
}

json times_json(const FineHistogram& times) {
  const auto at = [&](double fraction) {
    const auto ms = ms_at(times, fraction);
    return ms ? json(*ms) : json();
  };
  json object{{"max", at(1)}};
  for (const auto& [name, fraction] : kPercentiles) object[name] = at(fraction);
  return object;
}

json load_json(const Measurement& measured) {
  json failed = json::object(), batches = json::object();
  for (const auto& [code, count] : measured.failures) failed[std::string(status_code_name(code))] = count;
  for (const auto& [size, count] : measured.batches) batches[std::to_string(size)] = count;
  json object{{"seconds", measured.seconds},
              {"requests", measured.requests},
              {"ok", measured.ok()},
              {"failed", failed},
              {"answers_per_s", measured.answers_per_s()},
              {"total_ms", times_json(measured.total_ns)},
              {"queue_ms", times_json(measured.queue_ns)},
              {"compute_ms", times_json(measured.compute_ns)},
              {"late_ms", times_json(measured.late_ns)},
              {"batches", batches},
              {"is_cut", measured.is_cut}};
  if (measured.load.is_open()) {
    object["rate"] = measured.load.rate;
  } else {
    object["in_flight"] = measured.load.in_flight;
  }
  return object;
}

}  // namespace

std::string to_table(std::span<const Measurement> measurements) {
  const bool is_open = !measurements.empty() && measurements.front().load.is_open();
  std::vector<std::vector<std::string>> rows{{is_open ? "rate" : "in flight", "answers/s", "answered", "failed", "p50 ms", "p90",
                                              "p99", "p99.9", "max", "queue", "compute", "batch"}};
  for (const Measurement& measured : measurements) {
    std::vector<std::string> row{load_text(measured.load), number_text(measured.answers_per_s(), "%.1f"),
                                 format("{}", measured.ok()), format("{}", measured.requests - measured.ok())};
    for (const Percentile& percentile : kPercentiles) row.push_back(ms_text(measured.total_ns, percentile.fraction));
    row.push_back(ms_text(measured.total_ns, 1));
    row.push_back(ms_text(measured.queue_ns, 0.5));
    row.push_back(ms_text(measured.compute_ns, 0.5));
    row.push_back(measured.mean_batch() > 0 ? number_text(measured.mean_batch(), "%.2f") : "-");
    rows.push_back(std::move(row));
  }
  return align_columns(rows, std::vector<bool>(rows.front().size(), true));
}

json to_json(const ModelInfo& model, std::span<const Measurement> measurements) {
  json loads = json::array();
  for (const Measurement& measured : measurements) loads.push_back(load_json(measured));
  const bool is_open = !measurements.empty() && measurements.front().load.is_open();
  return {{"model", model.name}, {"version", model.version}, {"loop", is_open ? "open" : "closed"}, {"loads", loads}};
}

std::string to_csv(std::span<const Measurement> measurements) {
  std::string text =
      "in_flight,rate,seconds,requests,ok,failed,answers_per_s,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms,queue_p50_ms,queue_p99_ms,"
      "compute_p50_ms,compute_p99_ms,mean_batch,late_p99_ms\n";
  for (const Measurement& measured : measurements) {
    const LoadPoint& load = measured.load;
    text += (load.is_open() ? "," + number_text(load.rate, "%.9g") : format("{},", load.in_flight));
    text += format(",{},{},{},{},{}", number_text(measured.seconds, "%.4g"), measured.requests, measured.ok(),
                   measured.requests - measured.ok(), number_text(measured.answers_per_s(), "%.6g"));
    const auto add = [&](const FineHistogram& times, double fraction) {
      text += ",";
      if (const auto ms = ms_at(times, fraction)) text += number_text(*ms, "%.6g");
    };
    for (const Percentile& percentile : kPercentiles) add(measured.total_ns, percentile.fraction);
    add(measured.total_ns, 1);
    for (const FineHistogram* times : {&measured.queue_ns, &measured.compute_ns}) {
      add(*times, 0.5);
      add(*times, 0.99);
    }
    text += measured.mean_batch() > 0 ? "," + number_text(measured.mean_batch(), "%.4g") : ",";
    add(measured.late_ns, 0.99);
    text += "\n";
  }
  return text;
}

std::vector<std::string> warnings_of(std::span<const Measurement> measurements) {
  std::vector<std::string> warnings;
  for (const Measurement& measured : measurements) {
    const std::string load =
        measured.load.is_open() ? "rate " + load_text(measured.load) : load_text(measured.load) + " in flight";
    if (!measured.failures.empty()) {
      std::string codes;
      for (const auto& [code, count] : measured.failures)
        codes += format("{}{} {}", codes.empty() ? "" : ", ", count, std::string(status_code_name(code)));
      warnings.push_back(format("{}: of {} requests failed {}; the first: {}", load, measured.requests, codes,
                                measured.first_failure.message()));
    }
    const auto due = static_cast<double>(measured.requests);
    if (measured.load.is_open() && !measured.is_cut && static_cast<double>(measured.answers) < kReached * due - 1)
      warnings.push_back(format("{}: not reached: {} requests a second were due, {} were answered", load,
                                number_text(due / measured.seconds, "%.1f"), number_text(measured.answers_per_s(), "%.1f")));
    if (const double late = to_ms(measured.late_ns.quantile(0.99)); late > kLateMs)
      warnings.push_back(
          format("{}: this program sent 1 % of the requests more than {} ms late: it needs a core of its own, or the "
                 "rate is too high for one thread",
                 load, number_text(late, "%.1f")));
    if (measured.is_cut) warnings.push_back(format("{}: interrupted after {} s", load, number_text(measured.seconds, "%.1f")));
  }
  return warnings;
}

}  // namespace shoal::tool
