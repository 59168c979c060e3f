// The smallest useful client: asks the local daemon for a model's description, sends one request in shared memory, and prints the
// outputs.
//
//   SHOAL_DIR=/tmp/shoal shoald --model echo=builtin:identity &
//   SHOAL_DIR=/tmp/shoal example_predict echo
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "shoal/pool.hpp"

int main(int argc, char** argv) try {
  const char* model = argc > 1 ? argv[1] : "echo";
  shoal::Pool pool = shoal::Pool::connect().value();
  const shoal::ModelInfo info = pool.describe(model).value();

  shoal::Tensors inputs;
  for (const shoal::TensorSpec& input : info.inputs) {
    shoal::Shape shape = input.shape.is_known() ? input.shape : shoal::Shape{4};  // else the model takes any
    for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = std::max<std::int64_t>(shape[axis], 1);
    shoal::Tensor tensor = pool.loan(input.dtype, shape).value();  // in shared memory: no copy
    if (input.dtype == shoal::DType::kFloat32) std::iota(tensor.values<float>().begin(), tensor.values<float>().end(), 0.0f);
    inputs.push_back({input.name, tensor});
  }

  shoal::Prediction prediction = pool.submit(model, inputs, {.timeout = std::chrono::seconds(5)});
  const shoal::Result<shoal::Tensors>& outputs = prediction.get();
  if (!outputs.ok()) {  // for example overload, a timeout, or a crash caused by this request
    std::fprintf(stderr, "%s\n", outputs.status().to_string().c_str());
    return 1;
  }
  for (const shoal::NamedTensor& output : *outputs) {
    std::printf("%s: %s of shape %s\n", output.name.c_str(), std::string(dtype_name(output.tensor.dtype())).c_str(),
                output.tensor.shape().to_string().c_str());
  }
  return 0;
} catch (const shoal::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
