// Control flow: nodes that have graphs of their own. Each graph has variables, which attributes bind to inputs of the node.
//
//   _foreach     inputs: data, states, rest. The body's variables at in_data_locs, in_state_locs and remain_locs are these, in
//   order.
//                The body gives rows, then states; so does the node.
//   _while_loop  variable k of the condition is input cond_input_locs[k], that of the body input func_input_locs[k]. State i is
//                variable func_var_locs[i] of the body, and in the condition the variable that is the same input. The body gives
//                rows, then states; so does the node, whose rows are padded to max_iterations.
//   _cond        variable k of the three graphs is input cond_input_locs[k], then_input_locs[k] or else_input_locs[k].
#include <algorithm>
#include <memory>

#include "shm/base/errors.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/control_flow.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

ValueId add_input(Graph& body, const std::string& name) {
  body.inputs.push_back(body.add_value({.name = name}));
  return body.inputs.back();
}

ValueId add_number(Graph& graph, std::int64_t number) {
  const auto owner = std::make_shared<const std::int64_t>(number);
  const Constant constant{DType::kInt64, Shape(), std::as_bytes(std::span(owner.get(), 1)), owner};
  return graph.add_value({.name = std::to_string(number), .dtype = DType::kInt64, .shape = Shape(), .constant = constant});
}

void finish_body(Graph& body, const Values& outputs) {
  for (const ValueId value : outputs) body.outputs.push_back({"output" + std::to_string(body.outputs.size()), value});
  body.remove_unneeded_nodes();
}

Status check_subgraphs(const MxnetLowering& lowering, std::size_t wanted) {
  if (lowering.node.subgraphs.size() == wanted) return {};
  return invalid_argument("{} subgraphs where {} are needed", lowering.node.subgraphs.size(), wanted);
}

const std::string& name_of(const MxnetLowering& lowering, std::size_t input) {
  return lowering.graph.value(lowering.inputs[input]).name;
}

/// The first loop with a condition in the graph or in graphs within it, or null.
const MxnetNode* find_while_loop(const MxnetSymbol& symbol) {
  for (const MxnetNode& node : symbol.nodes) {
    if (node.op == "_while_loop" || node.op == "_npx_while_loop") return &node;
    for (const MxnetSymbol& inner : node.subgraphs) {
      if (const MxnetNode* const found = find_while_loop(inner)) return found;
    }
  }
  return nullptr;
}

/// Counts the inputs of bodies before they are made: a body has an input of the node at most `times` times.
Status take_inputs(MxnetLowering& lowering, std::size_t times) {
  for (const ValueId input : lowering.inputs)
    SHOAL_RETURN_IF_ERROR(lowering.budget.take("the inputs of its bodies", times, value_bytes(lowering.graph.value(input).name)));
  return {};
}

/// Reads which of `count` things each of some others is.
Result<Dims> read_places(AttributeReader& attributes, const char* key, std::size_t count) {
  Dims places = attributes.tuple(key, {}, 0);
  SHOAL_RETURN_IF_ERROR(attributes.status());
  for (const std::int64_t place : places) {
    if (std::cmp_less(place, count)) continue;
    return invalid_argument("attribute {} holds {}; it counts {}", key, place, count);
  }
  return places;
}

/// The numbers of outputs, and of those that are stacked rows; the others are states.
struct Outputs {
  std::size_t all = 0, rows = 0;
  std::size_t states() const { return all - rows; }
};
Result<Outputs> read_outputs(AttributeReader& attributes) {
  const Outputs outputs{at(attributes.integer("num_outputs", {}, 1)), at(attributes.integer("num_out_data", {}, 0))};
  SHOAL_RETURN_IF_ERROR(attributes.status());
  if (outputs.rows <= outputs.all) return outputs;
  return invalid_argument("attribute num_out_data is {}, and num_outputs {}", outputs.rows, outputs.all);
}

/// From rows and states to states and rows, or back: `first` are those in front.
Values turned(Values values, std::size_t first) {
  std::rotate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(first), values.end());
  return values;
}

Values chosen(const Values& from, const Dims& places) {
  Values found;
  for (const std::int64_t place : places) found.push_back(from[at(place)]);
  return found;
}

