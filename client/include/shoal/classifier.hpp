// Classifier: the classes of a model's output, with their labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/predictor.hpp"

namespace shoal {

/// One class.
struct ClassScore {
  std::int64_t index = 0;
  std::string label;  ///< empty if the model has no labels
  float probability = 0;
};
using Classes = std::vector<ClassScore>;

struct ClassifierOptions {
  StructSize<ClassifierOptions> struct_size{};
  List<Text> labels;               ///< used instead of the model's own
  std::size_t top_k = 0;           ///< classes per item, the most probable first; 0 = all, unsorted: element i is class i
  Text output;                     ///< which output has the scores; empty = the first
  List<DataDesc> inputs, outputs;  ///< as in PredictorOptions
  std::uint64_t version = 0;       ///< likewise
};

/// A model with an output that lists one score per class: batch x classes, or classes alone. Probabilities (not negative, sum 1)
/// stay unchanged; other outputs are scores, and go through a softmax. NaN is the least probable.
///   Lifetime  that of Predictor
///   Threads   thread-safe
class Classifier {
 public:
  /// Asks the client for the model's description.
  ///   Errors  those of Predictor::create(); kNotFound (no such output); kFailedPrecondition (the output is no list of scores, or
  ///           has another number of classes than there are labels)
  static Result<Classifier> create(Client client, std::string model, const ClassifierOptions& options = {});

  /// Runs the model once, with one item or a batch.
  ///   Returns  the classes of each item
  ///   Errors   those of Predictor::predict() and read()
  Result<std::vector<Classes>> classify(Tensors inputs, const SubmitOptions& options = {}) const;
  Result<std::vector<Classes>> classify(Tensor input, const SubmitOptions& options = {}) const;
  Result<std::vector<Classes>> classify(Numbers input, const SubmitOptions& options = {}) const;
  /// The classes in the outputs of a request that the caller has submitted.
  ///   Errors  kFailedPrecondition (as for create()), kFailedPrecondition (the output is not there)
  Result<std::vector<Classes>> read(const Tensors& outputs) const;

  const Predictor& predictor() const&;
  Predictor predictor() && { return std::as_const(*this).predictor(); }

 private:
  struct Impl;
  explicit Classifier(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace shoal
