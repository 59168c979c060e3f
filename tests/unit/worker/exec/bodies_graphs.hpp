// Graphs with bodies that several tests use.
#pragma once

#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/control_flow.hpp"

namespace shoal::worker::testing {

/// x -> 2x + y while that is below 100; at most 10 turns.
inline Graph doubling_body() {
  GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x"), y = body.input("y");
  const ValueId next = body.add(body.scalar(BinaryKind::kMul, x, 2), y);
  body.output(body.scalar(BinaryKind::kLesser, next, 100));
  body.output(next);
  return body.graph();
}
inline Graph doubling_loop() {
  GraphBuilder b;
  const ValueId data = b.input("data"), go = b.input("go"), added = b.input("added");
  b.output(b.node_with_bodies("Loop", {b.number(10), go, data, added}, {doubling_body()}, LoopAttributes{}));
  return b.graph();
}
inline const std::vector<TensorSpec> kLoopInputs{spec("data", {1}), spec("go", {1}), spec("added", {1})};

inline Graph scaled(double factor) {
  GraphBuilder b;
  b.input("c");
  b.output(b.scalar(BinaryKind::kMul, b.input("x"), factor));
  return b.graph();
}

/// condition, other, data: 2, 3 or 5 times the data. The first branch has an If of its own.
inline Graph nested_branches() {
  GraphBuilder outer;
  const ValueId c = outer.input("c"), x = outer.input("x");
  outer.output(outer.node_with_bodies("If", {c, c, x}, {scaled(2), scaled(3)}));
  GraphBuilder b;
  const ValueId condition = b.input("condition"), other = b.input("other"), data = b.input("data");
  b.output(b.node_with_bodies("If", {condition, other, data}, {outer.graph(), scaled(5)}));
  return b.graph();
}

}  // namespace shoal::worker::testing
