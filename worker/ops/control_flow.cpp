// If, Loop and Scan: operators that run graphs.
#include "worker/ops/control_flow.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMostTensors = 64;  // that a body is given, or gives: kernels allocate nothing

TensorSpec spec_of(const Value& value) { return {value.name, value.dtype, value.shape}; }
const Value& body_output(const Node& node, std::size_t body, std::size_t index) {
  const Graph& graph = node.bodies[body];
  return graph.value(graph.outputs[index].value);
}

Status check_count(const Node& node, const char* what, std::size_t count, std::size_t wanted) {
  if (wanted > kMostTensors) return unimplemented("{}: {} {}; at most {} can be run", describe(node), wanted, what, kMostTensors);
  if (count == wanted) return {};
  return invalid_argument("{}: {} {}; {} are needed", describe(node), count, what, wanted);
}

Status check_like(const Node& node, const char* what, const Value& value, DType dtype, const Shape& shape) {
  if (value.dtype == dtype && value.shape == shape) return {};
  return invalid_argument("{}: {} '{}' is {} {}; {} {} is needed", describe(node), what, value.name, dtype_name(value.dtype),
                          value.shape.to_string(), dtype_name(dtype), shape.to_string());
}

Status check_number_of(const Node& node, const char* what, const Value& value) {
  if (value.shape.element_count() == 1 && (is_integer(value.dtype) || value.dtype == DType::kBool || is_float(value.dtype)))
    return {};
  return invalid_argument("{}: {} '{}' is {} {}; one number is needed", describe(node), what, value.name, dtype_name(value.dtype),
                          value.shape.to_string());
}

bool is_true(const Node& node, const TensorView& number) {
  bool is_set = false;
  const DType type = number.dtype == DType::kBool ? DType::kUInt8 : number.dtype;
  (void)dispatch<Numbers>(node, type, [&]<typename T>() {
    is_set = static_cast<Compute<T>>(elements<T>(number)[0]) != 0;
    return Status();
  });
  return is_set;
}

void copy(const TensorView& src, const TensorView& dst) { std::memcpy(dst.data, src.data, dst.size_bytes()); }

// ---- If: the condition, then captures; two bodies without inputs of their own ----

Result<std::vector<TensorSpec>> given_to_branch(const Node&, SourceValues, std::size_t) { return std::vector<TensorSpec>(); }

Status infer_if(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number_of(node, "the condition", *src[0]));
  for (const Graph& branch : node.bodies)
    SHOAL_RETURN_IF_ERROR(check_count(node, "outputs of a branch", branch.outputs.size(), dst.size()));
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const Value& value = body_output(node, 0, i);
    SHOAL_RETURN_IF_ERROR(check_like(node, "in the other branch", body_output(node, 1, i), value.dtype, value.shape));
    set_result(*dst[i], value.dtype, value.shape);
  }
  return {};
}

Status run_if(const Node& node, BodyRunner& bodies, Sources src, std::span<TensorView> dst, std::span<TensorView>) {
  return bodies.run(is_true(node, src[0]) ? 0 : 1, {}, dst);
}

// ---- Loop: the number of turns, a condition, states, then captures ----

std::size_t states_of(const Node& node) { return static_cast<std::size_t>(node.attributes.get<LoopAttributes>().states); }
std::size_t loop_inputs(const Node& node) { return 2 + states_of(node); }

Result<std::vector<TensorSpec>> given_to_loop(const Node& node, SourceValues src, std::size_t) {
  std::vector<TensorSpec> given{{"", DType::kInt64, Shape{1}}};
  for (std::size_t i = 0; i < states_of(node); ++i) given.push_back(spec_of(*src[2 + i]));
  return given;
}

Status infer_loop(const Node& node, SourceValues src, ResultValues dst) {
  const std::size_t states = states_of(node);
  SHOAL_RETURN_IF_ERROR(check_number_of(node, "the number of turns", *src[0]));
  SHOAL_RETURN_IF_ERROR(check_number_of(node, "the condition", *src[1]));
  SHOAL_RETURN_IF_ERROR(check_count(node, "outputs", dst.size(), states));
  SHOAL_RETURN_IF_ERROR(check_count(node, "outputs of the body", node.bodies[0].outputs.size(), 1 + states));
  if (!is_integer(src[0]->dtype))
    return invalid_argument("{}: the number of turns '{}' is {}; an integer is needed", describe(node), src[0]->name,
                            dtype_name(src[0]->dtype));
  SHOAL_RETURN_IF_ERROR(check_number_of(node, "the body's condition", body_output(node, 0, 0)));
  if (const DType type = body_output(node, 0, 0).dtype; type != node.attributes.get<LoopAttributes>().condition)
    return invalid_argument("{}: the body's condition '{}' is {}, and not what the attribute says", describe(node),
                            body_output(node, 0, 0).name, dtype_name(type));
  for (std::size_t i = 0; i < states; ++i) {
    const Value& state = *src[2 + i];
    SHOAL_RETURN_IF_ERROR(check_like(node, "the body's state", body_output(node, 0, 1 + i), state.dtype, state.shape));
    set_result(*dst[i], state.dtype, state.shape);
  }
  return {};
}

