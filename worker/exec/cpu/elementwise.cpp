// Element-wise functions of one value, views.
#include <algorithm>
#include <limits>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/row_functions.hpp"

namespace shoal::worker::cpu {
namespace {

using Kind = ElementFunction::Kind;

/// A function that runs by a loop of Shoal if it is a step by itself.
struct OwnLoop {
  const char* name;
  Loop loop;
  bool keeps_zeros;  ///< f(0) = 0, so padding stays zero
};
std::optional<OwnLoop> own_loop_of(const ElementFunction& function, const Desc& desc) {
  const float a = function.alpha, b = function.beta;
  const DType type = desc.data_type() == Type::bf16 ? DType::kBFloat16 : DType::kFloat32;
  const auto count = static_cast<std::int64_t>(desc.get_size() / element_bytes(desc));
  if (is_division(function)) return OwnLoop{"divide", divide_loop(type, count, a), a != 0};
  if (function.kind == Kind::kClip) return OwnLoop{"clamp", clamp_loop(type, count, a, b), a <= 0 && b >= 0};
  if (function.kind == Kind::kRelu && a == 0)
    return OwnLoop{"clamp", clamp_loop(type, count, 0, std::numeric_limits<float>::infinity()), true};
  if (is_row_data(desc) && row_function(function.kind) != nullptr)
    return OwnLoop{"kernel", row_function_loop(count, function), false};
  return std::nullopt;
}

std::optional<dnnl::eltwise_forward::primitive_desc> make_eltwise(const ElementFunction& function, const Desc& desc) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::eltwise_forward::desc wanted(dnnl::prop_kind::forward_inference, eltwise_algorithm(function.kind), desc,
                                           function.alpha, function.beta);
  dnnl::eltwise_forward::primitive_desc pd(wanted, attr, engine(), /*allow_empty=*/true);
  if (!pd || !is_optimized(pd)) return std::nullopt;
  return pd;
}

}  // namespace

Compiler::Taken Compiler::view(const Node& node) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  if (value(from).dtype != value(to).dtype) return false;
  if (value(from).shape == value(to).shape) {
    SHOAL_RETURN_IF_ERROR(first_form(from).status());
    const std::vector<Form> all = forms(from);
    for (const Form& form : all) add_form(to, form);
    return true;
  }
  if (!is_float(to)) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(from));
    add_form(to, {form.buffer, Desc()});
    return true;
  }
  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(from));
  const Type type = is_float(from) ? first.desc.data_type() : Type::f32;
  SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(from, type));
  add_form(to, {form.buffer, plain_desc(value(to).shape, type)});
  return true;
}

// A node by itself, with the element-wise functions of the nodes after it. All but the first run in place.
Compiler::Taken Compiler::eltwise(const Node& node) {
  std::vector<PostOp> chain;
  const auto gated = find_gated(node.inputs[0]);
  if (gated && gated->nodes.front() == now_) {
    chain = {*gated};
  } else if (const Functions functions = functions_of(node); !functions.empty()) {
    chain = {{.nodes = {now_}, .functions = functions}};
  } else {
    return false;
  }
  while (const auto next = find_function(this->node(chain.back().nodes.back()).outputs[0])) {
    if (!extend(chain, *next)) break;
  }
  const PostOp& run = chain.front();
  SHOAL_ASSIGN_OR_RETURN(Form at, first_form(node.inputs[0], type_of(result_of(node.outputs[0], chain))));
  std::vector<std::optional<OwnLoop>> loops;
  std::vector<std::optional<dnnl::eltwise_forward::primitive_desc>> primitives;
  for (const ElementFunction& function : run.functions) {
    loops.push_back(own_loop_of(function, at.desc));
    primitives.push_back(loops.back() ? std::nullopt : make_eltwise(function, at.desc));
    const bool works = loops.back() ? loops.back()->keeps_zeros || !is_padded(at.desc) : primitives.back().has_value();
    if (!works) return false;
  }
  if (run.functions.empty()) return false;  // they cancel out
  const ValueId result = absorb_post_ops(node.outputs[0], chain);
  const bool overwrites = may_overwrite(node.inputs[0], at.buffer);
  for (std::size_t i = 0; i < run.functions.size(); ++i) {
    const Form dst = i > 0 || overwrites ? at : new_form(at.desc);
    if (loops[i]) {
      plan_.steps.push_back(make_loop_step(describe(node), loops[i]->name, {at.buffer, dst.buffer}, std::move(loops[i]->loop)));
    } else {
      add_step(describe(node), dnnl::eltwise_forward(*primitives[i]), primitives[i]->scratchpad_desc(),
               {{DNNL_ARG_SRC, at.desc, at.buffer}, {DNNL_ARG_DST, dst.desc, dst.buffer}});
    }
    at = dst;
  }
  add_form(result, at);
  return true;
}

}  // namespace shoal::worker::cpu
