// Operators that only tests have.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "worker/exec/reference/reference_kernels.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::test {

/// The output has the type and the shape of the first input.
inline Status infer_like_first(const worker::Node&, std::span<const worker::Value* const> src,
                               std::span<worker::Value* const> dst) {
  dst[0]->dtype = src[0]->dtype;
  dst[0]->shape = src[0]->shape;
  return {};
}

/// Adds the operator, unless it exists, with infer_like_first() where it has no infer().
inline void register_custom_operator(worker::Operator op, worker::ReferenceKernel kernel) {
  if (worker::find_operator(op.name)) return;
  if (!op.infer) op.infer = infer_like_first;
  const std::string name = op.name;
  worker::register_operator(std::move(op));
  worker::register_reference_kernel(name, kernel);
}

/// Likewise; MXNet's files may use the operator by the same name. Its attribute `scalar` (default 0) becomes
/// CustomAttributes::scalar.
inline void register_custom_mxnet_operator(const worker::Operator& op, worker::ReferenceKernel kernel) {
  if (worker::find_operator(op.name)) return;
  register_custom_operator(op, kernel);
  worker::register_mxnet_operator(
      {.name = op.name, .min_inputs = op.min_inputs, .max_inputs = op.max_inputs, .lower = [](worker::MxnetLowering& lowering) {
         const worker::CustomAttributes attributes{lowering.attributes.number("scalar", 0)};
         return lowering.add(lowering.node.op, attributes);
       }});
}

}  // namespace shoal::test
