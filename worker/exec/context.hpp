// Context::State: the arena of one thread, and the bindings of the Programs that ran in it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "shm/base/clock.hpp"
#include "worker/exec/device_queues.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Anonymous memory, mapped lazily: only pages that a run touches are used. Move-only.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();
  /// Makes it at least that large; its content may be lost. Throws std::bad_alloc; the arena is empty then.
  void reserve(std::size_t bytes);
  /// Gives memory beyond `bytes` back to the system; the addresses stay valid.
  void trim(std::size_t bytes);
  void release();  ///< the arena is empty then
  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::size_t used_bytes_ = 0;  ///< no page beyond these is in use
};

/// One Program's steps with this Context's addresses.
struct Binding {
  std::uint64_t program_id = 0;
  std::weak_ptr<const void> program_alive;  ///< expired: the Program is gone, and this Binding must go, too
  std::size_t arena_bytes = 0;              ///< arena that the Program needs
  std::vector<DeviceQueue*> queues;         ///< of the Program's devices
  std::vector<std::byte*> device_arenas;    ///< their arenas that the addresses point into
  Status refusal;                           ///< why a device cannot run the Program; the Binding has no steps then
  std::uint64_t asked_again_ns = 0;         ///< when the device is asked again
  std::uint64_t pause_ns = 0;               ///< between the last two times
  std::byte* arena = nullptr;               ///< the arena that the addresses point into
  std::vector<std::byte*> addresses;        ///< one per buffer
  std::vector<std::unique_ptr<BoundStep>> steps;
  std::vector<std::byte*> inputs, outputs;  ///< as bound now
  std::vector<AlignedBytes> input_staging,
      output_staging;                ///< made when a run first brings an unaligned or smaller tensor
  std::vector<std::byte*> operands;  ///< room for one step's operands
};

/// Threads: thread-bound
struct Context::State {
  static constexpr std::size_t kMaxBindings = 64;  ///< one more replaces the least recently used
  Arena arena;
  std::uint64_t (*step_clock)() = monotonic_now_ns;  ///< the clock of Context::step_times
  DeviceQueues devices;                              ///< outlive the bindings, whose steps use them
  std::list<Binding> bindings;                       ///< most recently run first

  /// Drops the bindings of Programs that are gone, and the part of the arena that only they needed.
  void forget_expired();
  /// Gives all memory back. Allocates nothing.
  void forget_all();
};

}  // namespace shoal::worker
