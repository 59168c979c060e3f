// Rnn: for each direction of each layer the product of all its inputs at once, then a step that goes through the sequence.
#include "worker/ops/recurrent.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/cpu/kernels/rows_product.hpp"
#include "worker/exec/cpu/recurrent_step.hpp"
#include "worker/exec/oracle_step.hpp"

namespace shoal::worker::cpu {
namespace {

// Each takes some steps. A file may have millions of tiny layers; the oracle kernel runs them.
constexpr std::int64_t kMostPasses = 64;

std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

}  // namespace

Result<std::unique_ptr<Step>> Compiler::product_step(const std::string& name, std::int64_t rows, BufferId src,
                                                     const ConstantChain& weights, const std::optional<ConstantChain>& bias,
                                                     BufferId dst) {
  const Shape& shape = weights.source->constant.shape;
  if (has_panel_products()) {  // no code for each length of a sequence
    const RowsProduct product{rows, shape[1], shape[0], panel_columns_for(shape[0]), {}};
    SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights, panels_desc({shape[0], shape[1]}, product.panel_columns)));
    BufferId added = kNoBuffer;
    if (bias) {
      SHOAL_ASSIGN_OR_RETURN(const Form form, weights_form(*bias, plain_desc({shape[0]})));
      added = form.buffer;
    }
    return make_loop_step(name, "kernel", {src, packed.buffer, added, dst}, rows_product_loop(product), flops_of(product));
  }
  const Desc src_desc = plain_desc({rows, shape[1]}), dst_desc = plain_desc({rows, shape[0]});
  const Desc bias_desc = bias ? plain_desc({shape[0]}) : Desc();
  SHOAL_ASSIGN_OR_RETURN(std::vector<Desc> layouts, packed_descs(weights.key(), plain_desc(shape), Type::f32));
  layouts.push_back(any_desc(dims_of(shape)));
  const auto candidates = product_candidates(src_desc, layouts, bias_desc, dst_desc, attributes_for({}));
  if (candidates.empty()) return std::unique_ptr<Step>();
  const auto& chosen = choose(candidates);
  SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights, chosen.weights_desc()));
  std::vector<Argument> arguments = {
      {DNNL_ARG_SRC, src_desc, src}, {DNNL_ARG_WEIGHTS, packed.desc, packed.buffer}, {DNNL_ARG_DST, dst_desc, dst}};
  if (bias) {
    SHOAL_ASSIGN_OR_RETURN(const Form added, weights_form(*bias, bias_desc));
    arguments.push_back({DNNL_ARG_BIAS, added.desc, added.buffer});
  }
  const Desc scratchpad = chosen.scratchpad_desc();
  if (scratchpad.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, plan_.add_buffer(scratchpad.get_size())});
  return make_onednn_step(name, dnnl::inner_product_forward(chosen), std::move(arguments));
}

/// What the passes over a sequence share.
struct Compiler::RnnWork {
  const std::string name;
  const ValueId parameters;
  const RnnSizes sizes;
  Recurrence step = {};        ///< as far as it is the same for all passes
  BufferId below = kNoBuffer;  ///< what the layer reads
};

Compiler::Taken Compiler::rnn_pass(const RnnWork& work, std::int64_t layer, std::int64_t direction) {
  const RnnSizes& sizes = work.sizes;
  const RnnParameters at = rnn_parameters(sizes, layer, direction);
  const auto part = [&](std::int64_t first, const Shape& shape) { return part_of(graph_, work.parameters, first, shape); };
  const std::int64_t rows = sizes.steps * sizes.sequences, units = sizes.gates * sizes.hidden, n = sizes.sequences;
  Recurrence step = work.step;
  step.column = direction * sizes.result;
  step.state = (layer * sizes.directions + direction) * n * sizes.result;
  step.cell = (layer * sizes.directions + direction) * n * sizes.hidden;
  step.is_backward = direction == 1;
  step.of_input = plan_.add_buffer(bytes_of(rows * units));
  SHOAL_ASSIGN_OR_RETURN(auto inputs, product_step(work.name, rows, work.below, part(at.input_weights, {units, at.width}),
                                                   part(at.input_bias, {units}), step.of_input));
  if (inputs == nullptr) return false;
  plan_.steps.push_back(std::move(inputs));

  step.now = plan_.add_buffer(bytes_of(n * sizes.result));
  step.of_state = plan_.add_buffer(bytes_of(n * units));
  if (step.mode == RnnMode::kLstm) step.cells = plan_.add_buffer(bytes_of(n * sizes.hidden));
  SHOAL_ASSIGN_OR_RETURN(auto states, product_step(work.name, n, step.now, part(at.state_weights, {units, sizes.result}),
                                                   part(at.state_bias, {units}), step.of_state));
  if (states == nullptr) return false;
  std::unique_ptr<Step> projection;
  if (sizes.projects) {
    step.made = plan_.add_buffer(bytes_of(n * sizes.hidden));
    step.projected = plan_.add_buffer(bytes_of(n * sizes.result));
    const ConstantChain weights = part(at.projection_weights, {sizes.result, sizes.hidden});
    SHOAL_ASSIGN_OR_RETURN(projection, product_step(work.name, n, step.made, weights, std::nullopt, step.projected));
    if (projection == nullptr) return false;
  }
  plan_.steps.push_back(make_recurrence_step(work.name, step, std::move(states), std::move(projection)));
  return true;
}

