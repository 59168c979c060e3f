// If, Loop and Scan: operators that run graphs, which are the bodies of their nodes.
#include "worker/ops/control_flow.hpp"

#include <algorithm>
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
using Views = std::array<TensorView, kMostTensors>;

std::size_t count_of(std::int64_t attribute) { return static_cast<std::size_t>(std::max<std::int64_t>(attribute, 0)); }

/// What a body gives, as rules see values.
TypedValue body_output(const Node& node, std::size_t body, std::size_t index) {
  const Graph& graph = node.bodies[body];
  const Value& value = graph.value(graph.outputs[index].value);
  return {.name = value.name, .dtype = value.dtype, .shape = value.sizes()};
}

Status check_count(const Node& node, std::size_t body, std::size_t wanted) {
  const std::size_t count = node.bodies[body].outputs.size();
  if (wanted > kMostTensors)
    return unimplemented("{}: {} outputs of a body; at most {} are supported", describe(node), wanted, kMostTensors);
  if (count == wanted) return {};
  return invalid_argument("{}: body {} has {} outputs; {} are needed", describe(node), body, count, wanted);
}

/// What body gives is of the type and shape that are needed.
Status check_like(const Node& node, std::size_t body, const TypedValue& given, const TypedValue& wanted) {
  if (given.dtype == wanted.dtype && unify(given.shape, wanted.shape)) return {};
  return invalid_argument("{}: body {} gives '{}' of {} {}, where {} {} like '{}' is needed", describe(node), body, given.name,
                          dtype_name(given.dtype), given.shape.to_string(), dtype_name(wanted.dtype), wanted.shape.to_string(),
                          wanted.name);
}

Status check_one_number(const Node& node, const char* role, const TypedValue& value) {
  if (!known_unequal(value.shape.element_count(), 1)) return {};
  return invalid_argument("{}: {} '{}' has shape {}; one number is needed", describe(node), role, value.name,
                          value.shape.to_string());
}

/// It is read once, because a client may change it meanwhile.
bool is_true(const Node& node, const TensorView& number) {
  bool is_set = false;
  const DType type = number.dtype == DType::kBool ? DType::kUInt8 : number.dtype;  // a bool of a client may be any byte
  (void)dispatch<Numbers>(node, type, [&]<typename T>() {
    is_set = static_cast<Compute<T>>(elements<T>(number)[0]) != 0;
    return Status();
  });
  return is_set;
}

void copy(const TensorView& src, const TensorView& dst) {
  if (dst.size_bytes() > 0) std::memcpy(dst.data, src.data, dst.size_bytes());
}

/// The shape of `rows` such tensors, stacked along a new axis 0.
Result<SymbolicShape> stacked(const Node& node, Dim rows, const SymbolicShape& row) {
  std::vector<Dim> dims{rows};
  dims.insert(dims.end(), row.begin(), row.end());
  return make_shape(node, dims);
}

/// The sizes of a row of axis 0.
template <typename S>
S row_of(const S& whole, std::int64_t least_rank) {
  if (whole.rank() == 1 && least_rank > 0) return S{1};
  return S(whole.dims().subspan(1));
}

TensorView row(const TensorView& whole, std::int64_t index, std::int64_t least_rank = 0) {
  TensorView part{whole.dtype, row_of(whole.shape, least_rank), whole.data};
  part.data += static_cast<std::size_t>(index) * part.size_bytes();
  return part;
}

/// Sets the rows from number `first` on to 0.
void clear_rows(TensorView& whole, std::int64_t first) {
  const TensorView begin = row(whole, first);
  const std::size_t bytes = static_cast<std::size_t>(whole.shape[0] - first) * begin.size_bytes();
  if (bytes > 0) std::memset(begin.data, 0, bytes);
}

/// Each turn reads the states at one place and writes them at another one: `dst` and `spare` by turns. Returns where they are
/// written in that turn.
std::span<TensorView> written_states(std::int64_t turn, std::span<TensorView> dst, std::span<TensorView> spare) {
  return turn % 2 == 0 ? dst : spare;
}

