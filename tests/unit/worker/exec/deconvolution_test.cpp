// Deconvolutions on the device cpu, where oneDNN runs most of them, against the oracle kernel.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/oracle_share.hpp"
#include "worker/ops/deconvolution.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::spec;

struct DeconvolutionLayer {
  std::int64_t batch, channels, filters, groups;
  Dims size, kernel, stride, dilate, pad, adj, target = {};
  bool has_bias = false;
};

DeconvolutionAttributes attributes_of(const DeconvolutionLayer& layer) {
  return {layer.kernel, layer.stride, layer.dilate, layer.pad, layer.adj, layer.target, layer.filters, layer.groups};
}

Graph deconvolution_graph(const DeconvolutionLayer& layer, bool with_norm) {
  GraphBuilder b;
  Dims weight{layer.channels, layer.filters / layer.groups};
  weight.insert(weight.end(), layer.kernel.begin(), layer.kernel.end());
  std::vector<ValueId> inputs{b.input("data"), b.constant(Shape(weight))};
  if (layer.has_bias) inputs.push_back(b.constant({layer.filters}));
  ValueId x = b.node("Deconvolution", inputs, attributes_of(layer));
  if (with_norm) x = b.activation(b.batch_norm(x, layer.filters));
  b.output(x);
  return b.graph();
}

std::vector<TensorSpec> deconvolution_inputs(const DeconvolutionLayer& layer) {
  Dims shape{layer.batch, layer.channels};
  shape.insert(shape.end(), layer.size.begin(), layer.size.end());
  return {spec("data", Shape(shape))};
}

void expect_reference_numbers(const DeconvolutionLayer& layer) {
  const std::vector<TensorSpec> inputs = deconvolution_inputs(layer);
  for (const bool with_norm : {false, true}) {
    SCOPED_TRACE(Attributes(attributes_of(layer)).to_text() + (with_norm ? ", with a norm" : "") + ", data " +
                 inputs[0].shape.to_string());
    const Graph graph = deconvolution_graph(layer, with_norm);
    Context context;
    const auto run_on = [&](const char* device, bool fuse) {
      const auto model = testing::load(graph, inputs, device, 1, fuse);
      return testing::run(*model->program(inputs).value(), context);
    };
    constexpr double kTolerance = 1e-5;  // sums of up to 600 products in another order
    const auto want = run_on("cpu-reference", true);
    EXPECT_TRUE(testing::alike(run_on("cpu", true), want, kTolerance));
    EXPECT_TRUE(testing::alike(run_on("cpu", false), want, kTolerance));
  }
}

TEST(Deconvolution, OfNetworksGivesTheReferencesNumbers) {
  const DeconvolutionLayer layers[] = {
      {1, 32, 16, 1, {6, 5}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}},                    // CenterNet, U-Net
      {2, 16, 32, 1, {3, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, {}, true},          // Mask R-CNN
      {1, 21, 21, 21, {3, 3}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}},                   // FCN: each channel by itself
      {1, 32, 32, 32, {3, 3}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}},                   //
      {1, 21, 21, 1, {2, 3}, {16, 16}, {8, 8}, {1, 1}, {4, 4}, {0, 0}},                  // FCN
      {1, 16, 16, 1, {5, 5}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, {10, 10}},          // a target
      {1, 8, 6, 2, {3, 4}, {3, 2}, {2, 3}, {1, 1}, {1, 0}, {1, 2}},                      // more is added than cut off
      {1, 32, 32, 2, {5, 5}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {0, 0}, {}, true},          // dilated
      {1, 16, 16, 1, {4, 4}, {3, 3}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},                    // dilated, with a stride
      {2, 16, 24, 1, {7}, {3}, {2}, {1}, {1}, {1}},                                      // sequences
      {1, 16, 16, 1, {2, 3, 2}, {2, 3, 2}, {2, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 0, 1}},  // volumes
  };
  for (const DeconvolutionLayer& layer : layers) {
    expect_reference_numbers(layer);
    const auto inputs = deconvolution_inputs(layer);
    const auto model = testing::load(deconvolution_graph(layer, false), inputs);
    EXPECT_EQ(describe_oracle_nodes(*model->program(inputs).value()), "") << Attributes(attributes_of(layer)).to_text();
  }
}

TEST(Deconvolution, OfAnySettingGivesTheReferencesNumbers) {
  std::uint32_t state = 1;
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    state = state * 1664525 + 1013904223;
    return least + static_cast<std::int64_t>(state >> 16) % (most - least + 1);
  };
  for (int i = 0; i < 40; ++i) {
    DeconvolutionLayer layer{.batch = draw(1, 2), .groups = draw(1, 3)};
    layer.channels = layer.groups * draw(1, 12);
    layer.filters = layer.groups * draw(1, 12);
    layer.has_bias = draw(0, 1) == 1;
    for (std::int64_t axes = draw(1, 3); axes > 0; --axes) {
      const std::int64_t kernel = draw(1, 4), stride = draw(1, 3), dilate = draw(1, 2);
      layer.size.push_back(draw(2, 5));
      layer.kernel.push_back(kernel);
      layer.stride.push_back(stride);
      layer.dilate.push_back(dilate);
      layer.pad.push_back(draw(0, dilate * (kernel - 1) / 2));
      layer.adj.push_back(draw(0, stride - 1));
    }
    expect_reference_numbers(layer);
  }
}

}  // namespace
}  // namespace shoal::worker
