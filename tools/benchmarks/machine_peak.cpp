#include "tools/benchmarks/machine_peak.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "shm/base/clock.hpp"

// The compiler makes a copy of the function per instruction set; the loader chooses one.
#define SHOAL_WIDEST_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=haswell", "default")))

namespace shoal::bench {
namespace {

// Bursts are shorter than a time slice, so that some run undisturbed on a busy machine.
constexpr std::size_t kBursts = 128;
constexpr std::size_t kLanes = 16;         // floats in the widest vector
constexpr std::size_t kAccumulators = 12;  // enough to hide the latency of a fused multiply-add
constexpr std::size_t kFmaRounds = 200'000;
constexpr std::size_t kReadBytes = std::size_t{2} << 20;  // each burst reads other memory; together they exceed every cache

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

SHOAL_WIDEST_VECTORS float multiply_and_add(std::size_t rounds) {
  std::array<Vector, kAccumulators> sums{};
  Vector factor = Vector{} + 0.999F, addend = Vector{} + 0.001F;
  asm volatile("" : "+m"(factor), "+m"(addend));  // the compiler must not know the values
  for (std::size_t i = 0; i < rounds; ++i) {
    for (Vector& sum : sums) sum = sum * factor + addend;
  }
  float total = 0;
  for (const Vector& sum : sums) total += sum[0];
  return total;
}

SHOAL_WIDEST_VECTORS float add_up(const float* data, std::size_t count) {
  std::array<Vector, 8> sums{};
  for (std::size_t i = 0; i + 8 * kLanes <= count; i += 8 * kLanes) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += *reinterpret_cast<const Vector*>(data + i + lane * kLanes);
  }
  float total = 0;
  for (const Vector& sum : sums) total += sum[0];
  return total;
}

/// The seconds that `work(thread, burst)` takes while all threads do it; the best of all bursts.
template <typename Work>
double best_seconds(std::size_t threads, const Work& work) {
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::array<std::uint64_t, kBursts>> times(threads);
  const auto run = [&](std::size_t thread) {
    for (std::size_t burst = 0; burst < kBursts; ++burst) {
      together.arrive_and_wait();
      const std::uint64_t start_ns = monotonic_now_ns();
      volatile float kept = work(thread, burst);
      (void)kept;
      times[thread][burst] = monotonic_now_ns() - start_ns;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    run(0);
  }
  std::uint64_t best = UINT64_MAX;
  for (std::size_t burst = 0; burst < kBursts; ++burst) {
    std::uint64_t slowest = 0;
    for (const auto& thread : times) slowest = std::max(slowest, thread[burst]);
    best = std::min(best, slowest);
  }
  return static_cast<double>(best) / 1e9;
}

}  // namespace

MachinePeak measure_machine_peak(int thread_count) {
  const auto threads = static_cast<std::size_t>(thread_count);
  MachinePeak peak;
  const double flops = static_cast<double>(2 * kLanes * kAccumulators * kFmaRounds * threads);
  peak.flops_per_s = flops / best_seconds(threads, [](std::size_t, std::size_t) { return multiply_and_add(kFmaRounds); });
  const std::size_t floats = kReadBytes / sizeof(float);
  const std::vector<Vector> memory(threads * kBursts * floats / kLanes, Vector{} + 1.0F);
  const auto* data = reinterpret_cast<const float*>(memory.data());
  const auto read = [&](std::size_t thread, std::size_t burst) {
    return add_up(data + (thread * kBursts + burst) * floats, floats);
  };
  peak.bytes_per_s = static_cast<double>(kReadBytes * threads) / best_seconds(threads, read);
  return peak;
}

}  // namespace shoal::bench
