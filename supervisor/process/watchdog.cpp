#include "supervisor/process/watchdog.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "shm/base/format.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::supervisor {
namespace {

/// Reads a file of /proc that is shorter than the buffer. Empty if the file is gone.
std::string_view read_small(const std::string& file, std::span<char> buffer) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t size = fd ? ::read(fd.get(), buffer.data(), buffer.size() - 1) : -1;
  if (size <= 0) return {};
  buffer[static_cast<std::size_t>(size)] = '\0';
  return {buffer.data(), static_cast<std::size_t>(size)};
}

std::optional<ThreadTimes> read_thread(const std::string& directory, pid_t thread) {
  char buffer[1024];
  const std::string_view stat = read_small(directory + "/stat", buffer);
  const auto name = stat.find('('), after_name = stat.rfind(')');  // a name may hold any character
  if (name == std::string_view::npos || after_name == std::string_view::npos || after_name < name) return std::nullopt;
  const std::string_view its_name = stat.substr(name + 1);
  ThreadTimes times{.thread = thread,
                    .is_message_io = its_name.starts_with("ZMQbg/"),
                    .is_compiler = its_name.starts_with(wire::kCompilerThread),
                    .is_control = its_name.starts_with(wire::kUnmapperThread)};
  unsigned long long user = 0, system = 0, cpu_ns = 0, wait_ns = 0;
  if (std::sscanf(stat.data() + after_name + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &times.state, &user,
                  &system) != 3)
    return std::nullopt;
  if (!read_small(directory + "/schedstat", buffer).empty() && std::sscanf(buffer, "%llu %llu", &cpu_ns, &wait_ns) == 2) {
    times.cpu_ns = cpu_ns;
    times.wait_ns = wait_ns;
  } else {
    times.cpu_ns = (user + system) * (1'000'000'000 / static_cast<unsigned long long>(::sysconf(_SC_CLK_TCK)));
  }
  return times;
}

}  // namespace

std::optional<std::vector<ThreadTimes>> read_threads(pid_t process, std::size_t most) {
  std::vector<ThreadTimes> threads;
  std::size_t listed = 0;
  const std::string tasks = format("/proc/{}/task", process);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    const int thread = std::atoi(entry->d_name);
    if (thread <= 0) continue;
    if (++listed > most) return std::nullopt;
    auto times = read_thread(tasks + '/' + entry->d_name, thread);
    if (!times) continue;
    times->is_control |= thread == process;
    threads.push_back(*times);
  }
  std::ranges::sort(threads, {}, &ThreadTimes::thread);
  return threads;
}

std::size_t most_threads_of_worker(int lanes, int threads_per_lane) {
  constexpr std::size_t kControlAndMessages = 4, kSpare = 64;
  return kControlAndMessages + kSpare + (static_cast<std::size_t>(lanes) + 1) * static_cast<std::size_t>(threads_per_lane);
}

LaneSample sample_lane(std::span<const ThreadTimes> threads, std::span<const std::uint64_t> lane_threads, std::size_t lane,
                       LaneStage stage) {
  LaneSample sample;
  const auto is_of_another_lane = [&](pid_t thread) {
    for (std::size_t i = 0; i < lane_threads.size(); ++i) {
      if (i != lane && lane_threads[i] == static_cast<std::uint64_t>(thread)) return true;
    }
    return false;
  };
  for (const ThreadTimes& times : threads) {
    const bool is_own = static_cast<std::uint64_t>(times.thread) == lane_threads[lane];
    // The request may have run since it was compiled. Then a thread of ZeroMQ has its reply and may wait for a processor.
    if (times.is_message_io && stage == LaneStage::kCompiling) sample.is_runnable |= times.state == 'R';
    const bool is_idle = (times.is_message_io || times.is_control) && stage != LaneStage::kReceiving;
    if (!is_own && (is_idle || is_of_another_lane(times.thread))) continue;
    sample.cpu_ns += times.cpu_ns;
    sample.wait_ns += times.wait_ns;
    sample.is_runnable |= times.state == 'R';
    sample.is_stopped |= times.state == 'T' || times.state == 't';
  }
  return sample;
}

std::uint64_t longest_wait_ns(std::span<const ThreadTimes> before, std::span<const ThreadTimes> now) {
  std::uint64_t longest_ns = 0;
  auto last = before.begin();
  for (const ThreadTimes& times : now) {
    while (last != before.end() && last->thread < times.thread) ++last;
    if (last == before.end() || last->thread != times.thread) continue;
    if (times.state == 'R' && times.cpu_ns == last->cpu_ns) return ~std::uint64_t{0};
    longest_ns = std::max(longest_ns, times.wait_ns - std::min(times.wait_ns, last->wait_ns));
  }
  return longest_ns;
}

LaneVerdict LaneWatch::judge(const LaneSample& sample, const LaneLimits& limits) {
  if (sample.request != last_.request || sample.running != last_.running || sample.steps != last_.steps) {
    quiet_ns_ = without_step_ns_ = 0;
  } else {
    const std::uint64_t gap_ns = std::min(sample.now_ns - std::min(sample.now_ns, last_.now_ns), kLongestGapNs);
    const bool used_cpu = sample.cpu_ns != last_.cpu_ns;
    const bool is_busy = used_cpu || sample.is_runnable || sample.waits_for_device;
    quiet_ns_ = is_busy ? 0 : quiet_ns_ + gap_ns - std::min(gap_ns, sample.starved_ns);
    // The kernel adds a wait when it is over, so it may be longer than the gap.
    const std::uint64_t waited_ns = sample.wait_ns - std::min(sample.wait_ns, last_.wait_ns);
    const bool still_waits = sample.is_runnable && !used_cpu;
    if (!still_waits) without_step_ns_ += gap_ns - std::min(gap_ns, waited_ns);
  }
  last_ = sample;
  if (sample.is_stopped) return LaneVerdict::kStopped;
  if (quiet_ns_ >= limits.quiet_ns) return LaneVerdict::kHung;
  return without_step_ns_ >= limits.run_ns ? LaneVerdict::kOverRunLimit : LaneVerdict::kFine;
}

}  // namespace shoal::supervisor
