// PictureModel: a model whose one input is a picture. What ImageClassifier and ObjectDetector share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shoal/image.hpp"
#include "shoal/predictor.hpp"

namespace shoal::vision {

/// What is used if neither the options nor the model say how to prepare pictures.
struct UsualWay {
  std::string name;       ///< for the warning
  Preprocess preprocess;  ///< of three channels; for one it is 0..1
  std::int64_t side = 0;  ///< if the model leaves the size open; 0 = that is an error
  double resize = 0;      ///< of the shorter side, as a share of the crop's; 0 = none
};

struct PictureSize {
  int height = 0, width = 0;
};

/// Threads: thread-safe.
class PictureModel {
 public:
  /// Errors: kFailedPrecondition (the model does not take pictures), kInvalidArgument (`batch` of 0, or a preprocessing that does
  /// not fit the model's input).
  ///   given  used instead of the model's own preprocessing; may be null
  ///   batch  pictures per request
  static Result<PictureModel> create(Predictor predictor, const Preprocess* given, std::size_t batch, const UsualWay& usual);

  using GetPicture = std::function<Result<Image>(std::size_t i)>;
  /// Takes the outputs of a request with pictures `first` and the following ones.
  using TakeOutputs = std::function<Status(std::size_t first, std::span<const PictureSize> sizes, const Tensors& outputs)>;
  /// Runs the model over `count` pictures, in order. Several are read and prepared at the same time, on OpenCV's threads, while
  /// earlier ones run.
  ///   get     thread-safe
  ///   Errors  those of the first picture or request that fails
  Status run(std::size_t count, const SubmitOptions& options, const GetPicture& get, const TakeOutputs& take) const;

  const Preprocess& preprocess() const { return preprocess_; }  ///< with all sizes filled in
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// Pictures of one request, prepared.
  struct Batch {
    Tensor input;
    std::vector<PictureSize> sizes;
  };

  Status choose_preprocess(const Preprocess* given, const UsualWay& usual);
  Result<std::vector<Batch>> prepare(std::size_t first, std::size_t count, const GetPicture& get) const;
  Shape shape_of(std::size_t pictures) const;

  Predictor predictor_;
  std::size_t batch_ = 1;
  Preprocess preprocess_;
  std::vector<std::string> warnings_;
  bool is_interleaved_ = false;  ///< the input is NHWC
};

}  // namespace shoal::vision
