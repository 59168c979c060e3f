// PReLU as a primitive of its own: oneDNN 2.6.3 has it as a post-operation only in its slow "ref" convolutions.
#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/ops/activation.hpp"

namespace shoal::worker::cpu {

Compiler::Taken Compiler::leaky(const Node& node) { return node.inputs.size() == 2 ? prelu(node) : eltwise(node); }

Compiler::Taken Compiler::prelu(const Node& node) {
  const ValueId from = node.inputs[0], slopes = node.inputs[1];
  const Shape &shape = value(from).shape, &given = value(slopes).shape;
  if (!is_constant(slopes) || shape.rank() < 2) return false;
  const auto dims = dims_of(slopes_along(given, shape)->bound());
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(from, type_of(node.outputs[0])));
  const dnnl::prelu_forward::desc desc(dnnl::prop_kind::forward_inference, src.desc, any_desc(dims));
  const dnnl::prelu_forward::primitive_desc pd(desc, attributes_for({}), engine(), /*allow_empty=*/true);
  if (!pd || !is_optimized(pd)) return false;
  SHOAL_ASSIGN_OR_RETURN(const Form weights, weights_form(chain_of(graph_, slopes), pd.weights_desc()));
  const Form dst = may_overwrite(from, src.buffer) ? src : new_form(src.desc);
  add_step(describe(node), dnnl::prelu_forward(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_SRC, src.desc, src.buffer},
            {DNNL_ARG_WEIGHTS, weights.desc, weights.buffer},
            {DNNL_ARG_DST, dst.desc, dst.buffer}});
  add_form(node.outputs[0], dst);
  return true;
}

}  // namespace shoal::worker::cpu
