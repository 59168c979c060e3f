// Reads the outputs of detectors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "client/vision/src/picture_model.hpp"
#include "client/vision/src/preprocessing.hpp"
#include "shoal/object_detector.hpp"

namespace shoal::vision {

/// Which outputs hold what.
struct DetectionOutputs {
  DetectionFormat format = DetectionFormat::kMultiBoxRows;  ///< never kAuto
  std::size_t ids = 0, scores = 0, boxes = 0;               ///< their places; of rows all three are the same
  bool is_guessed = false;                                  ///< that boxes are shares of the sides
};

/// Finds the outputs of a detector by their shapes.
///   described  shapes may be open, but not Shape::any()
///   format, names  as in ObjectDetectorOptions
///   Errors  kFailedPrecondition (they are no detections, or several may be: lists them), kNotFound (no output of that name),
///           kInvalidArgument (another number of names)
Result<DetectionOutputs> find_outputs(const std::string& model, std::span<const DataDesc> described, DetectionFormat format,
                                      std::span<const std::string> names);

struct ReadOptions {  ///< as in ObjectDetectorOptions
  float threshold = 0.5f;
  std::size_t top_k = 0;
  std::span<const std::string> labels;
};

/// The detections of the pictures of one request, in their order.
///   Errors  those of ObjectDetector::detect()
Result<std::vector<Detections>> read_detections(const std::string& model, const Tensors& outputs, const DetectionOutputs& which,
                                                std::span<const PictureSize> pictures, const Preprocess& preprocess,
                                                const ReadOptions& options);

}  // namespace shoal::vision