/// The states stay as they are.
Compiler::Taken Compiler::rnn_without_steps(const Node& node) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (!is_read(node.outputs[i])) continue;
    if (is_empty(node.outputs[i])) {
      add_form(node.outputs[i], {plan_.add_buffer(0), Desc()});
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const Form from, plain_form(node.inputs[i == 1 ? kRnnState : rnn_cell_input(rnn)]));
    const std::size_t bytes = size_bytes_of(value(node.outputs[i]));
    const BufferId to = plan_.add_buffer(bytes);
    add_form(node.outputs[i], {to, is_float(node.outputs[i]) ? plain_desc(value(node.outputs[i]).shape) : Desc()});
    plan_.steps.push_back(make_copy_step(describe(node), from.buffer, to, bytes));
  }
  return true;
}

Compiler::Taken Compiler::rnn(const Node& node) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  const ValueId lengths = rnn.has_lengths ? node.inputs[kRnnLengths] : -1;
  if (value(node.inputs[kRnnData]).shape[0] == 0) return rnn_without_steps(node);
  const auto fits = [&](ValueId id) { return id == lengths || is_float(id); };
  if (!std::ranges::all_of(node.inputs, fits) || !is_constant(node.inputs[kRnnParameters])) return false;
  RnnWork work{describe(node), node.inputs[kRnnParameters], RnnSizes(rnn, value(node.inputs[kRnnData]).shape)};
  const RnnSizes& sizes = work.sizes;
  const std::int64_t rows = sizes.steps * sizes.sequences;
  if (sizes.layers > kMostPasses / sizes.directions || sizes.gates * sizes.hidden > kMaxElements / rows) return false;

  const auto read = [&](std::size_t input, BufferId& buffer) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(node.inputs[input]));
    buffer = form.buffer;
    return {};
  };
  const auto written = [&](std::size_t output) {
    if (output >= node.outputs.size() || !is_read(node.outputs[output])) return kNoBuffer;
    const Form form = new_form(plain_desc(value(node.outputs[output]).shape));
    add_form(node.outputs[output], form);
    return form.buffer;
  };
  work.step = Recurrence{.mode = rnn.mode,
                         .limits = CellLimits<float>(rnn),
                         .steps = sizes.steps,
                         .sequences = sizes.sequences,
                         .hidden = sizes.hidden,
                         .result = sizes.result,
                         .row = sizes.directions * sizes.result};
  work.step.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(sizes.gates * sizes.hidden * sizes.result) +
                    (sizes.projects ? 2.0 * static_cast<double>(rows) * static_cast<double>(sizes.result * sizes.hidden) : 0);
  SHOAL_RETURN_IF_ERROR(read(kRnnData, work.below));
  SHOAL_RETURN_IF_ERROR(read(kRnnState, work.step.first_state));
  if (rnn.mode == RnnMode::kLstm) SHOAL_RETURN_IF_ERROR(read(rnn_cell_input(rnn), work.step.first_cell));
  if (rnn.has_lengths) {
    SHOAL_RETURN_IF_ERROR(read(kRnnLengths, work.step.lengths));
    work.step.length_of = length_reader(value(lengths).dtype);
    plan_.buffer(work.step.lengths).holds_bounds = true;
  }
  work.step.last_state = written(1);
  work.step.last_cell = written(2);
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    work.step.given = plan_.add_buffer(bytes_of(rows * work.step.row));
    for (std::int64_t direction = 0; direction < sizes.directions; ++direction) {
      SHOAL_ASSIGN_OR_RETURN(const bool taken, rnn_pass(work, layer, direction));
      if (!taken) return false;
    }
    work.below = work.step.given;
  }
  if (is_read(node.outputs[0])) add_form(node.outputs[0], {work.below, plain_desc(value(node.outputs[0]).shape)});
  return true;
}

}  // namespace shoal::worker::cpu
