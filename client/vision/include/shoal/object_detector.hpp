// ObjectDetector: pictures in, boxes with names and scores out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/image.hpp"
#include "shoal/predictor.hpp"

namespace shoal {

/// What a detector's outputs mean. A row whose class is negative is no detection.
enum class DetectionFormat : std::uint8_t {
  kAuto,  ///< rows of six: kNmsRows if the output's name has "nms" in it, else kMultiBoxRows; else kIdsScoresBoxes: boxes by
          ///< the shape, classes and scores by their names, or, if these say nothing, in this order before the boxes
  kMultiBoxRows,    ///< MultiBoxDetection (SSD): batch x rows x (class, score, x0, y0, x1, y1), as shares of the input's sides
  kNmsRows,         ///< box_nms: the same, in pixels of the input
  kIdsScoresBoxes,  ///< GluonCV (SSD, YOLO, Faster R-CNN): batch x rows x 1, x 1 and x 4, in pixels of the input
};

struct ObjectDetectorOptions {
  StructSize<ObjectDetectorOptions> struct_size{};
  Optional<Preprocess> preprocess;  ///< used instead of the model's own
  float threshold = 0.5f;           ///< detections with a lower score are left out; at most 1
  std::size_t top_k = 0;            ///< detections per picture; 0 = all
  std::size_t batch = 1;            ///< pictures per request, if the model takes several
  DetectionFormat format = DetectionFormat::kAuto;
  List<Text> detections;  ///< names of the output with rows, or of three: classes, scores, boxes; empty = as `format` says
  List<Text> labels;      ///< used instead of the model's own
  List<DataDesc> inputs, outputs;  ///< as in PredictorOptions
  std::uint64_t version = 0;       ///< likewise
};

/// A rectangle in pixels of the picture: x to the right, y down, (0, 0) is the upper left corner of the first pixel.
struct Box {
  float x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  friend bool operator==(const Box&, const Box&) = default;
};

struct Detection {
  std::int64_t index = 0;  ///< of the class
  std::string label;       ///< empty if the class has none
  float score = 0;
  Box box;  ///< within the picture
};
using Detections = std::vector<Detection>;

/// Turns pictures into a model's input, runs the model, and reads boxes, which it maps back to the pictures.
///   Lifetime  keeps the preprocessing and labels of create()
///   Threads   thread-safe
class ObjectDetector {
 public:
  /// Asks the client for the model's description. If neither the options nor the model give a preprocessing, uses GluonCV's: the
  /// whole picture is stretched to the input, with ImageNet's mean and deviation; and adds a warning.
  ///   Errors  those of Predictor::create(); kFailedPrecondition (the model takes no pictures, or its outputs are no detections
  ///           or cannot be told apart: lists them); kNotFound (no such output); kInvalidArgument (the preprocessing does not fit
  ///           the input, or the input leaves the size open and there is no `crop`; or `threshold` is above 1)
  static Result<ObjectDetector> create(Client client, std::string model, const ObjectDetectorOptions& options = {});

  /// The objects in a picture, those with the highest scores first. Rows with a class, score or box that is no number, and boxes
  /// outside the picture, are left out; boxes are cut at its sides.
  ///   Errors  those of Image::read() and Client::submit(); kInvalidArgument (a picture without pixels, or too thin);
  ///           kFailedPrecondition (the outputs are no detections, a class is no whole number, or boxes of kAuto are no shares)
  Result<Detections> detect(const Image& image, const SubmitOptions& options = {}) const;
  Result<Detections> detect(const std::filesystem::path& file, const SubmitOptions& options = {}) const;
  /// The objects in many pictures, in the same order, as ImageClassifier::classify().
  Result<std::vector<Detections>> detect(std::span<const Image> images, const SubmitOptions& options = {}) const;
  Result<std::vector<Detections>> detect(std::span<const std::filesystem::path> files, const SubmitOptions& options = {}) const;

  const ModelInfo& info() const&;
  ModelInfo info() && { return std::as_const(*this).info(); }
  const Preprocess& preprocess() const&;  ///< with all sizes filled in
  Preprocess preprocess() && { return std::as_const(*this).preprocess(); }
  const std::vector<std::string>& warnings() const&;
  std::vector<std::string> warnings() && { return std::as_const(*this).warnings(); }

 private:
  struct Impl;
  explicit ObjectDetector(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// A copy of the picture with the boxes, their labels and scores; one color per class. Image::write() saves it.
///   Errors  kInvalidArgument (a picture without pixels), kFailedPrecondition (out of memory), kInternal (OpenCV)
Result<Image> draw_detections(const Image& image, std::span<const Detection> detections);

}  // namespace shoal
