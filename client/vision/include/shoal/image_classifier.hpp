// ImageClassifier: pictures in, class names with probabilities out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/classifier.hpp"
#include "shoal/image.hpp"

namespace shoal {

struct ImageClassifierOptions {
  StructSize<ImageClassifierOptions> struct_size{};
  Optional<Preprocess> preprocess;  ///< used instead of the model's own
  std::size_t top_k = 5;            ///< classes per picture, the most probable first; 0 = all, in the model's order
  std::size_t batch = 1;            ///< pictures per request, if the model takes several
  List<Text> labels;                ///< used instead of the model's own
  Text output;                      ///< which output has the scores; empty = the first
  List<DataDesc> inputs, outputs;   ///< as in PredictorOptions
  std::uint64_t version = 0;        ///< likewise
};

/// Turns pictures into a model's input, runs the model, and reads its classes as Classifier does.
///   Lifetime  keeps the preprocessing and labels of create(): make a new classifier when a
///             reload changes them
///   Threads   thread-safe
class ImageClassifier {
 public:
  /// Asks the client for the model's description. If neither the options nor the model give a preprocessing, uses ImageNet's
  /// (0..1 for one channel) and adds a warning. A side of the crop that neither the preprocessing nor the input gives (the model
  /// leaves it open) is 224.
  ///   Errors  those of Classifier::create(); kFailedPrecondition (the model does not take pictures); kInvalidArgument (the
  ///           preprocessing does not fit the model's input, or `batch` is 0)
  static Result<ImageClassifier> create(Client client, std::string model, const ImageClassifierOptions& options = {});

  /// The classes of one picture: of a file, of Image::decode(bytes), Image::from_pixels(pixels, ...) or to_image(mat).
  ///   Errors  those of Image::read(), Client::submit() and Classifier::read(); kInvalidArgument (a picture without pixels, or
  ///           so thin that resizing it would make a side longer than 32768 pixels or the whole larger than 2^28)
  Result<Classes> classify(const Image& image, const SubmitOptions& options = {}) const;
  Result<Classes> classify(const std::filesystem::path& file, const SubmitOptions& options = {}) const;
  /// The classes of many pictures, in the same order. Sends requests of `batch` pictures, several at the same time, and reads and
  /// prepares the next pictures meanwhile, on OpenCV's threads.
  ///   Errors  those of the first picture or request that fails
  Result<std::vector<Classes>> classify(std::span<const Image> images, const SubmitOptions& options = {}) const;
  Result<std::vector<Classes>> classify(std::span<const std::filesystem::path> files, const SubmitOptions& options = {}) const;

  const ModelInfo& info() const&;
  ModelInfo info() && { return std::as_const(*this).info(); }
  const Preprocess& preprocess() const&;  ///< with all sizes filled in
  Preprocess preprocess() && { return std::as_const(*this).preprocess(); }
  const std::vector<std::string>& warnings() const&;
  std::vector<std::string> warnings() && { return std::as_const(*this).warnings(); }

 private:
  struct Impl;
  explicit ImageClassifier(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace shoal
