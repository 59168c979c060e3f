#include "shm/base/spare_threads.hpp"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <thread>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/errors.hpp"

namespace shoal {
namespace {

struct Probe {
  explicit Probe(std::atomic<bool>& gate) : may_end(gate) {}
  std::atomic<bool>& may_end;
  pthread_t thread{};
  std::atomic<pid_t> id{0};
};

void* run_probe(void* argument) {
  Probe& probe = *static_cast<Probe*>(argument);
  probe.id.store(::gettid(), std::memory_order_relaxed);
  probe.may_end.wait(false);
  return nullptr;
}

// After a join the kernel may count the thread for a while. It is not counted any more when its id is free.
void wait_until_gone(pid_t thread, std::chrono::steady_clock::time_point limit) {
  while (::tgkill(::getpid(), thread, 0) == 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

Status check_spare_threads(std::size_t count) {
  pthread_attr_t attributes;
  if (const int error = ::pthread_attr_init(&attributes); error != 0) return status_from_errno("start", "a thread", error);
  // The C library keeps the stacks of threads that ended. Small ones take no noticeable part of `memory_mb`.
  ::pthread_attr_setstacksize(&attributes, std::max<std::size_t>(static_cast<std::size_t>(PTHREAD_STACK_MIN), 64 * 1024));
  std::atomic<bool> may_end{false};
  std::list<Probe> probes;
  int error = 0;
  {
    const BlockedSignals no_signal_handlers_there;
    while (error == 0 && probes.size() < count) {
      Probe& probe = probes.emplace_back(may_end);
      error = ::pthread_create(&probe.thread, &attributes, run_probe, &probe);
    }
  }
  ::pthread_attr_destroy(&attributes);
  if (error != 0) probes.pop_back();
  may_end.store(true);
  may_end.notify_all();
  for (const Probe& probe : probes) ::pthread_join(probe.thread, nullptr);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const Probe& probe : probes) wait_until_gone(probe.id.load(std::memory_order_relaxed), limit);
  if (error == 0) return {};
  return unavailable("start {} threads: after {}: {}: raise the limits of threads and memory (ulimit -u, pids.max, ulimit -v)",
                     count, probes.size(), std::strerror(error));
}

}  // namespace shoal
