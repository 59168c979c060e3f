#include "tools/benchmarks/completion_bench.hpp"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "shoal/completion_queue.hpp"
#include "shoal/pool.hpp"
#include "tools/benchmarks/client.hpp"
#include "tools/shoal/process_memory.hpp"

namespace shoal::bench {
namespace {

constexpr int kWaitMs = 60'000;

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double rss_bytes() {
  const auto memory = tool::read_process_memory(::getpid());
  return memory ? static_cast<double>(memory->rss_bytes) : 0;
}

}  // namespace

Status bench_completions(const CompletionOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const Pool pool, Pool::connect());
  SHOAL_ASSIGN_OR_RETURN(const Model model, pool.client().model(options.model));
  CompletionQueue queue(pool);
  SHOAL_ASSIGN_OR_RETURN(const int readable, queue.fd());
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, readable, &event) != 0) return status_from_errno("watch", "a descriptor", errno);
  const auto info = model.info();
  std::vector<Request> requests;
  for (std::size_t i = 0; i < options.in_flight; ++i) {
    requests.emplace_back(model);
    for (const TensorSpec& spec : info->inputs) {
      SHOAL_ASSIGN_OR_RETURN(Tensor input, zeros(pool.client(), spec));
      SHOAL_RETURN_IF_ERROR(requests.back().set_input(spec.name, std::move(input)));
    }
  }
  const auto begin = SteadyClock::now();
  const double cpu_begin = cpu_seconds();
  std::uint64_t submitted = 0, taken = 0, warm = 0;
  double rss_begin = 0;
  std::vector<double> compute_ms;
  for (Request& request : requests) SHOAL_RETURN_IF_ERROR(queue.submit(request, submitted++));
  std::array<Completion, 256> completions;
  while (taken < submitted) {
    if (::epoll_wait(epoll.get(), &event, 1, kWaitMs) != 1)
      return deadline_exceeded("{} of {} requests came back within {} s", taken, submitted, kWaitMs / 1000);
    const std::size_t count = queue.poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const Outcome& outcome = completions[i].request.outcome();
      if (!outcome.outputs.ok()) return outcome.outputs.status();
      if (compute_ms.size() < 10'000) compute_ms.push_back(ms(outcome.compute_time));
      if (submitted < options.requests) SHOAL_RETURN_IF_ERROR(queue.submit(completions[i].request, submitted++));
    }
    taken += count;
    if (warm == 0 && taken >= options.requests / 10) {
      warm = taken;
      rss_begin = rss_bytes();
    }
  }
  const double seconds = ms(SteadyClock::now() - begin) / 1e3;
  const PoolUsage usage = pool.usage();
  std::cout << nlohmann::ordered_json{{"in_flight", options.in_flight},
                                      {"requests", taken},
                                      {"requests_per_s", static_cast<double>(taken) / seconds},
                                      {"compute_ms", percentile(compute_ms, 0.5)},
                                      {"client_cores", (cpu_seconds() - cpu_begin) / seconds},
                                      {"threads", thread_count()},
                                      {"copied_bytes", usage.inputs.copied_bytes + usage.outputs.copied_bytes},
                                      {"rss_bytes_per_request", (rss_bytes() - rss_begin) / static_cast<double>(taken - warm)}}
                   .dump(2)
            << "\n";
  return {};
}

}  // namespace shoal::bench
