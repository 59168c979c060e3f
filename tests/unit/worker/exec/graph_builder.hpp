// Builds small graphs in code, and runs them.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "worker/exec/model.hpp"
#include "worker/graph/graph.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/pooling.hpp"

namespace shoal::worker::testing {

/// Nodes are named after their operator and number: "Convolution3". Constants are noise that depends on their number only.
class GraphBuilder {
 public:
  GraphBuilder() = default;
  explicit GraphBuilder(Graph begun) : graph_(std::move(begun)) {}
  ValueId input(const std::string& name);
  ValueId constant(const Shape& shape, float center = 0.0F, float spread = 1.0F);
  /// The first output; the others are hidden.
  ValueId node(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}, int output_count = 1);
  /// A node with bodies, over what its operator reads itself and then the captures. Its outputs have the numbers from the first
  /// on.
  ValueId node_with_bodies(const std::string& op, std::vector<ValueId> inputs, std::vector<Graph> bodies,
                           Attributes attributes = {}, int output_count = 1);
  /// A scalar constant of int64.
  ValueId number(std::int64_t number);
  void output(ValueId value);
  const Graph& graph() const { return graph_; }

  ValueId conv(ValueId src, std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride = 1,
               std::int64_t group = 1, bool with_bias = false, int spatial_axes = 2);
  ValueId batch_norm(ValueId src, std::int64_t channels, bool fix_gamma = false);
  ValueId activation(ValueId src, ActivationKind kind = ActivationKind::kRelu);
  ValueId binary(BinaryKind kind, ValueId a, ValueId b, bool broadcast = false) {
    return node("Binary", {a, b}, BinaryAttributes{kind, broadcast});
  }
  ValueId scalar(BinaryKind kind, ValueId src, double number, bool reversed = false) {
    return node("Scalar", {src}, ScalarAttributes{kind, number, reversed});
  }
  ValueId add(ValueId a, ValueId b) { return binary(BinaryKind::kAdd, a, b); }
  ValueId concat(std::vector<ValueId> parts, std::int64_t axis = 1);
  ValueId pool(ValueId src, PoolingAttributes attributes);
  ValueId fully_connected(ValueId src, std::int64_t from, std::int64_t to);
  ValueId global_average(ValueId src);

 private:
  Graph graph_;
};

/// The bottleneck network's stem and, per stage, its first two blocks: every shape that ResNet-50 v1b's convolutions have.
/// `width` is the first stage's; 64 in the real one.
Graph make_bottleneck_network(std::int64_t width = 64);

inline constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Tensor noise(const Shape& shape, std::uint64_t seed = 1);
/// Runs the program on these inputs and gives its outputs.
std::vector<Tensor> run(const Program& program, Context& context, const std::vector<Tensor>& inputs);
/// Runs the program on noise for every input and gives its outputs.
std::vector<Tensor> run(const Program& program, Context& context, std::uint64_t seed = 1);
std::unique_ptr<Model> load(const Graph& graph, const std::vector<TensorSpec>& inputs, const std::string& device = "cpu",
                            int threads = 1, bool fuse = true);
TensorSpec spec(const std::string& name, const Shape& shape);
/// What these tensors are as inputs of the graph, in its order.
std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<Tensor>& inputs);
/// Loads the graph for these inputs and runs it on them.
std::vector<Tensor> answer(const Graph& graph, const std::vector<Tensor>& inputs, const std::string& device = "cpu",
                           int threads = 1, bool fuse = true);
/// Largest |a - b| over largest |b|; infinite where there is a NaN or the sizes differ.
double relative_error(const Tensor& a, const Tensor& b);
/// How far the devices' answers may lie apart: float32 sums in another order.
inline constexpr double kDeviceTolerance = 2e-6;
/// True when there are as many, of the same shapes, and each relative_error() is within the tolerance.
::testing::AssertionResult alike(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                                 double tolerance = kDeviceTolerance);
bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

/// Ends a run when it asks for the `last` time.
class StopAt final : public StopCondition {
 public:
  explicit StopAt(int last) : left_(last) {}
  bool should_stop() override { return --left_ == 0; }

 private:
  int left_;
};

}  // namespace shoal::worker::testing