/// A second place for each state, one for the condition, and one for the number of the turn.
std::vector<TensorSpec> loop_scratch(const Node& node, Sources src, std::span<const TensorView>) {
  std::vector<TensorSpec> scratch;
  for (std::size_t i = 0; i < states_of(node); ++i) scratch.push_back({"", src[2 + i].dtype, src[2 + i].shape});
  scratch.push_back({"", DType::kFloat64, Shape{1}});  // room for any type: the body's condition has its own
  scratch.push_back({"", DType::kInt64, Shape{1}});
  return scratch;
}

std::int64_t turns_of(const Node& node, const TensorView& number) {
  std::int64_t turns = 0;
  (void)dispatch<Integers>(node, number.dtype, [&]<typename T>() {
    const T count = load_once(elements<T>(number));
    turns = std::cmp_less(count, std::numeric_limits<std::int64_t>::max()) ? static_cast<std::int64_t>(count)
                                                                           : std::numeric_limits<std::int64_t>::max();
    return Status();
  });
  return turns;
}

Status run_loop(const Node& node, BodyRunner& bodies, Sources src, std::span<TensorView> dst, std::span<TensorView> scratch) {
  const std::size_t states = states_of(node);
  const std::int64_t turns = turns_of(node, src[0]);
  bool goes_on = is_true(node, src[1]);
  std::array<TensorView, kMostTensors + 1> given, made;
  TensorView& number = scratch[states + 1];
  given[0] = number;
  made[0] = scratch[states];
  made[0].dtype = node.attributes.get<LoopAttributes>().condition;
  for (std::size_t i = 0; i < states; ++i) given[1 + i] = src[2 + i];
  std::int64_t turn = 0;
  for (; turn < turns && goes_on; ++turn) {
    elements<std::int64_t>(number)[0] = turn;
    for (std::size_t i = 0; i < states; ++i) made[1 + i] = turn % 2 == 0 ? dst[i] : scratch[i];
    SHOAL_RETURN_IF_ERROR(bodies.run(0, std::span(given).first(1 + states), std::span(made).first(1 + states)));
    goes_on = is_true(node, made[0]);
    for (std::size_t i = 0; i < states; ++i) given[1 + i] = made[1 + i];
  }
  if (turn % 2 == 0) {
    for (std::size_t i = 0; i < states; ++i) copy(given[1 + i], dst[i]);
  }
  return {};
}

// ---- Scan: tensors of which each turn takes a row, states, then captures ----

std::size_t scanned_of(const Node& node) { return static_cast<std::size_t>(node.attributes.get<ScanAttributes>().scanned); }
std::size_t scan_states_of(const Node& node) { return static_cast<std::size_t>(node.attributes.get<ScanAttributes>().states); }
std::size_t scan_inputs(const Node& node) { return scanned_of(node) + scan_states_of(node); }

Shape row_of(const Shape& shape) { return Shape(shape.dims().subspan(1)); }

Result<std::vector<TensorSpec>> given_to_scan(const Node& node, SourceValues src, std::size_t) {
  std::vector<TensorSpec> given;
  for (std::size_t i = 0; i < scan_inputs(node); ++i) {
    given.push_back(spec_of(*src[i]));
    if (i >= scanned_of(node)) continue;
    SHOAL_RETURN_IF_ERROR(check_rank(node, *src[i], 2));
    if (src[i]->shape[0] != src[0]->shape[0])
      return invalid_argument("{}: '{}' has {} rows and '{}' has {}", describe(node), src[i]->name, src[i]->shape[0],
                              src[0]->name, src[0]->shape[0]);
    given.back().shape = row_of(src[i]->shape);
  }
  return given;
}

