// The status page of a worker: one line per lane and one of its programs, written by the worker alone, read by supervisor and
// tools.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shoal::wire {

// What a lane's signal handler leaves behind. `valid` is stored last (release; pairs with the reader's acquire after the pidfd
// reported).
struct CrashRecord {
  std::atomic<std::uint64_t> valid;       // 1 = complete
  std::atomic<std::uint64_t> request_id;  // running on the faulting lane; 0 = none
  std::atomic<std::uint64_t> address;     // si_addr
  std::atomic<std::uint32_t> signal;
  std::atomic<std::int32_t> code;        // si_code
  std::atomic<std::int32_t> sender_pid;  // si_pid when another process sent it, else 0
  std::atomic<std::uint32_t> on_lane;    // 1: the thread was this lane; 0: another thread of the worker, written to line 0
  char operator_name[128];               // "Convolution 'conv1'", NUL-terminated
};

// 8-byte atomics, relaxed: racy by design. The supervisor believes only request ids that it leased to this lane.
struct alignas(64) LaneLine {
  std::atomic<std::uint64_t> step_counter;     // grows with every step and every compiled program
  std::atomic<std::uint64_t> running_request;  // request_id; 0 = idle
  std::atomic<std::uint64_t> running_attempt;
  std::atomic<std::uint64_t> completed;  // requests answered
  std::atomic<std::uint64_t> arena_bytes;
  std::atomic<std::uint64_t> parked;     // requests that wait for their program to be compiled
  std::atomic<std::uint64_t> thread_id;  // gettid() of the lane
  std::atomic<std::uint64_t> reserved;
  CrashRecord crash;
};
static_assert(sizeof(LaneLine) == 256 && std::is_standard_layout_v<LaneLine>);

// Programs of the worker, all lanes together; relaxed like the lanes' lines.
struct alignas(64) ProgramLine {
  std::atomic<std::uint64_t> pinned;      // compiled when the model was loaded
  std::atomic<std::uint64_t> programs;    // compiled on demand, in the cache now
  std::atomic<std::uint64_t> bytes;       // of those
  std::atomic<std::uint64_t> hits;        // requests whose program was there
  std::atomic<std::uint64_t> misses;      // requests that waited for a compilation
  std::atomic<std::uint64_t> compiled;    // on demand, ever
  std::atomic<std::uint64_t> evicted;     // of those, thrown out again
  std::atomic<std::uint64_t> failed;      // compilations that gave no program
  std::atomic<std::uint64_t> compiling;   // being compiled or waiting for it
  std::atomic<std::uint64_t> compile_ns;  // spent compiling, ever
  std::atomic<std::uint64_t> reserved[6];
};
static_assert(sizeof(ProgramLine) == 128 && std::is_standard_layout_v<ProgramLine>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::size_t kMaxLanes = 64;
/// The lanes' lines come first, then the ProgramLine.
constexpr std::size_t status_page_bytes(std::size_t lanes) { return lanes * sizeof(LaneLine) + sizeof(ProgramLine); }

}  // namespace shoal::wire
