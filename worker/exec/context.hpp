// Context::State: the arena of one thread, and its bindings of the Programs that ran in it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "shm/base/clock.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Anonymous memory mapped lazily: only what runs touch counts. Move-only.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();
  /// At least that large; what was in it may be lost. Throws std::bad_alloc, and is empty then.
  void reserve(std::size_t bytes);
  /// Gives memory beyond `bytes` back to the system; the addresses stay good.
  void trim(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::size_t used_bytes_ = 0;  ///< beyond it no page is held
};

/// One Program's steps with this Context's addresses.
struct Binding {
  std::uint64_t program_id = 0;
  std::weak_ptr<const void> program_alive;  ///< expired: the Program is gone, and so must this be
  std::size_t arena_bytes = 0;              ///< the Program's
  std::byte* arena = nullptr;               ///< what the addresses were made for
  std::vector<std::byte*> addresses;        ///< one per buffer
  std::vector<std::unique_ptr<BoundStep>> steps;
  std::vector<std::byte*> inputs, outputs;  ///< as bound now
  std::vector<AlignedBytes> input_staging,
      output_staging;                ///< made when a run first brings a tensor that is not aligned, or smaller
  std::vector<std::byte*> operands;  ///< room for one step's operands
};

/// Threads: thread-bound
struct Context::State {
  static constexpr std::size_t kMaxBindings = 64;  ///< beyond the least recently run is dropped
  Arena arena;
  std::uint64_t (*step_clock)() = monotonic_now_ns;  ///< what Context::step_times are measured by
  std::list<Binding> bindings;                       ///< most recently run first

  /// Drops the bindings of Programs that are gone, and what of the arena only they needed.
  void forget_expired();
};

}  // namespace shoal::worker