Status infer_scan(const Node& node, SourceValues src, ResultValues dst) {
  const std::size_t states = scan_states_of(node), scanned = scanned_of(node);
  if (scanned == 0) return invalid_argument("{}: nothing is scanned", describe(node));
  SHOAL_RETURN_IF_ERROR(check_count(node, "outputs", dst.size(), node.bodies[0].outputs.size()));
  if (dst.size() < states)
    return invalid_argument("{}: {} outputs; {} states are among them", describe(node), dst.size(), states);
  const std::size_t stacked = dst.size() - states;
  for (std::size_t i = 0; i < stacked; ++i) {
    const Value& row = body_output(node, 0, i);
    std::vector<std::int64_t> dims{src[0]->shape[0]};
    dims.insert(dims.end(), row.shape.begin(), row.shape.end());
    SHOAL_ASSIGN_OR_RETURN(const Shape shape, make_shape(node, dims));
    set_result(*dst[i], row.dtype, shape);
  }
  for (std::size_t i = 0; i < states; ++i) {
    const Value& state = *src[scanned + i];
    SHOAL_RETURN_IF_ERROR(check_like(node, "the body's state", body_output(node, 0, stacked + i), state.dtype, state.shape));
    set_result(*dst[stacked + i], state.dtype, state.shape);
  }
  return {};
}

/// A second place for each state.
std::vector<TensorSpec> scan_scratch(const Node& node, Sources src, std::span<const TensorView>) {
  std::vector<TensorSpec> scratch;
  for (std::size_t i = scanned_of(node); i < scan_inputs(node); ++i) scratch.push_back({"", src[i].dtype, src[i].shape});
  return scratch;
}

TensorView row(const TensorView& whole, std::int64_t index) {
  TensorView part{whole.dtype, row_of(whole.shape), nullptr};
  part.data = whole.data + static_cast<std::size_t>(index) * part.size_bytes();
  return part;
}

Status run_scan(const Node& node, BodyRunner& bodies, Sources src, std::span<TensorView> dst, std::span<TensorView> scratch) {
  const std::size_t scanned = scanned_of(node), states = scan_states_of(node), stacked = dst.size() - states;
  std::array<TensorView, kMostTensors> given, made;
  for (std::size_t i = 0; i < states; ++i) given[scanned + i] = src[scanned + i];
  const std::int64_t turns = src[0].shape[0];
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < scanned; ++i) given[i] = row(src[i], turn);
    for (std::size_t i = 0; i < stacked; ++i) made[i] = row(dst[i], turn);
    for (std::size_t i = 0; i < states; ++i) made[stacked + i] = turn % 2 == 0 ? dst[stacked + i] : scratch[i];
    SHOAL_RETURN_IF_ERROR(bodies.run(0, std::span(given).first(scanned + states), std::span(made).first(dst.size())));
    for (std::size_t i = 0; i < states; ++i) given[scanned + i] = made[stacked + i];
  }
  if (turns % 2 == 0) {
    for (std::size_t i = 0; i < states; ++i) copy(given[scanned + i], dst[stacked + i]);
  }
  return {};
}

}  // namespace

namespace ops {

const Operator kIf({
    .name = "If",
    .inputs = {1, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .infer = infer_if,
    .facts = indexed_facts(rows_mixed, 0),
    .bodies = {.count = 2, .own_inputs = [](const Node&) { return std::size_t{1}; }, .inputs = given_to_branch, .run = run_if},
    .formula = "condition, captures...: the outputs of body 0 if the condition, one number, is not 0; else those of body 1. Both "
               "have the same types and shapes",
    .source = "ONNX If; MXNet 1.9.1 src/operator/control_flow.cc _cond",
});

const Operator kLoop({
    .name = "Loop",
    .inputs = {3, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<LoopAttributes>,
    .infer = infer_loop,
    .facts = indexed_facts(rows_mixed, 0),
    .bodies = {.count = 1, .own_inputs = loop_inputs, .inputs = given_to_loop, .scratch = loop_scratch, .run = run_loop},
    .formula =
        "most, condition, states..., captures...: while the condition is not 0, and at most `most` times: condition, states... "
        "= body(number of the turn, states..., captures...). The outputs are the states",
    .source = "ONNX Loop without scanned outputs; MXNet 1.9.1 src/operator/control_flow.cc _while_loop",
});

const Operator kScan({
    .name = "Scan",
    .inputs = {1, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<ScanAttributes>,
    .infer = infer_scan,
    .facts = layer_facts(rows_mixed),
    .bodies = {.count = 1, .own_inputs = scan_inputs, .inputs = given_to_scan, .scratch = scan_scratch, .run = run_scan},
    .formula = "scanned..., states..., captures...: for each row of axis 0: results..., states... = body(rows..., states..., "
               "captures...). The outputs are the results, stacked along a new axis 0, and the states",
    .source = "ONNX Scan; MXNet 1.9.1 src/operator/control_flow.cc _foreach",
});

}  // namespace ops

}  // namespace shoal::worker
