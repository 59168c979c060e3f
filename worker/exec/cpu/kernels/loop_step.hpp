// A Step that runs one of Shoal's loops.
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
struct Loop : std::function<void(std::span<std::byte* const> operands)> {
  using function::function;
  std::size_t kept_bytes = 0;  ///< memory that it keeps, beside a few words
};

/// Asked before the loop runs; null: nothing is asked. An error ends the run.
using LoopCheck = std::function<Status(std::span<std::byte* const> operands)>;

///   flops  as Step::flops()
std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop,
                                     double flops = 0, LoopCheck check = nullptr);

}  // namespace shoal::worker::cpu
