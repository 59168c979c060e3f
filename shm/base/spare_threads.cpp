#include "shm/base/spare_threads.hpp"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
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
  std::atomic<bool> may_end{false};
  std::list<Probe> probes;
  for (std::size_t i = 0; i < count; ++i) probes.emplace_back(may_end);
  pthread_attr_t attributes;
  if (const int error = ::pthread_attr_init(&attributes); error != 0) return status_from_errno("start", "a thread", error);
  // The C library keeps the stacks of threads that ended. Small ones take no noticeable part of `memory_mb`.
  ::pthread_attr_setstacksize(&attributes, std::max<std::size_t>(static_cast<std::size_t>(PTHREAD_STACK_MIN), 64 * 1024));
  auto failed = probes.begin();
  int error = 0;
  {
    const BlockedSignals no_signal_handlers_there;
    for (; failed != probes.end(); ++failed) {
      error = ::pthread_create(&failed->thread, &attributes, run_probe, &*failed);
      // A program with many variables of its threads needs larger stacks than these.
      if (error == EINVAL) error = ::pthread_create(&failed->thread, nullptr, run_probe, &*failed);
      if (error != 0) break;
    }
  }
  ::pthread_attr_destroy(&attributes);
  probes.erase(failed, probes.end());
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
