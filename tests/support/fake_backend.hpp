// The device "fake": a second backend, with memory of its own, a queue of its own, and faults on demand. A program that has it
// calls fake_settings().
//
// Its memory is addressed through a window of addresses without access, so the host faults when it touches what a pointer of the
// device names; only the thread of a queue knows where the bytes are. It computes with the oracle kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "worker/graph/graph.hpp"

namespace shoal::test {

struct FakeSettings {
  enum class Refuse { kNothing, kPrepare, kOpen, kActivate, kRun };
  Refuse refuse = Refuse::kNothing;
  std::uint64_t latency_us = 0;      ///< before each command of a queue
  std::uint64_t abort_after = 0;     ///< commands of a process; the next one aborts it. 0: never
  std::int64_t most_channels = 128;  ///< it refuses nodes whose outputs have more: dimension 1
  /// Replaces the claims, if not empty: any operator.
  std::function<bool(const worker::Node&)> takes = {};
};
/// "refuse=run,latency_us=2000,abort_after=50,most_channels=16": all keys but `takes`. Aborts on others.
FakeSettings parse_fake_settings(std::string_view text);
/// Of this process; changed only while no queue is open. At first those of $SHOAL_FAKE, if it is set.
FakeSettings& fake_settings();

/// What this process did so far.
struct FakeCounters {
  std::atomic<int> prepared{0}, prepared_nodes{0}, asked{0}, opened{0}, activated{0}, parts_run{0}, copies_in{0}, copies_out{0},
      dropped{0};
};
FakeCounters& fake_counters();

}  // namespace shoal::test
