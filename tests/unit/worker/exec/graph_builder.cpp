#include "tests/unit/worker/exec/graph_builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "shm/base/check.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"

namespace shoal::worker::testing {
namespace {

float unit(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed * 0xD1342543DE82EF95u + (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-23F - 1.0F;
}

}  // namespace

ValueId GraphBuilder::input(const std::string& name) {
  const ValueId id = graph_.add_value({.name = name, .dtype = DType::kFloat32});
  graph_.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::constant(const Shape& shape, float center, float spread) {
  auto floats = std::make_shared<std::vector<float>>(static_cast<std::size_t>(shape.element_count()));
  const std::uint64_t seed = graph_.values.size() + 100;
  for (std::size_t i = 0; i < floats->size(); ++i) (*floats)[i] = center + spread * unit(seed, i);
  const Constant constant{DType::kFloat32, shape, std::as_bytes(std::span(*floats)), floats};
  return graph_.add_value(
      {.name = "constant" + std::to_string(seed), .dtype = DType::kFloat32, .shape = shape, .constant = constant});
}

ValueId GraphBuilder::node(const std::string& op, std::vector<ValueId> inputs, Attributes attributes, int output_count) {
  const Operator* found = find_operator(op);
  SHOAL_CHECK(found != nullptr);
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  Node node{.op = found, .name = op + std::to_string(id), .attributes = std::move(attributes), .inputs = std::move(inputs)};
  for (int i = 0; i < output_count; ++i) {
    node.outputs.push_back(graph_.add_value({.name = node.name + "_output" + std::to_string(i), .producer = id}));
  }
  graph_.nodes.push_back(node);
  return node.outputs[0];
}

ValueId GraphBuilder::node_with_bodies(const std::string& op, std::vector<ValueId> inputs, std::vector<Graph> bodies,
                                       Attributes attributes, int output_count) {
  const ValueId first = node(op, std::move(inputs), std::move(attributes), output_count);
  graph_.nodes.back().bodies = std::move(bodies);
  return first;
}

ValueId GraphBuilder::number(std::int64_t number) {
  const auto owner = std::make_shared<std::int64_t>(number);
  const Constant constant{DType::kInt64, Shape(), std::as_bytes(std::span(owner.get(), 1)), owner};
  return graph_.add_value({.name = std::to_string(number), .dtype = DType::kInt64, .shape = Shape(), .constant = constant});
}

void GraphBuilder::output(ValueId value) { graph_.outputs.push_back({"out" + std::to_string(graph_.outputs.size()), value}); }

ValueId GraphBuilder::conv(ValueId src, std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride,
                           std::int64_t group, bool with_bias, int spatial_axes) {
  const auto axes = static_cast<std::size_t>(spatial_axes);
  std::vector<std::int64_t> weights = {to, from / group};
  weights.insert(weights.end(), axes, kernel);
  const double fan_in = static_cast<double>(from / group) * std::pow(static_cast<double>(kernel), spatial_axes);
  std::vector<ValueId> inputs = {src, constant(Shape(weights), 0.0F, static_cast<float>(std::sqrt(3.0 / fan_in)))};
  if (with_bias) inputs.push_back(constant({to}));
  return node("Convolution", inputs,
              ConvolutionAttributes{.kernel = Dims(axes, kernel),
                                    .stride = Dims(axes, stride),
                                    .dilate = Dims(axes, 1),
                                    .pad = Dims(axes, kernel / 2),
                                    .num_filter = to,
                                    .num_group = group});
}

ValueId GraphBuilder::batch_norm(ValueId src, std::int64_t channels, bool fix_gamma) {
  return node("BatchNorm",
              {src, constant({channels}, 1.0F, 0.25F), constant({channels}, 0.0F, 0.5F), constant({channels}, 0.0F, 0.25F),
               constant({channels}, 1.0F, 0.25F)},
              BatchNormAttributes{.eps = 1e-5, .fix_gamma = fix_gamma}, 3);
}

ValueId GraphBuilder::activation(ValueId src, ActivationKind kind) {
  return node("Activation", {src}, ActivationAttributes{kind});
}
ValueId GraphBuilder::concat(std::vector<ValueId> parts, std::int64_t axis) {
  return node("Concat", std::move(parts), ConcatAttributes{axis});
}
ValueId GraphBuilder::pool(ValueId src, PoolingAttributes attributes) { return node("Pooling", {src}, std::move(attributes)); }
ValueId GraphBuilder::global_average(ValueId src) { return pool(src, {.kind = PoolingKind::kAvg, .global = true}); }

ValueId GraphBuilder::fully_connected(ValueId src, std::int64_t from, std::int64_t to) {
  const auto spread = static_cast<float>(std::sqrt(3.0 / static_cast<double>(from)));
  return node("FullyConnected", {src, constant({to, from}, 0.0F, spread), constant({to})},
              FullyConnectedAttributes{.num_hidden = to});
}

Graph make_bottleneck_network(std::int64_t width) {
  GraphBuilder b;
  ValueId x = b.activation(b.batch_norm(b.conv(b.input("data"), 3, width, 7, 2), width));
  x = b.pool(x, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  std::int64_t channels = width;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t inner = width << stage, outer = 4 * inner;
    for (int block = 0; block < 2; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      ValueId y = b.activation(b.batch_norm(b.conv(x, channels, inner, 1), inner));
      y = b.activation(b.batch_norm(b.conv(y, inner, inner, 3, stride), inner));
      y = b.batch_norm(b.conv(y, inner, outer, 1), outer);
      const ValueId shortcut = block == 0 ? b.batch_norm(b.conv(x, channels, outer, 1, stride), outer) : x;
      x = b.activation(b.add(y, shortcut));
      channels = outer;
    }
  }
  b.output(b.fully_connected(b.global_average(x), channels, 10));
  return b.graph();
}

Tensor noise(const Shape& shape, std::uint64_t seed) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  const auto values = tensor.view().values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = unit(seed, i);
  return tensor;
}

std::vector<Tensor> run(const Program& program, Context& context, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  std::vector<TensorView> src, dst;
  for (const auto& output : program.outputs()) outputs.push_back(Tensor::create(output.dtype, output.shape).value());
  for (const auto& tensor : inputs) src.push_back(tensor.view());
  for (auto& tensor : outputs) dst.push_back(tensor.view());
  if (const Status status = program.run(context, src, dst); !status.ok()) throw Error(status);
  return outputs;
}

std::vector<Tensor> run(const Program& program, Context& context, std::uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const auto& input : program.inputs()) inputs.push_back(noise(input.shape, seed++));
  return run(program, context, inputs);
}

std::unique_ptr<Model> load(const Graph& graph, const std::vector<TensorSpec>& inputs, const std::string& device, int threads,
                            bool fuse) {
  return Model::load(graph, {.device = device, .threads = threads, .input_sets = {inputs}, .fuse = fuse}).value();
}

TensorSpec spec(const std::string& name, const Shape& shape) { return {name, DType::kFloat32, shape}; }

std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<Tensor>& inputs) {
  SHOAL_CHECK(graph.inputs.size() == inputs.size());
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    specs.push_back({graph.value(graph.inputs[i]).name, inputs[i].dtype(), inputs[i].shape()});
  return specs;
}

