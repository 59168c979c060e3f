// infer(): one pass over the nodes in order, each by its operator's own rule.
#include <cstring>
#include <map>

#include "shm/base/errors.hpp"
#include "worker/graph/convert.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"
#include "worker/graph/shapes.hpp"

namespace shoal::worker {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 44;  // no machine holds more; keeps every byte count far from overflow

std::string names_of(const Graph& graph) {
  std::string names;
  for (const ValueId id : graph.inputs) names += format("{}'{}'", names.empty() ? "" : ", ", graph.value(id).name);
  return names.empty() ? "no inputs" : names;
}

Status check_extent(const Value& value) {
  const std::int64_t count = value.shape.element_count();
  if (count == 0) return unimplemented("'{}' of shape {} has no elements", value.name, value.shape.to_string());
  if (count > 0 && count <= kMaxElements) return {};
  return invalid_argument("'{}' of shape {} is too large", value.name, value.shape.to_string());
}

class Inference {
 public:
  Inference(Graph& graph, bool open_parameters) : graph_(graph), open_parameters_(open_parameters) {}

  Status run(std::span<const TensorSpec> inputs) {
    SHOAL_RETURN_IF_ERROR(bind(inputs));
    for (Node& node : graph_.nodes) SHOAL_RETURN_IF_ERROR(visit(node));
    for (const GraphOutput& output : graph_.outputs) SHOAL_RETURN_IF_ERROR(check_extent(graph_.value(output.value)));
    return {};
  }

 private:
  Status bind(std::span<const TensorSpec> inputs) {
    std::map<std::string_view, ValueId> open;
    for (const ValueId id : graph_.inputs) open.emplace(graph_.value(id).name, id);
    for (const TensorSpec& spec : inputs) {
      const auto found = open.find(spec.name);
      if (found == open.end()) {
        SHOAL_RETURN_IF_ERROR(check_ignored(spec.name));
        continue;
      }
      for (const std::int64_t dim : spec.shape) {
        if (dim < 1)
          return invalid_argument("input '{}' has shape {}; every dimension must be given and positive", spec.name,
                                  spec.shape.to_string());
      }
      set_result(graph_.value(found->second), spec.dtype, spec.shape);
      SHOAL_RETURN_IF_ERROR(check_extent(graph_.value(found->second)));
      open.erase(found);
    }
    for (const auto& [name, id] : open) SHOAL_RETURN_IF_ERROR(bind_default(graph_.value(id)));
    return {};
  }

  Status check_ignored(const std::string& name) const {
    for (const std::string& ignored : graph_.ignored_inputs) {
      if (ignored == name) return {};
    }
    return invalid_argument("the model has no input '{}', or it was given twice; its inputs are {}", name, names_of(graph_));
  }

  /// An input nobody gave: the model's own word counts when it is complete.
  Status bind_default(Value& input) const {
    if (input.dtype == DType::kInvalid) input.dtype = DType::kFloat32;
    if (open_parameters_) return {};
    if (!is_open(input.shape)) return {};
    return invalid_argument("input '{}' is not given and the model's files hold no value for it; the model's inputs are {}",
                            input.name, names_of(graph_));
  }

  Status visit(Node& node) {
    const int count = static_cast<int>(node.inputs.size());
    if (count < node.op->min_inputs || (node.op->max_inputs >= 0 && count > node.op->max_inputs)) {
      return invalid_argument("{}: {} inputs; {} to {} are needed", describe(node), count, node.op->min_inputs,
                              node.op->max_inputs < 0 ? std::string("any number") : std::to_string(node.op->max_inputs));
    }
    SHOAL_RETURN_IF_ERROR(adopt_types(node));
    std::vector<Value*> src, dst;
    for (const ValueId id : node.inputs) src.push_back(&graph_.value(id));
    for (const ValueId id : node.outputs) dst.push_back(&graph_.value(id));
    if (open_parameters_ && node.op->infer_parameters) node.op->infer_parameters(node, src);
    for (const Value* value : src) {
      if (open_parameters_ && !value->constant && value->producer == kNoNode && is_open(value->shape)) {
        return invalid_argument("{}: the shape of '{}' does not follow from the inputs given", describe(node), value->name);
      }
    }
    SHOAL_RETURN_IF_ERROR(check_extents(node, src));  // neither rules nor kernels think of tensors without elements
    SHOAL_RETURN_IF_ERROR(node.op->infer(node, {src.begin(), src.end()}, dst));
    return check_extents(node, dst);
  }

  static Status check_extents(const Node& node, std::span<Value* const> values) {
    for (const Value* value : values) {
      if (const Status fits = check_extent(*value); !fits.ok()) return fits.with_context(describe(node));
    }
    return {};
  }

  /// Lets the node read its constants in the type that its data asks for.
  Status adopt_types(Node& node) {
    if (node.op->constant_types == ConstantTypes::kKept) return {};
    DType wanted = DType::kInvalid;
    for (const ValueId id : node.inputs) {
      if (graph_.value(id).constant) continue;
      wanted = graph_.value(id).dtype;
      break;
    }
    if (!is_float(wanted)) return {};
    if (node.op->constant_types == ConstantTypes::kAtLeastF32 && wanted != DType::kFloat64) wanted = DType::kFloat32;
    for (ValueId& id : node.inputs) {
      const Value& value = graph_.value(id);
      if (!value.constant || !is_float(value.dtype)) continue;
      if (value.dtype == wanted) continue;  // perhaps converted: what it was made of may be gone by now
      const ValueId stored = value.converted_from >= 0 ? value.converted_from : id;
      id = graph_.value(stored).dtype == wanted ? stored : converted(stored, wanted);
    }
    return {};
  }

  /// The constant `stored` in another type, made once for all its readers.
  ValueId converted(ValueId stored, DType dtype) {
    const auto [place, fresh] = conversions_.try_emplace({stored, dtype}, -1);
    if (!fresh) return place->second;
    Value copy = graph_.value(stored);
    copy.constant = convert_constant(*copy.constant, dtype);
    copy.dtype = dtype;
    copy.converted_from = stored;
    return place->second = graph_.add_value(std::move(copy));
  }

  Graph& graph_;
  bool open_parameters_;
  std::map<std::pair<ValueId, DType>, ValueId> conversions_;
};

}  // namespace

Status infer(Graph& graph, std::span<const TensorSpec> inputs) { return Inference(graph, false).run(inputs); }

Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs) { return Inference(graph, true).run(inputs); }

}  // namespace shoal::worker
