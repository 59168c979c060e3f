#include "worker/exec/cpu/widening.hpp"

#include <algorithm>
#include <limits>

#include "shm/tensor/floats.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/graph/convert.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/pooling.hpp"

namespace shoal::worker::cpu {
namespace {

bool takes_maxima(const Node& node) {
  const auto* const pooling = node.attributes.get_if<PoolingAttributes>();
  return pooling != nullptr && pooling->kind == PoolingKind::kMax;
}

class Widening {
 public:
  explicit Widening(const Graph& graph) : graph_(graph), is_read_(find_read_values(graph)), wide_(graph.values.size(), -1) {
    graph_.nodes.clear();
  }

  void keep(const Node& node) { add(node); }

  void widen(Node node) {
    for (ValueId& id : node.inputs) {
      if (is_half(id)) id = wide_input(id);
    }
    std::vector<Node> behind;
    for (ValueId& id : node.outputs) {
      if (!is_half(id)) continue;
      const ValueId wide = add_wide(id, std::nullopt);
      if (is_read_[static_cast<std::size_t>(id)]) {
        ValueId result = wide;
        if (takes_maxima(node)) {
          result = add_wide(id, std::nullopt);
          behind.push_back(raise_to_lowest(wide, result, graph_.value(id).dtype));
        }
        behind.push_back(cast(result, id));
      }
      id = wide;
    }
    add(node);
    for (const Node& each : behind) add(each);
  }

  Graph take() { return std::move(graph_); }

 private:
  bool is_half(ValueId id) const { return TypeSet(HalfTypes()).holds(graph_.value(id).dtype); }

  Node cast(ValueId from, ValueId to) const {
    return {.op = &ops::kCast,
            .name = graph_.value(to).name,
            .attributes = CastAttributes{graph_.value(to).dtype},
            .inputs = {from},
            .outputs = {to}};
  }

  /// The maximum of a window without a number is the lowest number of the type. That of float32 would become -inf.
  Node raise_to_lowest(ValueId from, ValueId to, DType half) const {
    const double lowest = half == DType::kFloat16 ? -FloatLimits<Half>::kHighest : -FloatLimits<BFloat16>::kHighest;
    return {.op = &ops::kClip,
            .name = graph_.value(to).name,
            .attributes = ClipAttributes{lowest, std::numeric_limits<double>::infinity()},
            .inputs = {from},
            .outputs = {to}};
  }

  /// A float32 value for one of half type.
  ValueId add_wide(ValueId id, std::optional<Constant> constant) {
    const Value& half = graph_.value(id);
    return graph_.add_value({.name = half.name,
                             .dtype = DType::kFloat32,
                             .shape = half.shape,
                             .constant = std::move(constant),
                             .expressions = half.expressions});
  }

  ValueId wide_input(ValueId id) {
    ValueId wide = wide_[static_cast<std::size_t>(id)];
    if (wide >= 0) return wide;
    if (const auto& constant = graph_.value(id).constant) {
      const bool is_released = constant->bytes.empty();
      Constant converted =
          is_released ? Constant{DType::kFloat32, constant->shape, {}, nullptr} : convert_constant(*constant, DType::kFloat32);
      converted.key = converted_key(graph_, id, DType::kFloat32);  // parts give their new values equal numbers
      wide = add_wide(id, std::move(converted));
    } else {
      wide = add_wide(id, std::nullopt);
      add(cast(id, wide));
    }
    return wide_[static_cast<std::size_t>(id)] = wide;
  }

  void add(const Node& node) {
    for (const ValueId id : node.outputs) graph_.value(id).producer = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(node);
  }

  Graph graph_;
  std::vector<bool> is_read_;
  std::vector<ValueId> wide_;  ///< per value of the given graph: its float32 copy, or -1
};

/// It has elements of a half type, and else float32 only, or integers that are lengths.
bool has_halves(const Graph& graph, const Node& node) {
  constexpr TypeSet kHalves = HalfTypes(), kFits = Joined<Types<float, Half, BFloat16>, Integers>::Type();
  bool has = false, fits = true;
  for (const auto* const ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      has = has || kHalves.holds(graph.value(id).dtype);
      fits = fits && kFits.holds(graph.value(id).dtype);
    }
  }
  return has && fits;
}

}  // namespace

std::optional<Graph> widen_halves(const Graph& graph, const std::function<bool(const Node&)>& is_widened) {
  const auto takes = [&](const Node& node) { return is_widened(node) && has_halves(graph, node); };
  if (std::ranges::none_of(graph.nodes, takes)) return std::nullopt;
  Widening widening(graph);
  for (const Node& node : graph.nodes) takes(node) ? widening.widen(node) : widening.keep(node);
  return widening.take();
}

}  // namespace shoal::worker::cpu
