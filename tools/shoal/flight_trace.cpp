#include "tools/shoal/flight_trace.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/wire/flight.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;
using wire::FlightKind;
using wire::FlightRecord;

constexpr int kControlTrack = 1000, kCompilerTrack = 1001;   // lanes are tracks 0 to 63
constexpr std::uint64_t kPidLimit = std::uint64_t{1} << 22;  // Linux has no larger pid

/// The slice that is open on a track.
struct Slice {
  std::uint64_t begun_ns = 0;
  std::size_t expected = 1;             // number of requests that run together
  std::vector<std::uint64_t> requests;  // seen so far
  std::set<std::uint64_t> running;      // those of them that have not ended
  json statuses = json::object();
};

/// Turns the events of one worker, in their order, into trace events.
class WorkerTrace {
 public:
  WorkerTrace(std::uint64_t process, std::uint64_t origin_ns, json& trace)
      : process_(process), origin_ns_(origin_ns), trace_(trace) {}

  void add(const FlightRecord& record) {
    switch (record.kind) {
      case FlightKind::kBegun:
      case FlightKind::kCompileBegun:
        return begin(record);
      case FlightKind::kEnded:
      case FlightKind::kCompileEnded:
        return end(record);
      default:
        return instant(record);
    }
  }

  /// Ends the slices that are still open. `died`: they ended with the worker.
  void finish(std::uint64_t time_ns, bool died) {
    for (auto& [track, slice] : open_) write(track, slice, time_ns, died ? "worker died" : "running");
    open_.clear();
  }

  const std::set<int>& tracks() const { return tracks_; }

 private:
  static int track_of(const FlightRecord& record) {
    if (record.kind == FlightKind::kCompileBegun || record.kind == FlightKind::kCompileEnded) return kCompilerTrack;
    return record.lane < wire::kMaxLanes ? record.lane : kControlTrack;
  }
  double us(std::uint64_t time_ns) const { return static_cast<double>(time_ns - std::min(time_ns, origin_ns_)) / 1e3; }

  void begin(const FlightRecord& record) {
    const int track = track_of(record);
    const bool is_compilation = track == kCompilerTrack;
    const auto found = open_.find(track);
    if (found != open_.end()) {
      Slice& slice = found->second;
      if (!is_compilation && slice.requests.size() < slice.expected) {  // the next request of a batch
        slice.requests.push_back(record.request);
        slice.running.insert(record.request);
        return;
      }
      write(track, slice, record.time_ns, "end not recorded");
      open_.erase(found);
    }
    Slice slice{.begun_ns = record.time_ns, .expected = is_compilation ? 1 : std::max<std::size_t>(record.value, 1)};
    slice.requests.push_back(record.request);
    slice.running.insert(record.request);
    open_.emplace(track, std::move(slice));
  }

  void end(const FlightRecord& record) {
    const auto found = open_.find(track_of(record));
    if (found == open_.end() || found->second.running.erase(record.request) == 0) return instant(record);
    Slice& slice = found->second;
    if (record.kind == FlightKind::kEnded) slice.statuses[std::to_string(record.request)] = status_name(record.value);
    if (!slice.running.empty()) return;
    write(found->first, slice, record.time_ns, "");
    open_.erase(found);
  }

  static json status_name(std::uint32_t value) {
    const auto code = static_cast<StatusCode>(value);
    const std::string_view name = value <= static_cast<std::uint32_t>(StatusCode::kInternal) ? status_code_name(code) : "?";
    return std::string(name);
  }

  void write(int track, const Slice& slice, std::uint64_t end_ns, const std::string& unfinished) {
    tracks_.insert(track);
    const std::string what = track == kCompilerTrack      ? "compile"
                             : slice.requests.size() == 1 ? "request " + std::to_string(slice.requests[0])
                                                          : "batch of " + std::to_string(slice.requests.size());
    json arguments{{"requests", slice.requests}, {"status", slice.statuses}};
    if (!unfinished.empty()) arguments["unfinished"] = unfinished;
    // Clocks of two threads may differ slightly; the length of a slice must not become negative.
    trace_.push_back({{"ph", "X"},
                      {"name", what},
                      {"pid", process_},
                      {"tid", track},
                      {"ts", us(slice.begun_ns)},
                      {"dur", us(std::max(end_ns, slice.begun_ns)) - us(slice.begun_ns)},
                      {"args", arguments}});
  }

  void instant(const FlightRecord& record) {
    const int track = track_of(record);
    tracks_.insert(track);
    trace_.push_back({{"ph", "i"},
                      {"s", "t"},
                      {"name", std::string(wire::flight_kind_name(record.kind))},
                      {"pid", process_},
                      {"tid", track},
                      {"ts", us(record.time_ns)},
                      {"args", {{"request", record.request}, {"value", record.value}}}});
  }

  std::uint64_t process_, origin_ns_;
  json& trace_;
  std::map<int, Slice> open_;
  std::set<int> tracks_;
};

json metadata(const char* what, std::uint64_t process, int track, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}};
}

std::string track_name(int track) {
  if (track == kControlTrack) return "control";
  return track == kCompilerTrack ? "compiler" : "lane " + std::to_string(track);
}

}  // namespace

Result<json> chrome_trace(const json& description, std::span<const std::byte> events) try {
  std::vector<std::pair<const json*, std::vector<FlightRecord>>> workers;
  std::uint64_t origin_ns = ~std::uint64_t{0};
  for (const json& worker : description.at("workers")) {
    const auto count = worker.at("events").get<std::uint64_t>();
    if (count > events.size() / sizeof(FlightRecord))
      return data_loss("{} events of worker {} were announced, {} bytes are left", count, worker.at("pid").dump(), events.size());
    std::vector<FlightRecord> records(count);
    if (count > 0) std::memcpy(records.data(), events.data(), count * sizeof(FlightRecord));
    events = events.subspan(count * sizeof(FlightRecord));
    std::ranges::sort(records, {}, &FlightRecord::sequence);
    for (const FlightRecord& record : records) origin_ns = std::min(origin_ns, record.time_ns);
    workers.emplace_back(&worker, std::move(records));
  }
  if (!events.empty()) return data_loss("{} bytes of events belong to no worker", events.size());

  json trace = json::array();
  std::set<std::uint64_t> processes;
  for (const auto& [worker, records] : workers) {
    const std::string model = worker->at("model").get<std::string>() + " " + worker->at("version").dump();
    const bool died = !worker->at("died_ns").is_null();
    auto process = worker->at("pid").get<std::uint64_t>();
    while (!processes.insert(process).second) process += kPidLimit;  // the kernel may have reused the pid of a dead worker
    WorkerTrace worker_trace(process, origin_ns, trace);
    for (const FlightRecord& record : records) worker_trace.add(record);
    worker_trace.finish(died ? worker->at("died_ns").get<std::uint64_t>() : description.at("now_ns").get<std::uint64_t>(), died);
    const std::string name = model + (died ? " worker, died: " + worker->at("what").get<std::string>() : " worker");
    trace.push_back(metadata("process_name", process, 0, name));
    for (const int track : worker_trace.tracks()) trace.push_back(metadata("thread_name", process, track, track_name(track)));
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", trace}};
} catch (const json::exception& error) {
  return data_loss("the description of the events cannot be read: {}", error.what());
}

}  // namespace shoal::tool