/// Brings the states to `dst` after so many turns.
void finish_states(std::int64_t turns, std::span<const TensorView> states, std::span<TensorView> dst) {
  if (turns % 2 != 0) return;  // the last turn wrote them there
  for (std::size_t i = 0; i < states.size(); ++i) copy(states[i], dst[i]);
}

/// The results of a node whose body repeats: its states, then the rows that its turns give, stacked.
///   states   what the node is given as states
///   first    the first output of the body that is a state
///   rows_of  how many rows a stacked result has
template <typename RowsOf>
Status infer_repeated(const Node& node, SourceValues states, std::size_t first, RowsOf rows_of, ResultValues dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const TypedValue result = body_output(node, 0, first + i);
    SymbolicShape shape = result.shape;
    if (i < states.size()) {
      SHOAL_RETURN_IF_ERROR(check_like(node, 0, result, states[i]));
    } else {
      SHOAL_ASSIGN_OR_RETURN(shape, stacked(node, rows_of(dst[i]), result.shape));
    }
    set_result(dst[i], result.dtype, shape);
  }
  return {};
}

Status check_has_states(const Node& node, std::size_t states, ResultValues dst) {
  if (dst.size() >= states) return {};
  return invalid_argument("{}: {} outputs; {} states are among them", describe(node), dst.size(), states);
}

/// A second place for each state.
std::vector<TensorView> second_places(Sources states) {
  std::vector<TensorView> places;
  for (const TensorView& state : states) places.push_back({state.dtype, state.shape, nullptr});
  return places;
}

// ---- If: the condition, then captures; two bodies without inputs of their own ----

constexpr std::size_t kThen = 0, kElse = 1;

Result<std::vector<TypedValue>> given_to_branch(const Node&, SourceValues, std::size_t) { return std::vector<TypedValue>(); }

Status infer_if(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_one_number(node, "the condition", src[0]));
  for (const std::size_t body : {kThen, kElse}) SHOAL_RETURN_IF_ERROR(check_count(node, body, dst.size()));
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const TypedValue result = body_output(node, kThen, i);
    SHOAL_RETURN_IF_ERROR(check_like(node, kElse, body_output(node, kElse, i), result));
    set_result(dst[i], result.dtype, result.shape);
  }
  return {};
}

Status run_if(const Node& node, BodyRunner& bodies, Sources src, Results dst, Results) {
  return bodies.run(is_true(node, src[0]) ? kThen : kElse, {}, dst);
}

// ---- Loop: the number of turns, a condition, states, then captures ----

std::size_t loop_states(const Node& node) { return count_of(node.attributes.get<LoopAttributes>().states); }
std::size_t loop_inputs(const Node& node) { return 2 + loop_states(node); }

Result<std::vector<TypedValue>> given_to_loop(const Node&, SourceValues src, std::size_t) {
  std::vector<TypedValue> given{{.name = "turn", .dtype = DType::kInt64, .shape = Shape()}};
  given.insert(given.end(), src.begin() + 2, src.end());
  return given;
}

Status infer_loop(const Node& node, SourceValues src, ResultValues dst) {
  const std::size_t states = loop_states(node);
  const std::int64_t most = node.attributes.get<LoopAttributes>().most_turns;
  SHOAL_RETURN_IF_ERROR(check_one_number(node, "the number of turns", src[0]));
  if (!is_integer(src[0].dtype))
    return invalid_argument("{}: the number of turns '{}' is {}; an integer is needed", describe(node), src[0].name,
                            dtype_name(src[0].dtype));
  SHOAL_RETURN_IF_ERROR(check_one_number(node, "the condition", src[1]));
  SHOAL_RETURN_IF_ERROR(check_count(node, 0, 1 + dst.size()));
  SHOAL_RETURN_IF_ERROR(check_has_states(node, states, dst));
  if (most < 0 || (most == 0 && dst.size() > states))
    return invalid_argument("{}: most_turns is {}; results can be stacked only if there is a limit", describe(node), most);
  SHOAL_RETURN_IF_ERROR(check_one_number(node, "the condition that body 0 gives,", body_output(node, 0, 0)));
  const bool pads = node.attributes.get<LoopAttributes>().pads;
  const auto turns = [most, pads](TypedValue& stack) { return pads ? Dim(most) : size_from_data(stack, 0, most); };
  return infer_repeated(node, src.subspan(2, states), 1, turns, dst);
}

