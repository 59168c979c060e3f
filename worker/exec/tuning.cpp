#include "worker/exec/tuning.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <thread>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/types.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

constexpr int kRounds = 10;              // runs of a variant after one warm-up run; fewer when the budget ends
constexpr double kClearlyFaster = 0.97;  // an algorithm must take at most this part of the previous one's time
constexpr double kClearlyFasterLayout = 0.98;

/// One variant of the whole network, measured.
struct Measurement {
  Choices variant;
  double total_ns = 0;                                 // the sum of the steps' best times
  std::map<std::string, std::string> implementations;  // by key
  std::map<std::string, double> best_ns;               // by key; the sum over all steps that share the key
};

std::vector<Tensor> blank_tensors(const std::vector<TensorSpec>& specs, std::vector<TensorView>& views) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : specs) {
    tensors.push_back(Tensor::create(spec.dtype, spec.shape).value());
    views.push_back(tensors.back().view());
  }
  return tensors;
}

// With one thread, time that other processes took from this one does not count. So choices are the same on a busy machine.
std::uint64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Inputs that are all zero. An operator may refuse them, as the inverse of a matrix does; then the steps before it are measured.
/// `share_ns`: the time of all rounds; two runs are made in any case.
Result<Measurement> measure(const Graph& graph, const Backend& backend, Choices variant, std::uint64_t share_ns) {
  const auto weights = std::make_shared<WeightStore>(WeightIdentity{});
  SHOAL_ASSIGN_OR_RETURN(Plan plan, backend.prepare(graph, *weights, variant));
  SHOAL_RETURN_IF_ERROR(weights->seal(WeightStore::Contents::kBlank));
  const std::vector<Plan::Tunable> tunables = plan.tunables;
  const PlannedProgram program(std::move(plan), weights);

  std::vector<TensorView> src;
  const auto inputs = blank_tensors(program.inputs(), src);
  SHOAL_ASSIGN_OR_RETURN(OwnedOutputs outputs, OwnedOutputs::make(program.outputs()));
  std::vector<std::uint64_t> times(program.step_count()), best(program.step_count(), std::numeric_limits<std::uint64_t>::max());
  Context context;
  context.sink = &outputs;
  const auto run = [&] {
    const Status ended = program.run(context, src, outputs.views());
    return ended.code() == StatusCode::kInvalidArgument ? Status() : ended;
  };
  SHOAL_RETURN_IF_ERROR(run());
  context.step_times = times;
  if (backend.threads() == 1) context.state->step_clock = thread_cpu_ns;
  const std::uint64_t start_ns = monotonic_now_ns();
  for (int round = 0; round < kRounds && (round == 0 || monotonic_now_ns() - start_ns < share_ns); ++round) {
    std::ranges::fill(times, 0);
    SHOAL_RETURN_IF_ERROR(run());
    for (std::size_t step = 0; step < times.size(); ++step) best[step] = std::min(best[step], times[step]);  // 0: it did not run
  }
  Measurement measurement{.variant = std::move(variant)};
  for (const std::uint64_t ns : best) measurement.total_ns += static_cast<double>(ns);
  for (const Plan::Tunable& tunable : tunables) {
    measurement.implementations[tunable.key] = tunable.implementation;
    measurement.best_ns[tunable.key] += static_cast<double>(best[tunable.step]);
  }
  return measurement;
}

/// May a network in that precision and layout use what was measured in that variant?
bool takes(const Choices& network, const Choices& variant) {
  const bool has_precision = variant.precision == network.precision ||
                             (variant.precision == Precision::kF32 && network.precision == Precision::kF32Fast);
  return has_precision && variant.layout == network.layout;
}

