// A Step that clamps: relu and clip with NaN kept, as MXNet's operators do. oneDNN's turn NaN into a bound.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "worker/exec/plan.hpp"

namespace shoal::worker::cpu {

/// dst[i] = src[i] < low ? low : src[i] > high ? high : src[i] for `count` floats. dst may be src.
std::unique_ptr<Step> make_clamp_step(std::string name, BufferId src, BufferId dst, std::size_t count, float low, float high);

}  // namespace shoal::worker::cpu