/// A second place for each state, the condition that the body gives, and the number of the turn.
std::vector<TensorView> loop_scratch(const Node& node, Sources src) {
  std::vector<TensorView> scratch = second_places(src.subspan(2));
  const TypedValue condition = body_output(node, 0, 0);
  scratch.push_back({condition.dtype, condition.shape.bound(), nullptr});
  scratch.push_back({DType::kInt64, Shape(), nullptr});
  return scratch;
}

/// At most as many as the attribute allows. The number is read once, because a client may change it meanwhile.
std::int64_t turns_of(const Node& node, const TensorView& number) {
  constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  std::int64_t turns = 0;
  (void)dispatch<Integers>(node, number.dtype, [&]<typename T>() {
    const T count = load_once(elements<T>(number));
    turns = std::cmp_less(count, kEndless) ? static_cast<std::int64_t>(count) : kEndless;
    return Status();
  });
  const std::int64_t most = node.attributes.get<LoopAttributes>().most_turns;
  return most > 0 ? std::min(turns, most) : turns;
}

Status run_loop(const Node& node, BodyRunner& bodies, Sources src, Results dst, Results scratch) {
  const std::size_t states = loop_states(node);
  const std::int64_t turns = turns_of(node, src[0]);
  bool goes_on = is_true(node, src[1]);
  TensorView &condition = scratch[states], &number = scratch[states + 1];
  Views given, made;
  given[0] = number;
  made[0] = condition;
  std::ranges::copy(src.subspan(2), given.begin() + 1);
  std::int64_t turn = 0;
  for (; turn < turns && goes_on; ++turn) {
    elements<std::int64_t>(number)[0] = turn;
    std::ranges::copy(written_states(turn, dst.first(states), scratch.first(states)), made.begin() + 1);
    for (std::size_t i = states; i < dst.size(); ++i) made[1 + i] = row(dst[i], turn);
    SHOAL_RETURN_IF_ERROR(bodies.run(0, std::span(given).first(1 + states), std::span(made).first(1 + dst.size())));
    goes_on = is_true(node, condition);
    std::copy_n(made.begin() + 1, states, given.begin() + 1);
  }
  finish_states(turn, std::span(given).subspan(1, states), dst.first(states));
  for (TensorView& stack : dst.subspan(states)) {
    if (node.attributes.get<LoopAttributes>().pads)
      clear_rows(stack, turn);
    else
      stack.shape[0] = turn;
  }
  return {};
}

// ---- Scan: tensors of which each turn takes a row, states, then captures ----

std::size_t scanned_of(const Node& node) { return count_of(node.attributes.get<ScanAttributes>().scanned); }
std::size_t scan_states(const Node& node) { return count_of(node.attributes.get<ScanAttributes>().states); }
std::int64_t scan_least_rank(const Node& node) { return node.attributes.get<ScanAttributes>().least_rank; }
std::size_t scan_inputs(const Node& node) { return scanned_of(node) + scan_states(node); }

Result<std::vector<TypedValue>> given_to_scan(const Node& node, SourceValues src, std::size_t) {
  const std::size_t scanned = scanned_of(node);
  const std::int64_t least_rank = scan_least_rank(node);
  if (scanned == 0) return invalid_argument("{}: nothing is scanned", describe(node));
  if (least_rank != 0 && least_rank != 1)
    return invalid_argument("{}: least_rank is {}; 0 and 1 are possible", describe(node), least_rank);
  std::vector<TypedValue> given(src.begin(), src.end());
  for (std::size_t i = 0; i < scanned; ++i) {
    SHOAL_RETURN_IF_ERROR(check_rank(node, src[i], 1));
    if (known_unequal(src[i].shape[0], src[0].shape[0]))
      return invalid_argument("{}: '{}' has {} rows and '{}' has {}", describe(node), src[i].name, src[i].shape[0].to_string(),
                              src[0].name, src[0].shape[0].to_string());
    given[i].shape = row_of(src[i].shape, least_rank);
  }
  return given;
}

