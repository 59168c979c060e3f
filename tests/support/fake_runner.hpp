// A Runner whose model is a function of the test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "shoal/runner.hpp"

namespace shoal::test {

/// An outcome that is there from the start.
class DoneOutcome final : public PendingOutcome {
 public:
  explicit DoneOutcome(Result<Tensors> outputs) { outcome_.outputs = std::move(outputs); }
  bool ready() override { return true; }
  bool wait_for(std::chrono::nanoseconds) override { return true; }
  const Outcome& outcome() override { return outcome_; }
  void cancel() override {}

 private:
  Outcome outcome_;
};

/// Answers each request at once with `answer`, and keeps what it was asked.
///   Threads  thread-bound
class FakeRunner : public Runner {
 public:
  using Answer = std::function<Result<Tensors>(const Tensors&)>;
  explicit FakeRunner(ModelInfo model = {}, Answer function = {}) : info(std::move(model)), answer(std::move(function)) {}

  Prediction submit(std::string_view, Tensors inputs, SubmitOptions options) override {
    requests.push_back(inputs);
    last_options = options;
    return Prediction(std::make_shared<DoneOutcome>(answer(inputs)));
  }
  Result<ModelInfo> describe(std::string_view model, std::uint64_t) override {
    if (model != info.name) return not_found("no model '{}'", model);
    return info;
  }

  ModelInfo info;
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
