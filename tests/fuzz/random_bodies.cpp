#include "tests/fuzz/random_bodies.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

#include "worker/graph/operators.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/control_flow.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::fuzz {
namespace {

using namespace shoal::worker;

constexpr std::size_t kMostInBody = 4;  // in a body
constexpr int kMostDepth = 2;

/// A body neither takes nor gives such values.
bool depends_on_data(const Value& value) { return value.expressions != nullptr; }

/// Returns the first output; the others follow it.
ValueId add_node(Graph& graph, Node node, std::size_t outputs) {
  const auto first = static_cast<ValueId>(graph.values.size());
  const auto id = static_cast<NodeId>(graph.nodes.size());
  if (node.name.empty()) node.name = "body" + std::to_string(first);
  for (std::size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(graph.add_value({.name = node.name + "_output" + std::to_string(i), .producer = id}));
  graph.nodes.push_back(std::move(node));
  return first;
}

ValueId add_number(Graph& graph, std::int64_t number) {
  const auto owner = std::make_shared<std::int64_t>(number);
  const Constant constant{DType::kInt64, Shape(), std::as_bytes(std::span(owner.get(), 1)), owner};
  return graph.add_value({.name = std::to_string(number), .dtype = DType::kInt64, .shape = Shape(), .constant = constant});
}

ValueId add_input(Graph& graph, const Value& like) {
  Value value{.name = like.name, .dtype = like.dtype, .shape = like.shape, .expressions = like.expressions};
  graph.inputs.push_back(graph.add_value(std::move(value)));
  return graph.inputs.back();
}

ValueId add_scalar(Graph& graph, BinaryKind kind, ValueId of, double number) {
  return add_node(graph, {.op = &ops::kScalar, .attributes = ScalarAttributes{kind, number}, .inputs = {of}}, 1);
}
ValueId add_tanh(Graph& graph, ValueId of) {
  return add_node(graph, {.op = &ops::kActivation, .attributes = ActivationAttributes{ActivationKind::kTanh}, .inputs = {of}}, 1);
}

/// A run of nodes as a graph, and the values of the graph around it that it reads and makes.
struct Cut {
  Graph body;
  std::vector<ValueId> read, made;
};

class Wrapping {
 public:
  Wrapping(std::mt19937& random, std::size_t& count) : random_(random), count_(count) {}

  /// Wraps runs of nodes; results have types. From the back, so that the nodes before a run keep their numbers.
  void wrap_runs(Graph& graph, int depth) {
    for (std::size_t end = graph.nodes.size(); end > 0;) {
      const std::size_t length = 1 + below(std::min(kMostInBody, end));
      if (below(2) == 0) wrap(graph, end - length, end, depth);
      end -= length;
    }
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      for (const ValueId output : graph.nodes[id].outputs) graph.value(output).producer = static_cast<NodeId>(id);
    }
  }

  /// Outputs of loops over floating-point results. Rows have one axis more than a result.
  void add_loops(Graph& graph) {
    std::vector<ValueId> floats;
    for (const Node& node : graph.nodes) {
      const Value& value = graph.value(node.outputs[0]);
      if (is_float(value.dtype) && value.shape.rank() < kMaxRank && !depends_on_data(value)) floats.push_back(node.outputs[0]);
    }
    if (floats.empty()) return;
    const ValueId state = floats[below(floats.size())], scanned = floats[below(floats.size())];
    add_loop(graph, state);
    if (graph.value(scanned).shape.rank() > 0) add_scan(graph, scanned);
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  static Cut cut(const Graph& graph, std::size_t first, std::size_t end) {
    Cut cut;
    std::vector<ValueId> inner(graph.values.size(), -1);
    const auto at = [](ValueId id) { return static_cast<std::size_t>(id); };
    for (std::size_t i = first; i < end; ++i) {
      Node node = graph.nodes[i];
      for (ValueId& id : node.inputs) {
        if (inner[at(id)] < 0) {
          inner[at(id)] = add_input(cut.body, graph.value(id));
          cut.read.push_back(id);
        }
        id = inner[at(id)];
      }
      for (ValueId& id : node.outputs) {
        Value value = graph.value(id);
        value.producer = static_cast<NodeId>(cut.body.nodes.size());
        id = inner[at(id)] = cut.body.add_value(std::move(value));
      }
      cut.body.nodes.push_back(std::move(node));
    }
    std::vector<bool> is_read(graph.values.size());
    for (std::size_t i = end; i < graph.nodes.size(); ++i) {
      for (const ValueId id : graph.nodes[i].inputs) is_read[at(id)] = true;
    }
    for (const GraphOutput& output : graph.outputs) is_read[at(output.value)] = true;
    for (std::size_t i = first; i < end; ++i) {
      for (const ValueId id : graph.nodes[i].outputs) {
        if (!is_read[at(id)]) continue;
        cut.made.push_back(id);
        cut.body.outputs.push_back({graph.value(id).name, inner[at(id)]});
      }
    }
    return cut;
  }

  void wrap(Graph& graph, std::size_t first, std::size_t end, int depth) {
    Cut run = cut(graph, first, end);
    if (run.made.empty() || std::ranges::any_of(run.body.values, depends_on_data)) return;
    if (depth < kMostDepth) wrap_runs(run.body, depth + 1);
    Node node = below(2) == 0 ? branches(graph, run) : loop(graph, run);
    if (node.op == nullptr) return;
    node.name = "body" + std::to_string(graph.values.size());
    node.outputs = run.made;
    graph.nodes[first] = std::move(node);
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                      graph.nodes.begin() + static_cast<std::ptrdiff_t>(end));
    ++count_;
  }

  /// The run is the branch that is taken. The other one gives other numbers. No node if there are truth values, which are none.
  Node branches(Graph& graph, const Cut& run) {
    if (std::ranges::any_of(run.made, [&](ValueId id) { return graph.value(id).dtype == DType::kBool; })) return {};
    const bool is_first = below(2) == 0;
    Graph other = run.body;
    for (GraphOutput& output : other.outputs) output.value = add_scalar(other, BinaryKind::kAdd, output.value, 1);
    Node node{.op = &ops::kIf, .inputs = {add_number(graph, is_first ? 1 : 0)}};
    node.inputs.insert(node.inputs.end(), run.read.begin(), run.read.end());
    node.bodies = is_first ? std::vector{run.body, std::move(other)} : std::vector{std::move(other), run.body};
    return node;
  }

  /// Each turn makes the same of what is captured. No node if nothing is there to begin with.
  Node loop(Graph& graph, const Cut& run) {
    Node node{.op = &ops::kLoop,
              .attributes = LoopAttributes{.states = static_cast<std::int64_t>(run.made.size())},
              .inputs = {add_number(graph, static_cast<std::int64_t>(1 + below(3))), add_number(graph, 1)}};
    for (const ValueId id : run.made) {
      const auto is_like = [&](ValueId other) {
        const Value &a = graph.value(id), &b = graph.value(other);
        return !b.constant && b.producer != kNoNode && a.dtype == b.dtype && a.shape == b.shape;
      };
      const auto first = std::ranges::find_if(run.read, is_like);
      if (first == run.read.end()) return {};
      node.inputs.push_back(*first);
    }
    node.inputs.insert(node.inputs.end(), run.read.begin(), run.read.end());
    Graph body = run.body;
    const std::vector<ValueId> captures = std::exchange(body.inputs, {});
    const ValueId turn = add_input(body, {.name = "turn"});
    for (const ValueId id : run.made) add_input(body, {.name = "before_" + graph.value(id).name});
    body.inputs.insert(body.inputs.end(), captures.begin(), captures.end());
    body.outputs.insert(body.outputs.begin(), {"go", add_scalar(body, BinaryKind::kLesser, turn, static_cast<double>(below(2)))});
    node.bodies = {std::move(body)};
    return node;
  }

  /// state = tanh(state) / 2 + the first one; data decides after how many turns it ends.
  void add_loop(Graph& graph, ValueId first) {
    Graph body;
    const ValueId turn = add_input(body, {.name = "turn"});
    const ValueId state = add_input(body, {.name = "state"}), captured = add_input(body, {.name = "captured"});
    const ValueId half = add_scalar(body, BinaryKind::kMul, add_tanh(body, state), 0.5);
    const ValueId next =
        add_node(body, {.op = &ops::kBinary, .attributes = BinaryAttributes{BinaryKind::kAdd}, .inputs = {half, captured}}, 1);
    body.outputs = {
        {"go", add_scalar(body, BinaryKind::kLesser, turn, static_cast<double>(below(4)))}, {"state", next}, {"row", half}};
    Node node{.op = &ops::kLoop,
              .attributes = LoopAttributes{.states = 1, .most_turns = 5},
              .inputs = {add_number(graph, static_cast<std::int64_t>(below(5))), add_number(graph, 1), first, first},
              .bodies = {std::move(body)}};
    const ValueId made = add_node(graph, std::move(node), 2);
    graph.outputs.push_back({"loop_state", made});
    graph.outputs.push_back({"loop_rows", made + 1});
    ++count_;
  }

  void add_scan(Graph& graph, ValueId scanned) {
    Graph body;
    body.outputs = {{"row", add_tanh(body, add_input(body, {.name = "row"}))}};
    Node node{.op = &ops::kScan, .attributes = ScanAttributes{1, 0}, .inputs = {scanned}, .bodies = {std::move(body)}};
    graph.outputs.push_back({"scan_rows", add_node(graph, std::move(node), 1)});
    ++count_;
  }

  std::mt19937& random_;
  std::size_t& count_;
};

}  // namespace

std::size_t add_bodies(Graph& graph, std::span<const TensorSpec> inputs, std::uint32_t seed) {
  Graph inferred = graph;
  if (!infer(inferred, inputs).ok()) return 0;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (value.producer == kNoNode) continue;
    value.dtype = inferred.values[id].dtype;
    value.shape = inferred.values[id].shape;
    value.expressions = inferred.values[id].expressions;
  }
  std::mt19937 random(seed);
  std::size_t count = 0;
  Wrapping wrapping(random, count);
  wrapping.wrap_runs(graph, 1);
  wrapping.add_loops(graph);
  return count;
}

}  // namespace shoal::fuzz
