// ImageClassifier: pictures in, class names with probabilities out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/image.hpp"
#include "shoal/runner.hpp"

namespace shoal {

struct ImageClassifierOptions {
  std::optional<Preprocess> preprocess;  ///< instead of what the model says of itself
  std::size_t top_k = 5;                 ///< classes per picture, the most probable first
  std::size_t batch = 1;                 ///< pictures per request, where the model takes several
  SubmitOptions submit;                  ///< of each request
};

/// One class of a picture.
struct ClassScore {
  std::int64_t index = 0;
  std::string label;  ///< empty when the model has no label for it
  float probability = 0;
};
using Classes = std::vector<ClassScore>;

/// Makes a model's input of pictures, runs it, and reads its first output: probabilities as they are (not negative, sum 1),
/// anything else as scores of which the softmax is taken.
///   Lifetime  valid while the runner is. Preparation and labels are those of its beginning: make a new one when a reload has
///             changed them
///   Threads   thread-safe
class ImageClassifier {
 public:
  /// Asks the runner about the model. Without any word about preprocessing the values of ImageNet (1 channel: 0..1) are taken,
  /// with a warning.
  ///   Errors  those of Runner::describe(); kFailedPrecondition: a model that takes no pictures; kInvalidArgument: preprocessing
  ///   that does
  ///           not fit the model's input
  static Result<ImageClassifier> create(Runner& runner, std::string model, ImageClassifierOptions options = {});

  /// The classes of one picture.
  ///   Errors  those of Runner::submit(); kFailedPrecondition: the output is no list of classes, or not of as many as the model
  ///           has labels
  Result<Classes> classify(const Image& image) const;
  /// The classes of many, in their order; requests of `batch` pictures, some under way at the same time.
  ///   Errors  the first that fails
  Result<std::vector<Classes>> classify(std::span<const Image> images) const;

  const ModelInfo& info() const { return info_; }
  const Preprocess& preprocess() const { return preprocess_; }  ///< what is done, every size filled in
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  ImageClassifier(Runner& runner, ModelInfo info, ImageClassifierOptions options);
  Status choose_preprocess();
  Result<Prediction> submit(std::span<const Image> images) const;
  Status read_classes(const Tensors& outputs, std::size_t count, std::vector<Classes>& all) const;

  Runner* runner_;
  ModelInfo info_;
  ImageClassifierOptions options_;
  Preprocess preprocess_;
  std::vector<std::string> warnings_;
};

}  // namespace shoal
