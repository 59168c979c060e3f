// One pass over the nodes in order, each by its operator's own rule.
#include "worker/passes/infer.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/tensor/spec.hpp"
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

/// What is inferred.
enum class Mode {
  kProgram,     ///< sizes are numbers, apart from those behind data; memory will be planned for their upper bounds
  kParameters,  ///< also the inputs that are not given
  kSizes,       ///< expressions of open sizes
};

class Inference {
 public:
  Inference(Graph& graph, Mode mode) : graph_(graph), mode_(mode) {}

  Status run(std::shared_ptr<DimTable> table, std::span<const SizedInput> inputs) {
    SHOAL_RETURN_IF_ERROR(check_nesting(graph_));
    graph_.table = std::move(table);
    SHOAL_RETURN_IF_ERROR(bind(inputs));
    find_open_sizes();
    const Status visited = visit_all();
    insert_casts();
    SHOAL_RETURN_IF_ERROR(visited);
    if (refused != nullptr) return {};
    for (const GraphOutput& output : graph_.outputs) SHOAL_RETURN_IF_ERROR(extent(graph_.value(output.value)).status());
    return {};
  }

  std::vector<RefusedNode>* refused = nullptr;  ///< if given, the nodes that are wrong are added, and the others go on
  std::string path;                             ///< before their names: the node whose body this is, and '/'

 private:
  Status bind(std::span<const SizedInput> inputs) {
    std::map<std::string_view, ValueId> open;
    for (const ValueId id : graph_.inputs) open.emplace(graph_.value(id).name, id);
    for (const SizedInput& input : inputs) {
      const auto found = open.find(input.name);
      if (found == open.end()) {
        SHOAL_RETURN_IF_ERROR(check_ignored(input.name));
        continue;
      }
      if (is_open(input.shape)) {
        return invalid_argument("input '{}' has shape {}; every dimension must be given", input.name,
                                input.shape.bound().to_string());
      }
      Value& value = graph_.value(found->second);
      store({.name = value.name, .dtype = input.dtype, .shape = input.shape}, value);
      SHOAL_RETURN_IF_ERROR(count_input(value));
      open.erase(found);
    }
    for (const auto& [name, id] : open) SHOAL_RETURN_IF_ERROR(bind_default(graph_.value(id)));
    return {};
  }

  static void store(const TypedValue& typed, Value& value) {
    value.dtype = typed.dtype;
    value.shape = typed.shape.bound();
    value.expressions = typed.shape.is_numeric() ? nullptr : std::make_shared<const SymbolicShape>(typed.shape);
  }

