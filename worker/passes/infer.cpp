// One pass over the nodes in order, each by its operator's own rule.
#include "worker/passes/infer.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "worker/graph/convert.hpp"
#include "worker/graph/operators.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/cast.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMostNamesBytes = 1024;  // of a message

std::string names_of(const Graph& graph) {
  std::string names;
  for (const ValueId id : graph.inputs) {
    names += format("{}'{}'", names.empty() ? "" : ", ", graph.value(id).name);
    if (names.size() > kMostNamesBytes) return shortened(names + ", and others", kMostNamesBytes);
  }
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
    const Status visited = visit_all();
    insert_casts();
    SHOAL_RETURN_IF_ERROR(visited);
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
      SHOAL_RETURN_IF_ERROR(count_input(graph_.value(found->second)));
      open.erase(found);
    }
    for (const auto& [name, id] : open) SHOAL_RETURN_IF_ERROR(bind_default(graph_.value(id)));
    return {};
  }

  Status count_input(const Value& input) {
    SHOAL_RETURN_IF_ERROR(check_extent(input));
    elements_ += input.shape.element_count();
    if (elements_ <= kMaxElements) return {};
    return invalid_argument("input '{}': the inputs together are too large", input.name);
  }

  Status check_ignored(const std::string& name) const {
    for (const std::string& ignored : graph_.ignored_inputs) {
      if (ignored == name) return {};
    }
    return invalid_argument("the model has no input '{}', or it was given twice; its inputs are {}", name, names_of(graph_));
  }

  /// An input that is not given has the dtype and shape that the model states, if these are complete.
  Status bind_default(Value& input) {
    if (input.dtype == DType::kInvalid) input.dtype = DType::kFloat32;
    if (!is_open(input.shape)) return count_input(input);
    if (open_parameters_) return {};
    return invalid_argument("input '{}' is not given and the model's files hold no value for it; the model's inputs are {}",
                            input.name, names_of(graph_));
  }

  Status visit_all() {
    is_made_of_constants_.resize(graph_.values.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      now_ = i;
      SHOAL_RETURN_IF_ERROR(visit(graph_.nodes[i]));
    }
    return {};
  }

  Status visit(Node& node) {
    if (const Arity& wanted = node.op->inputs; !wanted.holds(node.inputs.size())) {
      return invalid_argument("{}: {} inputs; {} to {} are needed", describe(node), node.inputs.size(), wanted.least,
                              wanted.most == Arity::kAny ? std::string("any number") : std::to_string(wanted.most));
    }
    SHOAL_RETURN_IF_ERROR(adopt_types(node));
    if (std::ranges::all_of(node.inputs, [this](ValueId id) { return follows_data(id); })) {
      for (const ValueId id : node.outputs) is_made_of_constants_[static_cast<std::size_t>(id)] = true;
    }
    std::vector<Value*> src, dst;
    for (const ValueId id : node.inputs) src.push_back(&graph_.value(id));
    for (const ValueId id : node.outputs) dst.push_back(&graph_.value(id));
    if (open_parameters_ && node.op->infer_parameters) node.op->infer_parameters(node, src);
    for (const Value* value : src) {
      if (open_parameters_ && !value->constant && value->producer == kNoNode && is_open(value->shape)) {
        return invalid_argument("{}: the shape of '{}' does not follow from the inputs given", describe(node), value->name);
      }
    }
    SHOAL_RETURN_IF_ERROR(infer_bodies(node, {src.begin(), src.end()}));
    SHOAL_RETURN_IF_ERROR(check_extents(node, src));  // rules and kernels assume that tensors are not empty
    SHOAL_RETURN_IF_ERROR(node.op->infer(node, {src.begin(), src.end()}, dst));
    SHOAL_RETURN_IF_ERROR(check_extents(node, dst));
    return count_elements(node, {dst.begin(), dst.end()});
  }

  /// Gives the bodies what the operator and the captures give them.
  Status infer_bodies(Node& node, SourceValues src) const {
    const BodyRules& rules = node.op->bodies;
    if (!std::cmp_equal(node.bodies.size(), rules.count))
      return invalid_argument("{}: {} bodies; {} are needed", describe(node), node.bodies.size(), rules.count);
    if (rules.count == 0) return {};
    const std::size_t own = rules.own_inputs(node);
    if (own > src.size()) return invalid_argument("{}: {} inputs; it reads {} of its own", describe(node), src.size(), own);
    for (std::size_t index = 0; index < node.bodies.size(); ++index) {
      Graph& body = node.bodies[index];
      SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> given, rules.inputs(node, src, index));
      for (const Value* capture : src.subspan(own)) given.push_back({"", capture->dtype, capture->shape});
      if (given.size() != body.inputs.size())
        return invalid_argument("{}: body {} has {} inputs and is given {}", describe(node), index, body.inputs.size(),
                                given.size());
      for (std::size_t i = 0; i < given.size(); ++i) given[i].name = body.value(body.inputs[i]).name;
      if (const Status inferred = infer(body, given); !inferred.ok())
        return inferred.with_context(format("{}: body {}", describe(node), index));
    }
    return {};
  }

  /// Plans and arenas add the sizes of many tensors. With this limit the sums cannot overflow.
  Status count_elements(const Node& node, std::span<const Value* const> results) {
    for (const Value* value : results) {
      elements_ += value->shape.element_count();
      if (elements_ <= kMaxElements) continue;
      return invalid_argument("{}: with '{}' of shape {} the tensors of the graph together have more than {} elements",
                              describe(node), value->name, value->shape.to_string(), kMaxElements);
    }
    return {};
  }

  static Status check_extents(const Node& node, std::span<Value* const> values) {
    for (const Value* value : values) {
      if (const Status fits = check_extent(*value); !fits.ok()) return fits.with_context(describe(node));
    }
    return {};
  }

  /// Whether it is a constant, or computed from constants alone.
  bool follows_data(ValueId id) const {
    return graph_.value(id).constant.has_value() || is_made_of_constants_[static_cast<std::size_t>(id)];
  }

  /// Makes the node read its constants, and values computed from constants, in the type that its data requires.
  Status adopt_types(Node& node) {
    if (node.op->constant_types == ConstantTypes::kKept) return {};
    auto data = std::ranges::find_if_not(node.inputs, [this](ValueId id) { return follows_data(id); });
    // If there is no data, the first input of a normalization decides; elsewhere the first computed value.
    const bool widens = node.op->constant_types == ConstantTypes::kAtLeastF32;
    if (data == node.inputs.end() && widens) data = node.inputs.begin();
    if (data == node.inputs.end())
      data = std::ranges::find_if(node.inputs, [this](ValueId id) { return !graph_.value(id).constant.has_value(); });
    if (data == node.inputs.end()) return {};
    const ValueId decides = *data;
    DType wanted = graph_.value(decides).dtype;
    if (!is_float(wanted)) return {};
    if (widens && wanted != DType::kFloat64) wanted = DType::kFloat32;
    for (ValueId& id : node.inputs) {
      const Value& value = graph_.value(id);
      if (id == decides || !follows_data(id) || !is_float(value.dtype)) continue;
      if (value.dtype == wanted) continue;  // it may be a conversion whose source is gone
      const ValueId stored = value.converted_from >= 0 ? value.converted_from : id;
      if (graph_.value(stored).dtype == wanted) {
        id = stored;
      } else {
        SHOAL_ASSIGN_OR_RETURN(id, converted(node, stored, wanted));
      }
    }
    return {};
  }

  /// `stored` in another type for `node`, made once for all its readers.
  Result<ValueId> converted(const Node& node, ValueId stored, DType dtype) {
    const auto known = conversions_.find({stored, dtype});
    if (known != conversions_.end()) return known->second;
    if (const Value* const source = &graph_.value(stored); !source->constant) {
      SHOAL_RETURN_IF_ERROR(count_elements(node, {&source, 1}));
    }
    Value copy = graph_.value(stored);
    if (copy.constant) copy.constant = convert_constant(*copy.constant, dtype);
    copy.dtype = dtype;
    copy.converted_from = stored;
    const bool is_computed = !copy.constant;
    const ValueId id = graph_.add_value(std::move(copy));
    conversions_[{stored, dtype}] = id;
    is_made_of_constants_.push_back(is_computed);
    if (is_computed) {
      casts_.push_back({now_,
                        {.op = &ops::kCast,
                         .name = graph_.value(stored).name,
                         .attributes = CastAttributes{.dtype = dtype},
                         .inputs = {stored},
                         .outputs = {id}}});
    }
    return id;
  }

  /// Inserts each Cast before the first node that reads it. Also runs after a failure, because nodes already refer to them.
  void insert_casts() {
    if (casts_.empty()) return;
    std::vector<Node> nodes;
    auto cast = casts_.begin();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (; cast != casts_.end() && cast->before == i; ++cast) nodes.push_back(std::move(cast->node));
      nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].outputs) graph_.value(id).producer = static_cast<NodeId>(i);
    }
  }

  struct InsertedCast {
    std::size_t before;  ///< node
    Node node;
  };

  Graph& graph_;
  bool open_parameters_;
  std::int64_t elements_ = 0;  // of inputs and results so far; at most kMaxElements before each is added
  std::map<std::pair<ValueId, DType>, ValueId> conversions_;
  std::vector<bool> is_made_of_constants_;  ///< per value; constants themselves are not
  std::vector<InsertedCast> casts_;
  std::size_t now_ = 0;
};

}  // namespace

Status infer(Graph& graph, std::span<const TensorSpec> inputs) { return Inference(graph, false).run(inputs); }

Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs) { return Inference(graph, true).run(inputs); }

}  // namespace shoal::worker
