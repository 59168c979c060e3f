// Predictor: what a PredictorHandle points to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/predict/src/shared_model.hpp"

namespace shoal::predict {

/// One model with inputs and outputs of its own.
///   Threads  thread-compatible; predictors of one model may be used at the same time
class Predictor {
 public:
  /// Names that are not inputs, but may be given all the same.
  struct Ignored {
    std::vector<std::string> labels;  ///< may be set, which has no effect
    std::vector<std::string> others;  ///< may be given a shape
  };

  /// `inputs` in the model's order, without open dimensions. They are zeros.
  static Result<std::unique_ptr<Predictor>> make(std::shared_ptr<SharedModel> model, std::vector<TensorSpec> inputs,
                                                 Ignored ignored);

  /// A predictor of the same model for other shapes. Inputs that keep their shape begin with the values that they have here.
  ///   Errors  kInvalidArgument: a name that is neither an input nor ignored; those of SharedModel::bind()
  Result<std::unique_ptr<Predictor>> reshape(std::span<const TensorSpec> shapes) const;

  /// Copies the values.
  ///   count   of elements
  ///   Errors  kInvalidArgument: no such input, another number of elements
  Status set_input(std::string_view name, const void* data, std::size_t count);
  Status run();

  ///   Lifetime  until the next run()
  ///   Errors    kInvalidArgument: no such output, a size beyond 32 bits; kFailedPrecondition: the size depends on data and the
  ///             model has not run
  Result<std::span<std::uint32_t>> output_shape(std::size_t index);
  Result<DType> output_type(std::size_t index) const;
  ///   Errors  kInvalidArgument: no such output, another number of elements; kFailedPrecondition: the model has not run
  Status copy_output(std::size_t index, void* data, std::size_t count) const;

 private:
  Predictor(std::shared_ptr<SharedModel> model, std::unique_ptr<BoundModel> bound, std::vector<TensorSpec> specs, Ignored ignored)
      : model_(std::move(model)), bound_(std::move(bound)), specs_(std::move(specs)), ignored_(std::move(ignored)) {}
  Status make_inputs();
  Status keep_shapes();
  Status check_index(std::size_t index) const;

  const std::shared_ptr<SharedModel> model_;
  const std::unique_ptr<BoundModel> bound_;
  const std::vector<TensorSpec> specs_;  ///< of the inputs
  const Ignored ignored_;
  Tensors inputs_;
  const Tensors* outputs_ = nullptr;  ///< of the last run; null: none, or it failed
  std::vector<std::vector<std::uint32_t>> shapes_;
};

}  // namespace shoal::predict
