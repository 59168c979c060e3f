// BatchNorm folded into the weights and bias of the Convolution or FullyConnected before it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker::cpu {

/// The keys in the WeightStore of weights and bias of `node` with `norm` (may be null) folded in.
struct FoldedNames {
  std::string weights, bias;
  bool has_bias = false;  ///< always true with a norm
};
FoldedNames folded_names(const Graph& graph, const Node& node, const Node* norm);

/// w' = w * s, b' = (b - mean) * s + beta, s = gamma / sqrt(var + eps) per filter; unchanged if norm is null. Keeps
/// alive the constants that it needs.
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

/// A copy of the constant's elements, which may be at any address.
std::vector<float> read_floats(const Constant& constant);

}  // namespace shoal::worker::cpu
