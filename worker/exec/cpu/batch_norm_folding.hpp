// BatchNorm folded into the weights and bias of the Convolution or FullyConnected before it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker::cpu {

/// How WeightStore names weights and bias of `node` with `norm` (null: none) folded in.
struct FoldedNames {
  std::string weights, bias;
  bool has_bias = false;  ///< with a norm there always is one
};
FoldedNames folded_names(const Graph& graph, const Node& node, const Node* norm);

/// w' = w * s, b' = (b - mean) * s + beta, s = gamma / sqrt(var + eps) per filter; as they are when norm is null. Keeps what it
/// needs of the constants alive.
class BatchNormFolding {
 public:
  using Source = std::function<const float*(std::vector<float>& scratch)>;
  BatchNormFolding(const Graph& graph, const Node& node, const Node* norm);
  Source weights() const;
  Source bias() const;

 private:
  struct Parameters;
  std::shared_ptr<const Parameters> parameters_;
};

/// The constant's elements, copied (they may lie at any address).
std::vector<float> read_floats(const Constant& constant);

}  // namespace shoal::worker::cpu
