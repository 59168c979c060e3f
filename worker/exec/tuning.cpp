#include "worker/exec/tuning.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <thread>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "worker/exec/planned_program.hpp"

namespace shoal::worker {
namespace {

constexpr int kRounds = 10;              // of a variant, after one to warm up; fewer when the budget ends
constexpr double kClearlyFaster = 0.97;  // an algorithm must gain so much on the one before it
constexpr double kClearlyFasterLayout = 0.98;

/// One variant of the whole network, measured.
struct Measurement {
  Choices variant;
  double total_ns = 0;                                 // the sum of the steps' best times
  std::map<std::string, std::string> implementations;  // by key
  std::map<std::string, double> best_ns;               // by key; of all steps that share it
};

std::vector<Tensor> blank_tensors(const std::vector<TensorSpec>& specs, std::vector<TensorView>& views) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : specs) {
    tensors.push_back(Tensor::create(spec.dtype, spec.shape).value());
    views.push_back(tensors.back().view());
  }
  return tensors;
}

// Time that other processes took from this one does not count: under one thread choices are the same on a busy machine.
std::uint64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// `share_ns`: the time of all rounds; two runs are made in any case.
Result<Measurement> measure(const Graph& graph, const Device& device, Choices variant, std::uint64_t share_ns) {
  const auto weights = std::make_shared<WeightStore>(WeightIdentity{});
  SHOAL_ASSIGN_OR_RETURN(Plan plan, device.compile(graph, *weights, variant));
  SHOAL_RETURN_IF_ERROR(weights->seal(WeightStore::Contents::kBlank));
  const std::vector<Plan::Tunable> tunables = plan.tunables;
  const PlannedProgram program(std::move(plan), weights);

  std::vector<TensorView> src, dst;
  const auto inputs = blank_tensors(program.inputs(), src), outputs = blank_tensors(program.outputs(), dst);
  std::vector<std::uint64_t> times(program.step_count()), best(program.step_count(), std::numeric_limits<std::uint64_t>::max());
  Context context;
  SHOAL_RETURN_IF_ERROR(program.run(context, src, dst));
  context.step_times = times;
  if (device.threads() == 1) context.state->step_clock = thread_cpu_ns;
  const std::uint64_t start_ns = monotonic_now_ns();
  for (int round = 0; round < kRounds && (round == 0 || monotonic_now_ns() - start_ns < share_ns); ++round) {
    std::ranges::fill(times, 0);
    SHOAL_RETURN_IF_ERROR(program.run(context, src, dst));
    for (std::size_t step = 0; step < times.size(); ++step) best[step] = std::min(best[step], times[step]);
  }
  Measurement measurement{.variant = std::move(variant)};
  for (const std::uint64_t ns : best) measurement.total_ns += static_cast<double>(ns);
  for (const Plan::Tunable& tunable : tunables) {
    measurement.implementations[tunable.key] = tunable.implementation;
    measurement.best_ns[tunable.key] += static_cast<double>(best[tunable.step]);
  }
  return measurement;
}

/// The best of one layout's variants, the first of which is its base.
Measurement combine(const std::vector<Measurement>& measurements, const std::string& layout) {
  Measurement best;
  for (const Measurement& measurement : measurements) {
    if (measurement.variant.layout != layout) continue;
    if (best.best_ns.empty()) {
      best = measurement;
      continue;
    }
    for (const auto& [key, ns] : measurement.best_ns) {
      const auto known = best.best_ns.find(key);
      if (known == best.best_ns.end() || ns >= kClearlyFaster * known->second) continue;
      best.total_ns += ns - known->second;
      known->second = ns;
      best.implementations[key] = measurement.implementations.at(key);
    }
  }
  return best;
}

Choices choose(const std::vector<Measurement>& measurements) {
  std::vector<std::string> layouts;
  for (const Measurement& measurement : measurements) {
    if (std::ranges::count(layouts, measurement.variant.layout) == 0) layouts.push_back(measurement.variant.layout);
  }
  Measurement best;
  for (const std::string& layout : layouts) {
    Measurement candidate = combine(measurements, layout);
    if (best.best_ns.empty() || candidate.total_ns < kClearlyFasterLayout * best.total_ns) best = std::move(candidate);
  }
  return {.layout = best.variant.layout, .algorithms = std::move(best.implementations)};
}