  /// The most elements that it may have; of open sizes, the fewest. Errors: kInvalidArgument: it is too large.
  Result<std::int64_t> extent(const Value& value) {
    const bool is_open = (mode_ == Mode::kSizes || is_finding_) && value.expressions;
    const Shape& shape = is_open ? least_ = value.expressions->least() : value.shape;
    std::int64_t count = 1;  // strides of empty tensors must not overflow, either
    bool is_empty = false, fits = shape.is_known();
    for (const std::int64_t size : shape) {
      is_empty |= size == 0;
      fits =
          fits && size >= 0 && !__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count) && count <= kMaxElements;
    }
    if (fits) return is_empty ? 0 : count;
    return invalid_argument("'{}' of shape {} is too large", value.name, value.sizes().to_string());
  }

  Status count_input(const Value& input) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t count, extent(input));
    elements_ += count;
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
    input.expressions = nullptr;  // of an earlier call
    if (input.dtype == DType::kInvalid) input.dtype = DType::kFloat32;
    if (!is_open(input.shape)) return count_input(input);
    if (mode_ == Mode::kParameters) return {};
    return invalid_argument("input '{}' is not given and the model's files hold no value for it; the model's inputs are {}",
                            input.name, names_of(graph_));
  }

  /// Finds the sizes that nodes leave to their readers. What is wrong is reported by the pass that follows.
  void find_open_sizes() {
    bool has_open_sizes = false;
    for_each_graph(std::as_const(graph_),
                   [&](const Graph& graph) { has_open_sizes |= std::ranges::any_of(graph.nodes, leaves_sizes_open); });
    if (!has_open_sizes) return;
    constexpr int kMostPasses = 16;  // one size may follow from another
    const std::int64_t given = elements_;
    is_finding_ = true;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      graph_.table->start_pass(true);
      static_cast<void>(visit_all());
      insert_casts();
      elements_ = given;
      if (!graph_.table->found_open_size()) break;
    }
    is_finding_ = false;
    graph_.table->start_pass(false);
  }

  Status visit_all() {
    is_made_of_constants_.resize(graph_.values.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      now_ = i;
      SHOAL_RETURN_IF_ERROR(refused == nullptr ? visit(graph_.nodes[i]) : visit_if_it_follows(graph_.nodes[i]));
    }
    return {};
  }

  Status visit_if_it_follows(Node& node) {
    const bool follows =
        std::ranges::all_of(node.inputs, [this](ValueId id) { return graph_.value(id).dtype != DType::kInvalid; });
    const std::size_t before = refused->size();  // more if nodes of its bodies are refused
    const Status visited = follows ? visit(node) : Status();
    if (follows && visited.ok()) return {};
    for (const ValueId id : node.outputs) store({}, graph_.value(id));
    if (!follows || is_finding_ || refused->size() > before) return {};
    const std::string prefix = describe(node) + ": ";  // the entry says it
    const std::string_view reason = visited.message();
    refused->push_back({node.source_op.empty() ? std::string(node.op->name) : node.source_op, path + node.name,
                        std::string(reason.starts_with(prefix) ? reason.substr(prefix.size()) : reason)});
    return {};
  }

  Status visit(Node& node) {
    if (const Arity& wanted = node.op->inputs; !wanted.holds(node.inputs.size())) {
      return invalid_argument("{}: {} inputs; {} are needed", describe(node), node.inputs.size(), wanted.to_text());
    }
    SHOAL_RETURN_IF_ERROR(promote_types(node));
    src_.resize(node.inputs.size());
    for (std::size_t i = 0; i < src_.size(); ++i) {
      const Value& value = graph_.value(node.inputs[i]);
      src_[i].name = value.name;
      src_[i].dtype = value.dtype;
      src_[i].shape = value.sizes();
    }
    dst_.clear();
    for (const ValueId id : node.outputs) {
      TypedValue& typed = dst_.emplace_back();
      typed.name = graph_.value(id).name;
      typed.table = graph_.table.get();
    }
    if (mode_ == Mode::kParameters) SHOAL_RETURN_IF_ERROR(supply_parameters(node));
    for (const ValueId id : node.inputs) {  // rules assume that tensors are not too large
      if (const auto fits = extent(graph_.value(id)); !fits.ok()) return fits.status().with_context(describe(node));
    }
    const bool is_made_of_constants = std::ranges::all_of(node.inputs, [this](ValueId id) { return follows_data(id); });
    for (const ValueId id : node.outputs) is_made_of_constants_[static_cast<std::size_t>(id)] = is_made_of_constants;
    SHOAL_RETURN_IF_ERROR(infer_bodies(node));
    SHOAL_RETURN_IF_ERROR(node.op->infer(node, src_, dst_));
    if (mode_ == Mode::kProgram && !is_finding_ && leaves_sizes_open(node) && !dst_[0].shape.is_numeric()) {
      return unimplemented("{}: the file leaves the size of its result open, and it depends on data ({})", describe(node),
                           dst_[0].shape.to_string());
    }
    for (std::size_t i = 0; i < dst_.size(); ++i) {
      Value& value = graph_.value(node.outputs[i]);
      store(dst_[i], value);
      SHOAL_RETURN_IF_ERROR(count_elements(node, value));
    }
    return {};
  }

  Status supply_parameters(const Node& node) {
    if (node.op->infer_parameters) node.op->infer_parameters(node, src_);
    for (std::size_t i = 0; i < src_.size(); ++i) {
      Value& value = graph_.value(node.inputs[i]);
      if (value.constant || value.producer != kNoNode || !is_open(value.shape)) continue;
      if (is_open(src_[i].shape))
        return invalid_argument("{}: the shape of '{}' does not follow from the inputs given", describe(node), value.name);
      store(src_[i], value);
    }
    return {};
  }

  /// Infers the bodies of the node from what the operator and the captures give them.
  Status infer_bodies(Node& node) {
    const BodyRules& rules = node.op->bodies;
    if (!std::cmp_equal(node.bodies.size(), rules.count))
      return invalid_argument("{}: {} bodies; {} are needed", describe(node), node.bodies.size(), rules.count);
    if (rules.count == 0) return {};
    const std::size_t own = rules.own_inputs(node);
    if (own > src_.size()) return invalid_argument("{}: {} inputs; it reads {} of its own", describe(node), src_.size(), own);
    for (const TypedValue& value : src_) SHOAL_RETURN_IF_ERROR(check_known(describe(node), value.name, value.shape));
    std::vector<bool> are_made_of_constants(node.outputs.size(), true);
    Status first_error;
    for (std::size_t index = 0; index < node.bodies.size(); ++index) {
      SHOAL_ASSIGN_OR_RETURN(std::vector<TypedValue> given, rules.inputs(node, std::span(src_).first(own), index));
      std::vector<bool> follow_data(given.size());  // what the operator gives is data
      for (std::size_t i = own; i < src_.size(); ++i) {
        given.push_back(src_[i]);
        follow_data.push_back(follows_data(node.inputs[i]));
      }
      Inference body(node.bodies[index], mode_);
      body.is_finding_ = is_finding_;
      body.refused = refused;
      if (refused != nullptr) body.path = path + node.name + "/";
      const std::string where = format("{}: body {}", describe(node), index);
      if (const Status inferred = body.run_body(where, graph_.table, given, follow_data); !inferred.ok()) {
        if (refused == nullptr) return inferred;
        if (first_error.ok()) first_error = inferred;  // the other bodies are looked at, too
        continue;
      }
      elements_ += body.elements_;
      if (elements_ > kMaxElements) return invalid_argument("{}: the graph is too large with it", where);
      // The results are the last outputs of each body: that of a loop gives a condition before them.
      const std::vector<GraphOutput>& results = body.graph_.outputs;
      for (std::size_t i = 0; i < node.outputs.size() && results.size() >= node.outputs.size(); ++i) {
        const ValueId result = results[results.size() - node.outputs.size() + i].value;
        are_made_of_constants[i] = are_made_of_constants[i] && body.follows_data(result);
      }
    }
    SHOAL_RETURN_IF_ERROR(first_error);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (are_made_of_constants[i]) is_made_of_constants_[static_cast<std::size_t>(node.outputs[i])] = true;
    }
    return {};
  }

  Status run_body(const std::string& where, std::shared_ptr<DimTable> table, SourceValues given,
                  const std::vector<bool>& follow_data) {
    if (given.size() != graph_.inputs.size())
      return invalid_argument("{} has {} inputs and is given {}", where, graph_.inputs.size(), given.size());
    graph_.table = std::move(table);
    is_made_of_constants_.resize(graph_.values.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      Value& value = graph_.value(graph_.inputs[i]);
      store(given[i], value);
      if (const Status counted = count_input(value); !counted.ok()) return counted.with_context(where);
      is_made_of_constants_[static_cast<std::size_t>(graph_.inputs[i])] = follow_data[i];
    }
    const Status visited = visit_all();
    insert_casts();
    if (!visited.ok()) return visited.with_context(where);
    for (const GraphOutput& output : graph_.outputs) {
      const Value& value = graph_.value(output.value);
      if (value.dtype == DType::kInvalid) return invalid_argument("{}: '{}' does not follow", where, value.name);
      if (const auto fits = extent(value); !fits.ok()) return fits.status().with_context(where);
      SHOAL_RETURN_IF_ERROR(check_known(where, value.name, value.sizes()));
    }
    return {};
  }

  /// What passes between a body and the graph around it has a size that is known before the run.
  Status check_known(const std::string& where, std::string_view name, const SymbolicShape& sizes) const {
    if (mode_ != Mode::kProgram || is_finding_ || sizes.is_numeric()) return {};
    return unimplemented("{}: the size of '{}' depends on data ({}), and a body neither takes nor gives such values", where, name,
                         sizes.to_string());
  }

  /// Plans and arenas add the sizes of many tensors. With this limit the sums cannot overflow.
  Status count_elements(const Node& node, const Value& value) {
    const auto count = extent(value);
    if (!count.ok()) return count.status().with_context(describe(node));
    elements_ += *count;
    if (elements_ <= kMaxElements) return {};
    return invalid_argument("{}: with '{}' of shape {} the tensors of the graph together have more than {} elements",
                            describe(node), value.name, value.sizes().to_string(), kMaxElements);
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

  /// Makes the node read its inputs in the types that its operator wants for them.
  Status promote_types(Node& node) {
    if (node.op->promote == nullptr) return adopt_types(node);
    const std::vector<ValueId> before = node.inputs;
    for (ValueId& id : node.inputs) {  // an earlier infer() may have inserted a Cast for other types
      const Value& value = graph_.value(id);
      if (value.converted_from < 0) continue;
      // The type of a float constant follows from the data: adopt_types() finds it.
      if (!follows_data(id) || !is_float(graph_.value(value.converted_from).dtype)) id = value.converted_from;
    }
    SHOAL_RETURN_IF_ERROR(adopt_types(node));
    std::vector<DType> types;
    for (const ValueId id : node.inputs) types.push_back(graph_.value(id).dtype);
    node.op->promote(node, types);
    for (std::size_t i = 0; i < types.size(); ++i) {
      ValueId& id = node.inputs[i];
      Value& value = graph_.value(id);
      if (value.dtype == types[i]) continue;
      // A constant was converted to the type of the data, perhaps to a narrower one: what is stored counts.
      if (value.converted_from >= 0 && follows_data(id) && follows_data(value.converted_from)) id = value.converted_from;
      if (mode_ == Mode::kParameters && value.producer == kNoNode && !value.constant && is_open(value.shape)) {
        value.dtype = types[i];  // a parameter whose shape follows from the data
      } else if (graph_.value(before[i]).converted_from == id && graph_.value(before[i]).dtype == types[i]) {
        id = before[i];
      } else if (graph_.value(id).dtype != types[i]) {
        SHOAL_ASSIGN_OR_RETURN(id, converted(node, id, types[i]));
      }
    }
    return {};
  }

  /// `stored` in another type for `node`, made once for all its readers.
  Result<ValueId> converted(const Node& node, ValueId stored, DType dtype) {
    const auto known = conversions_.find({stored, dtype});
    if (known != conversions_.end()) return known->second;
    Value copy = graph_.value(stored);
    const bool depends_on_data = !follows_data(stored);
    if (copy.constant && !(is_float(copy.dtype) && is_float(dtype))) copy.constant.reset();  // a Cast converts it
    if (!copy.constant) SHOAL_RETURN_IF_ERROR(count_elements(node, graph_.value(stored)));
    if (copy.constant) {
      copy.constant = convert_constant(*copy.constant, dtype);
      copy.constant->key = converted_key(graph_, stored, dtype);
    }
    copy.dtype = dtype;
    copy.converted_from = stored;
    const bool is_computed = !copy.constant;
    const ValueId id = graph_.add_value(std::move(copy));
    conversions_[{stored, dtype}] = id;
    is_made_of_constants_.push_back(is_computed && !depends_on_data);
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
    std::vector<InsertedCast> casts = std::move(casts_);
    casts_.clear();
    std::vector<Node> nodes;
    auto cast = casts.begin();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (; cast != casts.end() && cast->before == i; ++cast) nodes.push_back(std::move(cast->node));
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
  const Mode mode_;
  bool is_finding_ = false;            ///< open sizes: those that are not known yet have no useful bounds
  std::vector<TypedValue> src_, dst_;  ///< of the node now
  Shape least_;                        ///< of extent()
  std::int64_t elements_ = 0;          // of inputs and results so far; at most kMaxElements before each is added
  std::map<std::pair<ValueId, DType>, ValueId> conversions_;
  std::vector<bool> is_made_of_constants_;  ///< per value; constants themselves are not
  std::vector<InsertedCast> casts_;
  std::size_t now_ = 0;
};

std::vector<SizedInput> sized(std::span<const TensorSpec> inputs) {
  std::vector<SizedInput> all;
  for (const TensorSpec& input : inputs) all.push_back({input.name, input.dtype, input.shape});
  return all;
}

}  // namespace

Status infer(Graph& graph, std::span<const TensorSpec> inputs) {
  return Inference(graph, Mode::kProgram).run(std::make_shared<DimTable>(), sized(inputs));
}

Status infer_naming_shapes(Graph& graph, std::span<const TensorSpec> inputs) {
  const Status inferred = infer(graph, inputs);
  return inputs.empty() ? inferred : inferred.with_context("with " + names_and_shapes(inputs));
}

Status infer_what_follows(Graph& graph, std::span<const TensorSpec> inputs, std::vector<RefusedNode>& refused) {
  Inference inference(graph, Mode::kProgram);
  inference.refused = &refused;
  return inference.run(std::make_shared<DimTable>(), sized(inputs));
}

Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs) {
  return Inference(graph, Mode::kParameters).run(std::make_shared<DimTable>(), sized(inputs));
}

Status infer_sizes(Graph& graph, std::shared_ptr<DimTable> table, std::span<const SizedInput> inputs) {
  return Inference(graph, Mode::kSizes).run(std::move(table), inputs);
}

}  // namespace shoal::worker