Result<Values> lower_foreach(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const std::size_t count = lowering.inputs.size();
  SHOAL_ASSIGN_OR_RETURN(const Dims data, read_places(attributes, "in_data_locs", count));
  SHOAL_ASSIGN_OR_RETURN(const Dims states, read_places(attributes, "in_state_locs", count));
  SHOAL_ASSIGN_OR_RETURN(const Dims rest, read_places(attributes, "remain_locs", count));
  SHOAL_ASSIGN_OR_RETURN(const Outputs outputs, read_outputs(attributes));
  SHOAL_RETURN_IF_ERROR(check_subgraphs(lowering, 1));
  if (data.empty()) return invalid_argument("attribute in_data_locs is empty: there is nothing to go through");
  if (states.size() != outputs.states())
    return unimplemented("its body reads {} of its {} states; all are needed", states.size(), outputs.states());
  if (attributes.has("in_state_index")) {  // MXNet 2: which states the body reads
    const Dims read = attributes.tuple("in_state_index");
    for (std::size_t i = 0; i < std::max(read.size(), states.size()); ++i) {
      if (read.size() != states.size() || read[i] != static_cast<std::int64_t>(i))
        return unimplemented("attribute in_state_index: the body reads only some states, or in another order");
    }
  }

  SHOAL_RETURN_IF_ERROR(take_inputs(lowering, 1));
  Graph body;
  Values arguments(count, kNoValue);
  for (const Dims* const places : {&data, &states, &rest}) {
    for (const std::int64_t place : *places) {
      if (arguments[at(place)] != kNoValue)
        return invalid_argument("attributes in_data_locs, in_state_locs and remain_locs hold {} twice", place);
      arguments[at(place)] = add_input(body, name_of(lowering, body.inputs.size()));  // they stand in the node's order
    }
  }
  if (body.inputs.size() != count)
    return invalid_argument("attributes in_data_locs, in_state_locs and remain_locs are for {} inputs, and it has {}",
                            body.inputs.size(), count);
  SHOAL_ASSIGN_OR_RETURN(const Values made, lowering.lower_subgraph(0, arguments, outputs.all, body));
  finish_body(body, turned(made, outputs.rows));
  const ScanAttributes scan{.scanned = static_cast<std::int64_t>(data.size()),
                            .states = static_cast<std::int64_t>(states.size()),
                            .least_rank = lowering.node.subgraphs[0].np_shape ? 0 : 1};
  const Values results = lowering.add(ops::kScan, scan, lowering.inputs, outputs.all);
  if (results.empty()) return attributes.status();
  lowering.graph.nodes.back().bodies.push_back(std::move(body));
  return turned(results, outputs.states());
}

/// The body of a Loop: the body of the file, then the condition of what it gives.
Result<Values> lower_while_loop(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  SHOAL_ASSIGN_OR_RETURN(const Dims of_condition, read_places(attributes, "cond_input_locs", lowering.inputs.size()));
  SHOAL_ASSIGN_OR_RETURN(const Dims of_body, read_places(attributes, "func_input_locs", lowering.inputs.size()));
  SHOAL_ASSIGN_OR_RETURN(const Dims variables, read_places(attributes, "func_var_locs", of_body.size()));
  SHOAL_ASSIGN_OR_RETURN(const Outputs outputs, read_outputs(attributes));
  const std::int64_t most_turns = attributes.integer("max_iterations", {}, 1);
  SHOAL_RETURN_IF_ERROR(attributes.status());
  SHOAL_RETURN_IF_ERROR(check_subgraphs(lowering, 2));
  // The condition is lowered twice, so loops within conditions would double the work at every depth.
  if (const MxnetNode* const inner = find_while_loop(lowering.node.subgraphs[0]))
    return unimplemented("its condition holds the loop '{}'; a loop within a condition is not supported", inner->name);
  if (variables.size() != outputs.states())
    return invalid_argument("attribute func_var_locs has {} entries where there are {} states", variables.size(),
                            outputs.states());

  SHOAL_RETURN_IF_ERROR(take_inputs(lowering, 2));
  Graph body;
  add_input(body, "turn");
  Values sources, arguments(of_body.size(), kNoValue), captured(lowering.inputs.size(), kNoValue);
  std::vector<std::int64_t> state_of(lowering.inputs.size(), -1);  // the state that begins with the input
  for (const std::int64_t variable : variables) {
    const std::int64_t input = of_body[at(variable)];
    if (state_of[at(input)] >= 0) return invalid_argument("attribute func_var_locs: two states are input {}", input);
    state_of[at(input)] = static_cast<std::int64_t>(sources.size());
    sources.push_back(lowering.inputs[at(input)]);
    arguments[at(variable)] = add_input(body, name_of(lowering, at(input)));
  }
  const auto capture = [&](std::int64_t input) {
    ValueId& value = captured[at(input)];
    if (value == kNoValue) {
      sources.push_back(lowering.inputs[at(input)]);
      value = add_input(body, name_of(lowering, at(input)));
    }
    return value;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kNoValue) arguments[i] = capture(of_body[i]);
  }
  SHOAL_ASSIGN_OR_RETURN(Values made, lowering.lower_subgraph(1, arguments, outputs.all, body));
  made = turned(std::move(made), outputs.rows);
  Values asked;  // the variables of the condition, after a turn
  for (const std::int64_t input : of_condition) {
    const std::int64_t state = state_of[at(input)];
    asked.push_back(state < 0 ? capture(input) : made[at(state)]);
  }
  SHOAL_ASSIGN_OR_RETURN(const Values goes_on, lowering.lower_subgraph(0, asked, 1, body));
  made.insert(made.begin(), goes_on[0]);
  finish_body(body, made);

  SHOAL_ASSIGN_OR_RETURN(const Values begins,
                         lowering.lower_subgraph(0, chosen(lowering.inputs, of_condition), 1, lowering.graph));
  sources.insert(sources.begin(), {add_number(lowering.graph, most_turns), begins[0]});
  const LoopAttributes loop{.states = static_cast<std::int64_t>(outputs.states()), .most_turns = most_turns, .pads = true};
  const Values results = lowering.add(ops::kLoop, loop, std::move(sources), outputs.all);
  if (results.empty()) return attributes.status();
  lowering.graph.nodes.back().bodies.push_back(std::move(body));
  return turned(results, outputs.states());
}

