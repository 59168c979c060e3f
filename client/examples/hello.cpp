// Ten lines: one request to the model "echo" of the local daemon.
//   SHOAL_DIR=/tmp/shoal shoald --model echo=builtin:identity &   SHOAL_DIR=/tmp/shoal example_hello
#include <cstdio>

#include "shoal/pool.hpp"

int main() {
  shoal::Pool pool = shoal::Pool::connect().value();  // throws shoal::Error, which says what to do
  shoal::Tensor x = pool.loan(shoal::DType::kFloat32, {1, 4}).value();
  x.values<float>()[0] = 42;
  const shoal::Tensors y = pool.predict("echo", {{"data", x}}).value();
  std::printf("%s: %g\n", y[0].name.c_str(), y[0].tensor.values<float>()[0]);
}
