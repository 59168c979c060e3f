#include "tests/support/process_sample.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tools/shoal/process_memory.hpp"

namespace shoal::test {

std::optional<ProcessSample> sample_process(pid_t pid) {
  const auto memory = tool::read_process_memory(pid);
  if (!memory) return std::nullopt;
  const int descriptors = descriptors_of(pid);
  if (descriptors < 0) return std::nullopt;
  return ProcessSample{.pss_bytes = memory->pss_bytes, .private_bytes = memory->private_bytes, .descriptors = descriptors};
}

int descriptors_of(pid_t pid) {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd", error);
  return error ? -1 : static_cast<int>(std::distance(begin(entries), end(entries)));
}

int memfd_mappings_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("/memfd:") != std::string::npos;
  return count;
}

std::chrono::nanoseconds processor_time_of(pid_t pid) {
  clockid_t clock{};
  timespec now{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &now) != 0) return {};
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::uint64_t WaitedTime::look_ns() {
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/" + std::to_string(pid_) + "/task", error), end; !error && task != end;
       task.increment(error)) {
    std::uint64_t ran_ns = 0, thread_ns = 0;
    if (!(std::ifstream(task->path() / "schedstat") >> ran_ns >> thread_ns)) continue;
    std::uint64_t& known_ns = by_thread_[task->path().filename()];
    // A time that is smaller is that of a new thread with the number of an old one.
    threads_ns_ += thread_ns - (thread_ns >= known_ns ? known_ns : 0);
    known_ns = thread_ns;
  }
  std::uint64_t sum_ns = threads_ns_;
  for (const char* what : {"io", "memory"}) {  // "some avg10=98.91 avg60=99.18 avg300=98.94 total=23712437752"
    std::ifstream pressure(std::string("/proc/pressure/") + what);
    std::string some;
    if (!std::getline(pressure, some)) continue;
    if (const auto total = some.find("total="); total != some.npos) sum_ns += 1000 * std::stoull(some.substr(total + 6));
  }
  return sum_ns;
}

double slope_of(std::span<const Point> points) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t k = i + 1; k < points.size(); ++k) {
      if (points[k].x != points[i].x) slopes.push_back((points[k].y - points[i].y) / (points[k].x - points[i].x));
    }
  }
  if (slopes.empty()) return 0;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

}  // namespace shoal::test
