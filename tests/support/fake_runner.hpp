// A Client whose model is a function of the test, and which keeps what it was asked.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "shoal/client.hpp"
#include "tests/support/function_client.hpp"

namespace shoal::test {

/// Answers each request at once with `answer`. Converts to a Client, as a Pool does.
///   Threads  thread-bound
class FakeRunner {
 public:
  using Answer = std::function<Result<Tensors>(const Tensors&)>;
  explicit FakeRunner(ModelInfo model = {}, Answer function = {}) : core_(std::make_shared<Core>()), answer(std::move(function)) {
    core_->info = std::move(model);
    core_->function = [this](Tensors inputs, const SubmitOptions& options) {
      requests.push_back(inputs);
      last_options = options;
      return answer(inputs);
    };
  }
  FakeRunner(const FakeRunner&) = delete;
  FakeRunner& operator=(const FakeRunner&) = delete;
  operator Client() const { return Client(core_); }  // NOLINT(google-explicit-constructor): as a Pool

 private:
  using Core = FunctionClient;
  std::shared_ptr<Core> core_;

 public:
  ModelInfo& info = core_->info;
  Answer answer;
  std::vector<Tensors> requests;
  SubmitOptions last_options;
};

/// A float32 tensor with these elements.
inline Tensor tensor_of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

}  // namespace shoal::test
