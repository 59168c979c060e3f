// A Step that runs one of Shoal's loops. For these, oneDNN has no implementation, or treats NaN and infinities differently.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/exec/plan.hpp"

namespace shoal::worker::cpu {

/// Called with the addresses of the Step's operands. Runs on all threads of the lane.
///   Threads  thread-safe
using Loop = std::function<void(std::span<std::byte* const> operands)>;

std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop);

/// dst[i] = src[i] < low ? low : src[i] > high ? high : src[i] for `count` floats, or bf16 numbers; NaN stays, as in MXNet's relu
/// and clip. Operands: src, dst, which may be the same.
Loop clamp_loop(std::size_t count, float low, float high, bool is_bf16);
/// dst[i] = src[i] / divisor. Operands as above.
Loop divide_loop(std::size_t count, float divisor, bool is_bf16);

}  // namespace shoal::worker::cpu