Status infer_scan(const Node& node, SourceValues src, ResultValues dst) {
  const std::size_t states = scan_states(node), scanned = scanned_of(node);
  if (scanned + states > kMostTensors)
    return unimplemented("{}: {} inputs of its own; at most {} are supported", describe(node), scanned + states, kMostTensors);
  SHOAL_RETURN_IF_ERROR(check_count(node, 0, dst.size()));
  SHOAL_RETURN_IF_ERROR(check_has_states(node, states, dst));
  const auto rows = [&](TypedValue&) { return src[0].shape[0]; };
  return infer_repeated(node, src.subspan(scanned, states), 0, rows, dst);
}

std::vector<TensorView> scan_scratch(const Node& node, Sources src) { return second_places(src.subspan(scanned_of(node))); }

Status run_scan(const Node& node, BodyRunner& bodies, Sources src, Results dst, Results scratch) {
  const std::size_t scanned = scanned_of(node), states = scan_states(node);
  Views given, made;
  std::ranges::copy(src.subspan(scanned), given.begin() + static_cast<std::ptrdiff_t>(scanned));
  const std::int64_t turns = src[0].shape[0], least_rank = scan_least_rank(node);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < scanned; ++i) given[i] = row(src[i], turn, least_rank);
    std::ranges::copy(written_states(turn, dst.first(states), scratch), made.begin());
    for (std::size_t i = states; i < dst.size(); ++i) made[i] = row(dst[i], turn);
    SHOAL_RETURN_IF_ERROR(bodies.run(0, std::span(given).first(scanned + states), std::span(made).first(dst.size())));
    std::copy_n(made.begin(), states, given.begin() + static_cast<std::ptrdiff_t>(scanned));
  }
  finish_states(turns, std::span(given).subspan(scanned, states), dst.first(states));
  return {};
}

}  // namespace

namespace ops {

const Operator kIf({
    .name = "If",
    .inputs = {1, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .infer = infer_if,
    .facts = layer_facts(rows_mixed, work_without_bound, Accuracy::kLost),
    .bodies = {.count = 2, .own_inputs = [](const Node&) { return std::size_t{1}; }, .inputs = given_to_branch, .run = run_if},
    .formula = "condition, captures...: the results of body 0 if the condition, one number, is not 0; else those of body 1. Both "
               "bodies read the captures, and give the same types and shapes",
    .source = "ONNX If; MXNet 1.9.1 src/operator/control_flow.cc _cond",
});

const Operator kLoop({
    .name = "Loop",
    .inputs = {2, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<LoopAttributes>,
    .infer = infer_loop,
    .facts = indexed_facts(rows_mixed, 0, work_without_bound, Accuracy::kLost),
    .bodies = {.count = 1, .own_inputs = loop_inputs, .inputs = given_to_loop, .scratch = loop_scratch, .run = run_loop},
    .formula =
        "turns, condition, states..., captures...: while the condition is not 0, and at most `turns` and `most_turns` times: "
        "condition, states..., rows... = body(number of the turn, states..., captures...). The results are the states, and "
        "the rows of each kind stacked along a new axis 0, whose size depends on data unless the rows are padded. States keep "
        "their "
        "types and shapes. A loop of a known number of turns is a Scan",
    .source = "ONNX Loop; MXNet 1.9.1 src/operator/control_flow.cc _while_loop",
});

const Operator kScan({
    .name = "Scan",
    .inputs = {1, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<ScanAttributes>,
    .infer = infer_scan,
    .facts = layer_facts(rows_mixed, work_without_bound, Accuracy::kLost),
    .bodies = {.count = 1, .own_inputs = scan_inputs, .inputs = given_to_scan, .scratch = scan_scratch, .run = run_scan},
    .formula =
        "scanned..., states..., captures...: for each row of axis 0 of what is scanned: states..., rows... = body(rows of "
        "scanned..., states..., captures...). The results are the states, and the rows of each kind stacked along a new axis "
        "0. States keep their types and shapes",
    .source = "ONNX Scan; MXNet 1.9.1 src/operator/control_flow.cc _foreach",
});

}  // namespace ops

}  // namespace shoal::worker
