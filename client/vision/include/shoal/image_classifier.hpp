// ImageClassifier: pictures in, class names with probabilities out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/image.hpp"
#include "shoal/client.hpp"

namespace shoal {

struct ImageClassifierOptions {
  std::optional<Preprocess> preprocess;  ///< used instead of the model's own
  std::size_t top_k = 5;                 ///< classes per picture, the most probable first
  std::size_t batch = 1;                 ///< pictures per request, if the model takes several
  SubmitOptions submit;                  ///< of each request
};

/// One class of a picture.
struct ClassScore {
  std::int64_t index = 0;
  std::string label;  ///< empty if the model has no label for it
  float probability = 0;
};
using Classes = std::vector<ClassScore>;

/// Turns pictures into a model's input, runs the model, and reads its first output. Probabilities (not negative, sum 1) stay
/// unchanged; other outputs are scores, and go through a softmax.
///   Lifetime  keeps the preprocessing and labels of create(): make a new classifier when a
///             reload changes them
///   Threads   thread-safe
class ImageClassifier {
 public:
  /// Asks the runner for the model's description. If neither the options nor the model give a preprocessing, uses ImageNet's
  /// (0..1 for one channel) and adds a warning.
  ///   Errors  those of Client::describe(); kFailedPrecondition (the model does not take pictures); kInvalidArgument (the
  ///           preprocessing does not fit the model's input)
  static Result<ImageClassifier> create(Client client, std::string model, ImageClassifierOptions options = {});

  /// The classes of one picture.
  ///   Errors  those of Client::submit(); kInvalidArgument (the picture is so thin that resizing it would make a side longer than
  ///           32768 pixels or the whole larger than 2^28); kFailedPrecondition (the output is not a list of classes, or has
  ///           another number of classes than the model has labels)
  Result<Classes> classify(const Image& image) const;
  /// The classes of many pictures, in the same order. Sends requests of `batch` pictures, several at the same time.
  ///   Errors  those of the first request that fails
  Result<std::vector<Classes>> classify(std::span<const Image> images) const;

  const ModelInfo& info() const& { return info_; }
  ModelInfo info() && { return std::move(info_); }
  const Preprocess& preprocess() const& { return preprocess_; }  ///< with all sizes filled in
  Preprocess preprocess() && { return std::move(preprocess_); }
  const std::vector<std::string>& warnings() const& { return warnings_; }
  std::vector<std::string> warnings() && { return std::move(warnings_); }

 private:
  ImageClassifier(Client client, ModelInfo info, ImageClassifierOptions options);
  Status choose_preprocess();
  Result<Prediction> submit(std::span<const Image> images) const;
  Status read_classes(const Tensors& outputs, std::size_t count, std::vector<Classes>& all) const;

  Client client_;
  ModelInfo info_;
  ImageClassifierOptions options_;
  Preprocess preprocess_;
  std::vector<std::string> warnings_;
};

}  // namespace shoal