Result<Choices> measure_here(const Graph& graph, const Device& device, std::chrono::nanoseconds budget) {
  device.enter_thread();
  const std::uint64_t end_ns = monotonic_now_ns() + static_cast<std::uint64_t>(budget.count());
  const std::vector<Choices> variants = device.variants();
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns >= end_ns) break;
    SHOAL_ASSIGN_OR_RETURN(Measurement measurement,
                           measure(graph, device, variants[i], (end_ns - now_ns) / (variants.size() - i)));
    if (measurement.best_ns.empty()) return Choices();  // nothing to choose in this graph
    measurements.push_back(std::move(measurement));
  }
  return choose(measurements);
}

/// Ends with the process that it was forked from.
[[noreturn]] void become_measurer(const Graph& graph, const Device& device, std::chrono::milliseconds budget, pid_t parent,
                                  int result_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it was gone before that
  // A control socket held open here would hide its owner's death.
  if (result_fd > 3) ::syscall(SYS_close_range, 3, static_cast<unsigned>(result_fd) - 1, 0);
  ::syscall(SYS_close_range, static_cast<unsigned>(result_fd) + 1, std::numeric_limits<unsigned>::max(), 0);
  bool written = false;
  // On a thread of its own: the calling one may carry an OpenMP team whose other threads did not survive the fork.
  std::thread([&] {
    std::string text;
    try {
      const auto choices = measure_here(graph, device, budget);
      text = choices.ok() ? "ok\n" + choices->to_text() : choices.status().message();
    } catch (const std::exception& error) {
      text = error.what();
    }
    written = ::write(result_fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }).join();
  ::_exit(written ? 0 : 1);
}

/// All of it, until the writer is gone. Errors: kDeadlineExceeded after three times the budget.
Result<std::string> read_until_end(int fd, std::chrono::milliseconds budget, const TuningProgress& progress) {
  constexpr std::chrono::milliseconds kSayEvery(100);
  const std::uint64_t start_ns = monotonic_now_ns();
  std::string text;
  while (true) {
    const std::chrono::nanoseconds spent(monotonic_now_ns() - start_ns);
    if (spent >= 3 * budget) return deadline_exceeded("measuring algorithms took too long");
    if (progress) progress(std::chrono::duration_cast<std::chrono::milliseconds>(spent), budget);
    pollfd waiting{fd, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(3 * budget - spent);
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min(left, kSayEvery).count()) + 1);
    if (ready < 0 && errno != EINTR) return status_from_errno("wait for", "measured algorithms", errno);
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t size = ::read(fd, bytes, sizeof bytes);
    if (size < 0 && errno != EINTR) return status_from_errno("read", "measured algorithms", errno);
    if (size == 0) return text;
    if (size > 0) text.append(bytes, static_cast<std::size_t>(size));
  }
}

std::string how_ended(int status) {
  if (!WIFSIGNALED(status)) return format("its process exited with {}", WEXITSTATUS(status));
  return format("its process ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

}  // namespace

Result<Choices> measure_choices(const Graph& graph, const Device& device, std::chrono::milliseconds budget,
                                const TuningProgress& progress) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return status_from_errno("make a pipe for", "measured algorithms", errno);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return status_from_errno("fork", "a process that measures algorithms", errno);
  if (child == 0) become_measurer(graph, device, budget, parent, writer.get());
  writer.reset();
  const auto text = read_until_end(reader.get(), budget, progress);
  if (!text.ok()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text.ok()) return text.status();
  constexpr std::string_view kOk = "ok\n";
  if (status != 0) return internal_error("measuring algorithms failed: {}", how_ended(status));
  if (!text->starts_with(kOk)) return internal_error("measuring algorithms failed: {}", *text);
  return Choices::parse(std::string_view(*text).substr(kOk.size()));
}

}  // namespace shoal::worker