std::vector<Tensor> answer(const Graph& graph, const std::vector<Tensor>& inputs, const std::string& device, int threads,
                           bool fuse) {
  const auto specs = specs_of(graph, inputs);
  const auto model = load(graph, specs, device, threads, fuse);
  model->enter_thread();
  Context context;
  return run(*model->program(specs).value(), context, inputs);
}

double relative_error(const Tensor& a, const Tensor& b) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto x = a.values<float>(), y = b.values<float>();
  if (x.size() != y.size()) return kNone;
  double error = 0, largest = 1e-30;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double difference = std::abs(static_cast<double>(x[i]) - y[i]);
    if (std::isnan(difference)) return kNone;
    error = std::max(error, difference);
    largest = std::max(largest, std::abs(static_cast<double>(y[i])));
  }
  return error / largest;
}

::testing::AssertionResult alike(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << got.size() << " outputs, want " << want.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].shape() != want[i].shape()) {
      return ::testing::AssertionFailure() << "output " << i << " has shape " << got[i].shape().to_string() << ", want "
                                           << want[i].shape().to_string();
    }
    const double error = relative_error(got[i], want[i]);
    if (!(error <= tolerance)) return ::testing::AssertionFailure() << "output " << i << " is off by " << error;
  }
  return ::testing::AssertionSuccess();
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.size_bytes() == y.size_bytes() && std::memcmp(x.view().data, y.view().data, x.size_bytes()) == 0;
  });
}

}  // namespace shoal::worker::testing
