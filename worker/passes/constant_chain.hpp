// ConstantChain: where the data of a weight comes from. A value that can be compared, printed and evaluated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A constant and its name, which is the same for equal loads and differs from that of any other constant of the model.
struct NamedConstant {
  std::string name;  ///< "v12", see constant_key()
  Constant constant;
};
NamedConstant named_constant(const Graph& graph, ValueId id);

/// The parameters of a BatchNorm: y = (x - mean) * s + beta, s = gamma / sqrt(variance + eps).
struct NormConstants {
  std::optional<NamedConstant> gamma;  ///< none: counts as 1
  NamedConstant beta, mean, variance;
  double eps = 0;
};

/// The axes of a Deconvolution's weights: (groups, channels, filters, taps), channels and filters of one group.
struct FilterAxes {
  std::int64_t groups = 1, channels = 1, filters = 1;
};

/// A step from one float32 array to another. Computed in double, rounded once.
struct Transform {
  enum class Kind : unsigned char {
    kFoldWeights,   ///< w[f, ...] * s[f]
    kFoldBias,      ///< (b[f] - mean[f]) * s[f] + beta[f]
    kFiltersFirst,  ///< w[g, c, f, ...] becomes w[g, f, c, ...]: then they are a Convolution's
  };
  Kind kind = Kind::kFoldWeights;
  NormConstants norm = {};
  FilterAxes axes = {};
};

/// A stored constant, or `fill_count` times the number `fill`, and the transforms that are applied to it, in order. The layout
/// and the type in which the result is stored are its *form* (WeightForm, worker/exec): each backend asks for its own.
struct ConstantChain {
  std::optional<NamedConstant> source;
  float fill = 0;
  std::int64_t fill_count = 0;
  std::vector<Transform> transforms;

  /// "v12 > fold weights(v13 v14 v15 v16 0.001)": equal for chains with equal results, so each is stored once.
  std::string key() const;
};

/// The chain of one constant without transforms.
ConstantChain chain_of(const Graph& graph, ValueId constant);
/// The chain of a part of a constant: the elements from number `first` on, as a tensor of that shape.
ConstantChain part_of(const Graph& graph, ValueId constant, std::int64_t first, const Shape& shape);
/// The weights of a Convolution, Deconvolution or FullyConnected with the BatchNorm behind it folded in; `norm` may be null.
/// Those of a Deconvolution have their filters first, as a Convolution's.
ConstantChain folded_weights(const Graph& graph, const Node& node, const Node* norm);
/// Likewise its bias. None if there is neither a bias nor a norm.
std::optional<ConstantChain> folded_bias(const Graph& graph, const Node& node, const Node* norm);

/// The float32 elements that the chain gives. They lie in `scratch`, or in the source itself if there is nothing to compute.
const float* evaluate(const ConstantChain& chain, std::vector<float>& scratch);

}  // namespace shoal::worker
