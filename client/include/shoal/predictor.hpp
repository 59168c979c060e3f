// Predictor: one model of a Client, and flat arrays as its inputs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/client.hpp"
#include "shoal/data_desc.hpp"
#include "shoal/numbers.hpp"

namespace shoal {

struct PredictorOptions {
  StructSize<PredictorOptions> struct_size{};
  /// What the program sends and expects, checked against the model (match_descriptors()); those that are left out are the
  /// model's. Narrower ones say what flat arrays mean: of {-1, 3, 224, 224} the number of pictures follows from the array.
  List<DataDesc> inputs, outputs;
  std::uint64_t version = 0;  ///< of the model; 0 = the default version, which is the highest
};

/// A flat array for an input.
struct NamedNumbers {
  std::string_view name;
  Numbers numbers;
  Shape shape = Shape::any();  ///< any(): as Predictor::tensor() finds it
};

/// A Client (of a Pool or an Engine) with a model.
///   Lifetime  keeps the description of create(): make a new one when a reload changes the model.
///             Copies are cheap
///   Threads   thread-safe
class Predictor {
 public:
  Predictor() = default;  ///< without a model, as one that was moved from: answers kFailedPrecondition
  /// Asks the client for the model's description.
  ///   Errors  those of Client::describe(): kNotFound, kUnavailable; kInvalidArgument (a descriptor of `options` that does not
  ///           fit the model: names the tensor, what is expected and what is given)
  static Result<Predictor> create(Client client, std::string model, const PredictorOptions& options = {});

  /// The model's description at the time of create().
  const ModelInfo& info() const&;
  ModelInfo info() && { return std::as_const(*this).info(); }
  /// The descriptors, in the model's order.
  std::span<const DataDesc> inputs() const&;
  std::span<const DataDesc> outputs() const&;
  std::span<const DataDesc> inputs() && = delete;  ///< of a temporary: keep the Predictor
  std::span<const DataDesc> outputs() && = delete;

  /// Runs the model once and waits.
  ///   inputs   one per model input, in any order
  ///   Returns  the outputs in the model's order
  ///   Errors   those of Client::submit(); kInvalidArgument (an input that does not fit its descriptor)
  Result<Tensors> predict(Tensors inputs, const SubmitOptions& options = {}) const;
  /// The same for a model with one input, besides its states.
  ///   Errors   kInvalidArgument (the model has another number of inputs)
  Result<Tensors> predict(Tensor input, const SubmitOptions& options = {}) const;
  /// The same with a flat array of any numeric type. It may hold several items: a batch.
  ///   Errors   those of tensor()
  Result<Tensors> predict(Numbers input, const SubmitOptions& options = {}) const;
  /// The same for several inputs: predict({{"ids", ids}, {"mask", mask}}).
  Result<Tensors> predict(std::span<const NamedNumbers> inputs, const SubmitOptions& options = {}) const;
  Result<Tensors> predict(std::initializer_list<NamedNumbers> inputs, const SubmitOptions& options = {}) const {
    return predict(std::span(inputs.begin(), inputs.size()), options);
  }
  /// Runs the model once for each element, some requests at the same time.
  ///   Returns  the outputs in the order of the requests
  ///   Errors   those of the first request that fails
  Result<std::vector<Tensors>> predict_all(std::span<const Tensors> requests, const SubmitOptions& options = {}) const;
  /// Submits one request and returns at once. Every failure arrives in the Prediction.
  Prediction submit(Tensors inputs, const SubmitOptions& options = {}) const;

  /// Memory for an input, with undefined bytes: of the pool's shared memory, from which requests are sent without a copy, else of
  /// this process.
  ///   shape    all dimensions given
  ///   Errors   those of Tensor::create(); kInvalidArgument (no such input, or a shape that does not fit its descriptor)
  Result<Tensor> allocate(std::string_view input, const Shape& shape) const;
  /// An input made of a flat array, row by row, converted to the model's type by the rule of Numbers::copy_to().
  ///   shape    any(): that of the descriptor. If it leaves one dimension open, the array must fill whole items, and their number
  ///            is its size
  ///   Errors   those of allocate() and Numbers::copy_to(); kInvalidArgument (too few or too many numbers, or several open
  ///            dimensions)
  Result<Tensor> tensor(std::string_view input, Numbers numbers, const Shape& shape = Shape::any()) const;
  /// The input of a model that has only one besides its states. Errors: kInvalidArgument (names those that there are).
  Result<std::string_view> only_input() const;

 private:
  struct Impl;
  explicit Predictor(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace shoal
