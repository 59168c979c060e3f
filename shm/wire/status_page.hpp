// The status page of a worker: a header, one line per lane, one line about its programs, and its flight recorder. The supervisor
// makes it; then only the worker writes it, and the supervisor reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

inline constexpr std::uint32_t kPageMagic = 0x50435348;  // "HSCP"
inline constexpr std::uint16_t kPageVersion = 1;         // of the layout of all that follows

struct alignas(64) PageHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t lanes;
  std::uint64_t reserved[7];
};
static_assert(sizeof(PageHeader) == 64 && std::is_trivially_copyable_v<PageHeader>);

// Why a worker ended itself.
enum class CrashCause : std::uint32_t {
  kSignal = 0,       // a fault, or abort()
  kOutOfMemory = 1,  // an allocation failed, and the worker could not go on
  kException = 2,    // an exception that nobody caught
};

/// The sender of a signal whom this pid namespace does not show, or who gave another name.
inline constexpr std::int32_t kUnknownSender = -1;

// Written by the signal handler of a lane. `valid` is stored after all numbers (release; pairs with the reader's acquire after
// the pidfd reported) and before the texts. The texts are made from memory that may be damaged, so the process may end while it
// writes them.
struct CrashRecord {
  std::atomic<std::uint64_t> valid;       // 1 = complete
  std::atomic<std::uint64_t> request_id;  // running on the faulting lane; 0 = none
  std::atomic<std::uint64_t> address;     // si_addr
  std::atomic<std::uint32_t> signal;
  std::atomic<std::int32_t> code;        // si_code
  std::atomic<std::int32_t> sender_pid;  // si_pid when another process sent it (or kUnknownSender), else 0
  std::atomic<std::uint32_t> on_lane;    // 1: the thread was this lane; 0: another thread of the worker, written to line 0
  std::atomic<std::uint32_t> cause;      // CrashCause
  std::uint32_t reserved;
  char operator_name[128];  // "Convolution 'conv1'", NUL-terminated
  char stack[1872];         // the uncaught exception, if any; then a line per frame, innermost first: "shoal-worker+0x12f0"
                            // (for addr2line -e), or an address without a module; NUL-terminated
};
static_assert(sizeof(CrashRecord) == 2048 && std::is_standard_layout_v<CrashRecord>);

// running_request of a lane that answers a probe. The ledger never uses this id.
inline constexpr std::uint64_t kProbeRequest = ~std::uint64_t{0};

// request_id of a crash record that blames no request: a program was compiled that no single request ordered. 0 means that the
// lane was receiving.
inline constexpr std::uint64_t kBlamesNoRequest = ~std::uint64_t{1};

// The name of the thread that compiles programs, as /proc shows it. At most 15 bytes.
inline constexpr char kCompilerThread[] = "shoal-compiler";
// The name of the thread that unmaps what clients had. It works for no lane, but while it unmaps, the arenas of a new client may
// have to wait.
inline constexpr char kUnmapperThread[] = "shoal-unmapper";

// 8-byte atomics, relaxed: racy by design. The supervisor believes only request ids that it leased to this lane.
struct alignas(64) LaneLine {
  std::atomic<std::uint64_t> step_counter;     // grows with every step and every compiled program
  std::atomic<std::uint64_t> running_request;  // request_id, of a batch its first; 0 = idle
  std::atomic<std::uint64_t> running_attempt;  // attempt of that request
  std::atomic<std::uint64_t> running_count;    // number of requests that run together: that one and those sent right after it
  std::atomic<std::uint64_t> running_hash;     // hash of its inputs, if kHashInputs asked for it; 0 = not known
  std::atomic<std::uint64_t> completed;        // requests answered
  std::atomic<std::uint64_t> arena_bytes;
  std::atomic<std::uint64_t> parked;             // requests that wait for their program to be compiled
  std::atomic<std::uint64_t> thread_id;          // gettid() of the lane
  std::atomic<std::uint64_t> compiling_request;  // the parked request whose program is being compiled; 0 = none
  std::atomic<std::uint64_t> waits_for_device;   // 1: its run waits for an accelerator, and uses no processor time meanwhile
  std::atomic<std::uint64_t> fallbacks;          // runs that the CPU did because an accelerator could not
  std::atomic<std::uint64_t> reserved[4];
  CrashRecord crash;
};
static_assert(sizeof(LaneLine) == 2176 && std::is_standard_layout_v<LaneLine>);

