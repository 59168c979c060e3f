// Steps that every device uses: a node run by its oracle kernel, and a copy.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "worker/exec/plan.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A tensor of a step: its type, shape (the largest, where it depends on data) and buffer. kNoBuffer: a hidden output that nobody
/// reads.
struct PlacedTensor {
  DType dtype = DType::kInvalid;
  Shape shape;
  BufferId buffer = kNoBuffer;
  std::string_view name = {};  ///< for messages; valid while the step is made
};

/// Runs the node's oracle kernel on plain layout.
std::unique_ptr<Step> make_oracle_step(const Node& node, const std::vector<PlacedTensor>& src,
                                       const std::vector<PlacedTensor>& dst);
/// Copies `bytes` bytes from src to dst.
std::unique_ptr<Step> make_copy_step(std::string name, BufferId src, BufferId dst, std::size_t bytes);

}  // namespace shoal::worker
