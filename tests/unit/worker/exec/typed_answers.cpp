#include "tests/unit/worker/exec/typed_answers.hpp"

#include <algorithm>

#include "tests/support/tensor_values.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::testing {

Tensor tensor_of_numbers(const TensorSpec& spec, const std::function<double(std::int64_t)>& number) {
  Tensor tensor = Tensor::create(spec.dtype, spec.shape).value();
  TensorView view = tensor.view();
  dispatch(worker::Numbers(), spec.dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i) elements<T>(view)[i] = from_float<T>(number(i));
  });
  return tensor;
}

TypedAnswer run_typed(const Program& program, Context& context, const std::vector<Tensor>& inputs) {
  TypedAnswer answer{.arena_bytes = program.arena_bytes()};
  for (const Tensor& output : run(program, context, inputs)) answer.outputs.push_back(shoal::testing::as_doubles(output.view()));
  for (const StepInfo& step : program.steps()) answer.implementations.push_back(step.implementation);
  return answer;
}

bool runs_oracle_kernel(const TypedAnswer& answer) { return std::ranges::count(answer.implementations, "oracle") > 0; }

}  // namespace shoal::worker::testing