/// The best of the variants of one precision and layout, the first of which is its base.
Measurement combine(const std::vector<Measurement>& measurements, const Choices& network) {
  Measurement best;
  for (const Measurement& measurement : measurements) {
    if (!takes(network, measurement.variant)) continue;
    if (best.best_ns.empty()) {
      best = measurement;
      best.variant = network;
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
  Measurement best;
  for (const Measurement& measurement : measurements) {
    Measurement candidate =
        combine(measurements, {.precision = measurement.variant.precision, .layout = measurement.variant.layout});
    if (best.best_ns.empty() || candidate.total_ns < kClearlyFasterLayout * best.total_ns) best = std::move(candidate);
  }
  return {.precision = best.variant.precision, .layout = best.variant.layout, .algorithms = std::move(best.implementations)};
}

/// Numbers from -1 to 1, the same in every process; zeros for other types than float32.
void fill_with_noise(const TensorView& view) {
  if (view.dtype != DType::kFloat32) return;
  std::uint32_t state = 1;
  for (float& number : std::span(reinterpret_cast<float*>(view.data), view.bytes().size() / sizeof(float))) {
    state = state * 1664525 + 1013904223;
    number = static_cast<float>(static_cast<std::int32_t>(state)) / 2147483648.0F;
  }
}

Result<Tensors> outputs_with(const Graph& graph, const Backend& backend, const Choices& choices, std::span<const Tensor> inputs) {
  const auto weights = std::make_shared<WeightStore>(WeightIdentity{});
  SHOAL_ASSIGN_OR_RETURN(Plan plan, backend.prepare(graph, *weights, choices));
  SHOAL_RETURN_IF_ERROR(weights->seal());
  const PlannedProgram program(std::move(plan), weights);
  std::vector<TensorView> src;
  const std::vector<Tensor> noise = blank_tensors(program.inputs(), src);
  SHOAL_ASSIGN_OR_RETURN(OwnedOutputs outputs, OwnedOutputs::make(program.outputs()));
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (inputs.empty()) {
      fill_with_noise(src[i]);
    } else {
      src[i] = inputs[i].view();
    }
  }
  Context context;
  context.sink = &outputs;
  SHOAL_RETURN_IF_ERROR(program.run(context, src, outputs.views()));
  return std::move(outputs).take();
}

/// The error of these choices against the backend's default in float32.
Result<double> error_of(const Graph& graph, const Backend& backend, const Choices& choices, std::span<const Tensor> inputs) {
  SHOAL_ASSIGN_OR_RETURN(const auto want, outputs_with(graph, backend, {.precision = Precision::kF32}, inputs));
  SHOAL_ASSIGN_OR_RETURN(const auto got, outputs_with(graph, backend, choices, inputs));
  double error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) error = std::max(error, output_error(got[i].tensor, want[i].tensor));
  return error;
}

/// The fastest choices. Those of a precision whose error is above the limit, or cannot be measured, are taken only if there are
/// no others: the user has chosen it.
Result<Choices> choose_within(std::vector<Measurement> measurements, const Graph& graph, const Backend& backend,
                              const AccuracyLimit& accuracy) {
  std::optional<double> bf16_error;
  Choices chosen = choose(measurements);
  while (chosen.precision.value_or(Precision::kF32) != Precision::kF32) {
    const Precision tried = *chosen.precision;
    std::erase_if(measurements, [tried](const Measurement& each) { return each.variant.precision == tried; });
    if (measurements.empty() && tried != Precision::kBf16) break;
    const auto error = error_of(graph, backend, chosen, accuracy.inputs);  // none if the model refuses these inputs
    if (tried == Precision::kBf16 && error.ok()) bf16_error = *error;
    if ((error.ok() && *error <= accuracy.max_error) || measurements.empty()) break;
    chosen = choose(measurements);
  }
  chosen.bf16_error = bf16_error;
  return chosen;
}

Result<Choices> measure_here(const Graph& graph, const Backend& backend, std::chrono::nanoseconds budget,
                             const AccuracyLimit& accuracy) {
  backend.enter_thread();
  const std::uint64_t end_ns = monotonic_now_ns() + static_cast<std::uint64_t>(budget.count());
  const std::vector<Choices> variants = backend.variants();
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns >= end_ns) break;
    SHOAL_ASSIGN_OR_RETURN(Measurement measurement,
                           measure(graph, backend, variants[i], (end_ns - now_ns) / (variants.size() - i)));
    if (measurement.best_ns.empty()) return Choices();  // nothing to choose in this graph
    measurements.push_back(std::move(measurement));
  }
  return choose_within(std::move(measurements), graph, backend, accuracy);
}

