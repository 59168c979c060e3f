// Operators that only tests have.
#pragma once

#include <list>
#include <span>
#include <string>
#include <utility>

#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {

/// The attributes of any operator that only a test has.
struct CustomAttributes {
  double scalar = 0;
};
template <>
inline constexpr auto fields_of<CustomAttributes> = std::tuple{field("scalar", &CustomAttributes::scalar, "")};

}  // namespace shoal::worker

namespace shoal::test {

/// The output has the type and the shape of the first input.
inline Status infer_like_first(const worker::Node&, worker::SourceValues src, worker::ResultValues dst) {
  dst[0].dtype = src[0].dtype;
  dst[0].shape = src[0].shape;
  return {};
}

/// Adds the operator, unless it exists, with infer_like_first() where it has no infer(), and facts that promise nothing where it
/// has none. It lives as long as the process.
inline const worker::Operator& register_custom_operator(worker::OperatorDef def) {
  if (const worker::Operator* const known = worker::find_operator(def.name)) return *known;
  if (!def.infer) def.infer = infer_like_first;
  if (!def.facts.work) def.facts = worker::layer_facts(worker::rows_mixed, worker::work_of_pairs, worker::Accuracy::kLost);
  static std::list<worker::Operator> operators;
  return operators.emplace_back(def);
}

/// Likewise; MXNet's files may use the operator by the same name. Its attribute `scalar` (default 0) becomes
/// CustomAttributes::scalar.
inline void register_custom_mxnet_operator(const worker::OperatorDef& def) {
  if (worker::find_operator(def.name)) return;
  const worker::Operator& op = register_custom_operator(def);
  worker::register_mxnet_operator({.name = std::string(op.name),
                                   .min_inputs = op.inputs.least,
                                   .max_inputs = op.inputs.most,
                                   .lower = [&op](worker::MxnetLowering& lowering) {
                                     const worker::CustomAttributes attributes{lowering.attributes.number("scalar", 0)};
                                     return lowering.add(op, attributes);
                                   }});
}

}  // namespace shoal::test
