#include "shm/base/fork_guard.hpp"

#include <pthread.h>

#include <atomic>

namespace shoal {
namespace {

std::atomic<std::uint64_t> generation{0};

void count_fork() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

ForkGuard::ForkGuard() {
  [[maybe_unused]] static const int once = ::pthread_atfork(nullptr, nullptr, count_fork);
  generation_ = generation.load(std::memory_order_relaxed);
}

bool ForkGuard::in_child() const { return generation_ != generation.load(std::memory_order_relaxed); }

}  // namespace shoal