/// Ends when `end_fd`, an eventfd, becomes readable, with the thread that it was forked from, and some time after three budgets.
[[noreturn]] void become_measurer(const Graph& graph, const Backend& backend, std::chrono::milliseconds budget,
                                  const AccuracyLimit& accuracy, pid_t parent, int result_fd, int end_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it was gone before that
  // For a child that cannot start the thread below, because another thread of its parent held a lock during the fork.
  sigset_t alarms;
  ::sigemptyset(&alarms);
  ::sigaddset(&alarms, SIGALRM);
  ::signal(SIGALRM, SIG_DFL);
  ::sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
  ::alarm(static_cast<unsigned>(3 * budget.count() / 1000 + 2));
  close_all_but({result_fd, end_fd});  // a control socket held open here would hide its owner's death
  std::thread([end_fd] {
    std::uint64_t count = 0;
    while (::read(end_fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    ::_exit(1);
  }).detach();
  bool written = false;
  // Runs on a new thread: the calling thread may have an OpenMP team whose other threads do not exist after the fork.
  std::thread([&] {
    std::string text;
    try {
      const auto choices = measure_here(graph, backend, budget, accuracy);
      text = choices.ok() ? "ok\n" + choices->to_text() : choices.status().message();
    } catch (const std::exception& error) {
      text = error.what();
    }
    written = ::write(result_fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }).join();
  ::_exit(written ? 0 : 1);
}

/// Reads everything until the writer closes its end. Errors: kDeadlineExceeded after three times the budget.
Result<std::string> read_until_end(int fd, std::chrono::milliseconds budget, const TuningProgress& progress) {
  const std::uint64_t start_ns = monotonic_now_ns();
  std::string text;
  while (true) {
    SHOAL_RETURN_IF_ERROR(wait_for_measurement(fd, start_ns, budget, 3 * budget, progress));
    char bytes[4096];
    const ssize_t size = ::read(fd, bytes, sizeof bytes);
    if (size < 0 && errno != EINTR) return status_from_errno("read", "measured algorithms", errno);
    if (size == 0) return text;
    if (size > 0) text.append(bytes, static_cast<std::size_t>(size));
  }
}

/// A forked child: ended and reaped when its parent leaves it behind, by an exception too. Not by kill(), which the sandbox
/// forbids.
///   end  an eventfd: the child ends when it becomes readable
class Child {
 public:
  Child(pid_t pid, UniqueFd end) : pid_(pid), end_(std::move(end)) {}
  ~Child() {
    if (pid_ > 0) ::eventfd_write(end_.get(), 1);
    (void)wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Its status, once it has ended.
  int wait() {
    int status = 0;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
  UniqueFd end_;
};

std::string how_ended(int status) {
  if (!WIFSIGNALED(status)) return format("its process exited with {}", WEXITSTATUS(status));
  return format("its process ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

}  // namespace

double output_error(const Tensor& got, const Tensor& want) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (got.shape() != want.shape()) return kInfinite;
  const TensorView a_view = got.view(), b_view = want.view();
  const auto count = static_cast<std::size_t>(want.shape().element_count());
  double error = 0;
  const bool is_float = dispatch(Floats(), want.dtype(), [&]<typename T>() {
    double difference = 0, largest = 1;
    for (std::size_t i = 0; i < count; ++i) {
      const double a = elements<T>(a_view)[i], b = elements<T>(b_view)[i];
      if (std::isfinite(a) && std::isfinite(b)) {
        difference = std::max(difference, std::abs(a - b));
        largest = std::max(largest, std::abs(b));
      } else if (a != b && !(std::isnan(a) && std::isnan(b))) {
        difference = kInfinite;
      }
    }
    error = difference / largest;
  });
  if (is_float || count == 0) return error;
  const std::size_t size = b_view.bytes().size() / count;
  std::size_t others = 0;
  for (std::size_t i = 0; i < count; ++i) others += std::memcmp(a_view.data + i * size, b_view.data + i * size, size) != 0;
  return static_cast<double>(others) / static_cast<double>(count);
}

Status wait_for_measurement(int fd, std::uint64_t start_ns, std::chrono::milliseconds budget, std::chrono::milliseconds limit,
                            const TuningProgress& progress) {
  constexpr std::chrono::milliseconds kSayEvery(100);
  while (true) {
    const std::chrono::nanoseconds spent(monotonic_now_ns() - start_ns);
    if (spent >= limit) return deadline_exceeded("measuring algorithms took too long");
    if (progress) progress(std::chrono::duration_cast<std::chrono::milliseconds>(spent), budget);
    pollfd waiting{fd, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - spent);
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min(left, kSayEvery).count()) + 1);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return status_from_errno("wait for", "measured algorithms", errno);
  }
}

Result<Choices> measure_choices(const Graph& graph, const Backend& backend, std::chrono::milliseconds budget,
                                const TuningProgress& progress, const AccuracyLimit& accuracy) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return status_from_errno("make a pipe for", "measured algorithms", errno);
  UniqueFd reader(ends[0]), writer(ends[1]);
  UniqueFd end(::eventfd(0, EFD_CLOEXEC));
  if (!end) return status_from_errno("make an eventfd for", "measured algorithms", errno);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return status_from_errno("fork", "a process that measures algorithms", errno);
  if (pid == 0) become_measurer(graph, backend, budget, accuracy, parent, writer.get(), end.get());
  Child child(pid, std::move(end));
  writer.reset();
  SHOAL_ASSIGN_OR_RETURN(const std::string text, read_until_end(reader.get(), budget, progress));
  constexpr std::string_view kOk = "ok\n";
  if (const int status = child.wait(); status != 0) return internal_error("measuring algorithms failed: {}", how_ended(status));
  if (!text.starts_with(kOk)) return internal_error("measuring algorithms failed: {}", text);
  return Choices::parse(std::string_view(text).substr(kOk.size()));
}

}  // namespace shoal::worker
