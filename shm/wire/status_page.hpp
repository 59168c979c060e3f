// The status page of a worker: one line per lane, one of its programs, and its flight recorder; written by the worker alone,
// read by supervisor and tools.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shoal::wire {

// Why a worker ended by itself.
enum class CrashCause : std::uint32_t {
  kSignal = 0,       // a fault, or abort()
  kOutOfMemory = 1,  // an allocation failed beside the worker's memory limit, and nobody could answer for it
  kException = 2,    // one that nobody caught
};

// What a lane's signal handler leaves behind. `valid` is stored after all numbers (release; pairs with the reader's acquire after
// the pidfd reported) and before the texts: what they are made of may be spoiled, and the process end right there.
struct CrashRecord {
  std::atomic<std::uint64_t> valid;       // 1 = complete
  std::atomic<std::uint64_t> request_id;  // running on the faulting lane; 0 = none
  std::atomic<std::uint64_t> address;     // si_addr
  std::atomic<std::uint32_t> signal;
  std::atomic<std::int32_t> code;        // si_code
  std::atomic<std::int32_t> sender_pid;  // si_pid when another process sent it, else 0
  std::atomic<std::uint32_t> on_lane;    // 1: the thread was this lane; 0: another thread of the worker, written to line 0
  std::atomic<std::uint32_t> cause;      // CrashCause
  std::uint32_t reserved;
  char operator_name[128];  // "Convolution 'conv1'", NUL-terminated
  char stack[1872];         // the exception that nobody caught, if any; then a line per frame, innermost first:
                            // "shoal-worker+0x12f0" (addr2line -e finds it), or an address without a module; NUL-terminated
};
static_assert(sizeof(CrashRecord) == 2048 && std::is_standard_layout_v<CrashRecord>);

// What a line names while its lane answers a probe; no request_id of the ledger.
inline constexpr std::uint64_t kProbeRequest = ~std::uint64_t{0};

// The name of the thread that compiles programs, for whom reads /proc; at most 15 bytes.
inline constexpr char kCompilerThread[] = "shoal-compiler";

// 8-byte atomics, relaxed: racy by design. The supervisor believes only request ids that it leased to this lane.
struct alignas(64) LaneLine {
  std::atomic<std::uint64_t> step_counter;     // grows with every step and every compiled program
  std::atomic<std::uint64_t> running_request;  // request_id, the first one's of a batch; 0 = idle
  std::atomic<std::uint64_t> running_attempt;  // of that request
  std::atomic<std::uint64_t> running_count;    // requests that run together, from that one on in the order they were sent
  std::atomic<std::uint64_t> running_hash;     // of its inputs, where it was asked for (kHashInputs); 0 = not known
  std::atomic<std::uint64_t> completed;        // requests answered
  std::atomic<std::uint64_t> arena_bytes;
  std::atomic<std::uint64_t> parked;             // requests that wait for their program to be compiled
  std::atomic<std::uint64_t> thread_id;          // gettid() of the lane
  std::atomic<std::uint64_t> compiling_request;  // parked here, and its program is being compiled; 0 = none
  std::atomic<std::uint64_t> reserved[6];
  CrashRecord crash;
};
static_assert(sizeof(LaneLine) == 2176 && std::is_standard_layout_v<LaneLine>);

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

// The flight recorder: what a worker did last, readable after its death.
enum class FlightKind : std::uint16_t {
  kNone = 0,
  kReceived = 1,      // a request came to the lane
  kBegun = 2,         // its run began; value = requests that run together
  kEnded = 3,         // value = StatusCode
  kParked = 4,        // it waits for its program
  kCompileBegun = 5,  // value = number of the program
  kCompileEnded = 6,  // value = number of the program
  kAttached = 7,      // value = client id
  kDetached = 8,      // value = client id
  kCancelled = 9,     // its run was told to end
  kProbed = 10,       // the stored input was answered; value = StatusCode
  kDraining = 11,
};

inline constexpr std::uint16_t kNoLane = 0xffff;  // the control thread, or the one that compiles

// One event. Who writes it takes the place by storing kFlightBeingWritten in `sequence`, and stores the event's number there last
// (release). A writer who finds the place taken, or a later event in it, leaves his out: he was overtaken by a whole turn.
struct FlightEvent {
  std::atomic<std::uint64_t>
      sequence;                        // 1 for the first ever; 0 = never written; event n stands in place (n - 1) % kFlightEvents
  std::atomic<std::uint64_t> time_ns;  // CLOCK_MONOTONIC
  std::atomic<std::uint64_t> request;  // request_id; 0 = none
  std::atomic<std::uint32_t> what;     // FlightKind | lane << 16
  std::atomic<std::uint32_t> value;    // by kind
};
static_assert(sizeof(FlightEvent) == 32 && std::is_standard_layout_v<FlightEvent>);

inline constexpr std::size_t kFlightEvents = 4096;
inline constexpr std::uint64_t kFlightBeingWritten = ~std::uint64_t{0};

// Written by every thread of the worker: each takes a number, then fills that place.
struct alignas(64) FlightRing {
  std::atomic<std::uint64_t> last_sequence;
  std::uint64_t reserved[7];
  FlightEvent events[kFlightEvents];
};
static_assert(std::is_standard_layout_v<FlightRing>);

inline constexpr std::size_t kMaxLanes = 64;
/// The lanes' lines come first, then the ProgramLine, then the FlightRing.
constexpr std::size_t status_page_bytes(std::size_t lanes) {
  return lanes * sizeof(LaneLine) + sizeof(ProgramLine) + sizeof(FlightRing);
}

}  // namespace shoal::wire