// The programs of all lanes of the worker. Relaxed atomics, like the lanes' lines.
struct alignas(64) ProgramLine {
  std::atomic<std::uint64_t> pinned;      // compiled when the model was loaded
  std::atomic<std::uint64_t> programs;    // compiled on demand, in the cache now
  std::atomic<std::uint64_t> bytes;       // size of those
  std::atomic<std::uint64_t> hits;        // requests whose program was in the cache
  std::atomic<std::uint64_t> misses;      // requests that waited for a compilation
  std::atomic<std::uint64_t> compiled;    // compiled on demand since the start
  std::atomic<std::uint64_t> evicted;     // removed from the cache since the start
  std::atomic<std::uint64_t> failed;      // compilations that failed
  std::atomic<std::uint64_t> compiling;   // compiled now, or waiting for that
  std::atomic<std::uint64_t> compile_ns;  // time spent compiling since the start
  std::atomic<std::uint64_t> reserved[6];
};
static_assert(sizeof(ProgramLine) == 128 && std::is_standard_layout_v<ProgramLine>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The flight recorder: the last events of a worker. It can be read after the worker's death.
enum class FlightKind : std::uint16_t {
  kNone = 0,
  kReceived = 1,      // the lane received a request
  kBegun = 2,         // its run began; value = number of requests that run together
  kEnded = 3,         // its run ended; value = StatusCode
  kParked = 4,        // it waits for its program
  kCompileBegun = 5,  // value = number of the program
  kCompileEnded = 6,  // value = number of the program
  kAttached = 7,      // value = client id
  kDetached = 8,      // value = client id
  kCancelled = 9,     // its run was told to end
  kProbed = 10,       // the stored input was answered; value = StatusCode
};

inline constexpr std::uint16_t kNoLane = 0xffff;  // the control thread or the compiling thread

// One event. A writer first stores kFlightBeingWritten in `sequence`, and stores the event's number there last (release). A
// writer that finds the place being written, or a later event in it, drops its own event: it was slower than a whole turn of the
// ring.
struct FlightEvent {
  std::atomic<std::uint64_t> sequence;  // 1 = the first event, 0 = never written; event n is at place (n - 1) % kFlightEvents
  std::atomic<std::uint64_t> time_ns;   // CLOCK_MONOTONIC
  std::atomic<std::uint64_t> request;   // request_id; 0 = none
  std::atomic<std::uint32_t> what;      // FlightKind | lane << 16
  std::atomic<std::uint32_t> value;     // by kind
};
static_assert(sizeof(FlightEvent) == 32 && std::is_standard_layout_v<FlightEvent>);

inline constexpr std::size_t kFlightEvents = 4096;
inline constexpr std::uint64_t kFlightBeingWritten = ~std::uint64_t{0};

// All threads of the worker write it. Each takes a number, then fills that place.
struct alignas(64) FlightRing {
  std::atomic<std::uint64_t> last_sequence;
  std::uint64_t reserved[7];
  FlightEvent events[kFlightEvents];
};
static_assert(std::is_standard_layout_v<FlightRing>);

inline constexpr std::size_t kMaxLanes = 64;
/// The PageHeader comes first, then the lanes' lines, the ProgramLine, and the FlightRing.
constexpr std::size_t status_page_bytes(std::size_t lanes) {
  return sizeof(PageHeader) + lanes * sizeof(LaneLine) + sizeof(ProgramLine) + sizeof(FlightRing);
}

/// Makes the page of a worker that is to have so many lanes, 1 to kMaxLanes: a sealed memfd, all zeros behind its header.
///   Errors  those of create_memfd()
Result<UniqueFd> make_status_page(std::size_t lanes);
/// What a worker checks before it writes.
///   Errors  kInvalidArgument: too small, no status page, of another version (names both), or of another number of lanes
Status check_status_page(std::span<const std::byte> page, std::size_t lanes);

/// Where the parts of a page lie; const if its bytes are.
template <typename Byte>
struct StatusPage {
  template <typename T>
  using Part = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  std::span<Part<LaneLine>> lanes;  // empty, and the others null, if the page is too small
  Part<ProgramLine>* programs = nullptr;
  Part<FlightRing>* flight = nullptr;

  /// The number of lanes is what the reader knows, never what the page says: its worker may write anything there.
  StatusPage(std::span<Byte> page, std::size_t lane_count) {
    if (lane_count > kMaxLanes || page.size() < status_page_bytes(lane_count)) return;
    lanes = {reinterpret_cast<Part<LaneLine>*>(page.data() + sizeof(PageHeader)), lane_count};
    programs = reinterpret_cast<Part<ProgramLine>*>(lanes.data() + lane_count);
    flight = reinterpret_cast<Part<FlightRing>*>(programs + 1);
  }
};

}  // namespace shoal::wire