Result<Values> lower_cond(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const std::size_t count = lowering.inputs.size();
  SHOAL_ASSIGN_OR_RETURN(const Dims of_condition, read_places(attributes, "cond_input_locs", count));
  SHOAL_ASSIGN_OR_RETURN(const Dims of_then, read_places(attributes, "then_input_locs", count));
  SHOAL_ASSIGN_OR_RETURN(const Dims of_else, read_places(attributes, "else_input_locs", count));
  const std::size_t outputs = at(attributes.integer("num_outputs", {}, 1));
  SHOAL_RETURN_IF_ERROR(attributes.status());
  SHOAL_RETURN_IF_ERROR(check_subgraphs(lowering, 3));

  SHOAL_RETURN_IF_ERROR(take_inputs(lowering, 2));  // there are two bodies
  std::vector<Graph> branches;
  for (const auto& [index, places] : {std::pair(std::size_t{1}, &of_then), std::pair(std::size_t{2}, &of_else)}) {
    Graph& body = branches.emplace_back();
    Values values;  // in the body, of all inputs of the node
    for (const ValueId input : lowering.inputs) values.push_back(add_input(body, lowering.graph.value(input).name));
    SHOAL_ASSIGN_OR_RETURN(const Values made, lowering.lower_subgraph(index, chosen(values, *places), outputs, body));
    finish_body(body, made);
  }
  SHOAL_ASSIGN_OR_RETURN(Values sources, lowering.lower_subgraph(0, chosen(lowering.inputs, of_condition), 1, lowering.graph));
  sources.insert(sources.end(), lowering.inputs.begin(), lowering.inputs.end());
  const Values results = lowering.add(ops::kIf, {}, std::move(sources), outputs);
  if (results.empty()) return attributes.status();
  lowering.graph.nodes.back().bodies = std::move(branches);
  return results;
}

/// Reports errors as errors of the node. A node without graphs becomes one without bodies, for the list of operators.
auto lowered_by(Result<Values> (*lower)(MxnetLowering& lowering), const Operator& op) {
  return [lower, &op](MxnetLowering& lowering) {
    lowering.attributes.ignore({"num_args"});  // the inputs and the subgraphs
    const Result<Values> made = lower(lowering);
    if (made.ok()) return *made;
    lowering.attributes.fail_node(made.status().code(), made.status().message());
    return lowering.add(op, {}, lowering.inputs);
  };
}

}  // namespace

std::vector<MxnetOperator> control_flow_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 0, -1, -1, lowered_by(lower_foreach, ops::kScan)}, {"_foreach", "_npx_foreach"});
  add_aliases(all, {"", 0, -1, -1, lowered_by(lower_while_loop, ops::kLoop)}, {"_while_loop", "_npx_while_loop"});
  add_aliases(all, {"", 0, -1, -1, lowered_by(lower_cond, ops::kIf)}, {"_cond", "_npx_cond"});
  return all;
}

}  // namespace shoal::worker
