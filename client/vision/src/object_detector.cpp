#include "shoal/object_detector.hpp"

#include <algorithm>
#include <utility>

#include "client/tasks/moved_from.hpp"
#include "client/tasks/strings.hpp"
#include "client/vision/src/detections.hpp"
#include "client/vision/src/picture_model.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"

namespace shoal {
namespace {

// GluonCV's detectors: the whole picture, without regard to its proportions, with ImageNet's mean and deviation.
const vision::UsualWay& usual_for_detectors() {
  static const vision::UsualWay usual{
      .name = "GluonCV's way (the whole picture in RGB, ImageNet's mean and deviation)",
      .preprocess = {.order = "RGB", .mean = {123.675f, 116.28f, 103.53f}, .scale = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f}}};
  return usual;
}

}  // namespace

struct ObjectDetector::Impl {
  float threshold = 0;
  std::size_t top_k = 0;
  DetectionFormat format = DetectionFormat::kAuto;
  std::vector<std::string> labels, names;  ///< of the options: `labels`, `detections`
  Predictor predictor;
  vision::PictureModel pictures;
  std::optional<vision::DetectionOutputs> outputs;  ///< nothing if the model does not describe the shapes of its outputs

  const std::string& model() const { return predictor.info().name; }
  vision::ReadOptions read_options() const { return {threshold, top_k, labels.empty() ? predictor.info().labels : labels}; }

  Result<vision::DetectionOutputs> find_outputs(std::span<const DataDesc> described) const {
    return vision::find_outputs(model(), described, format, names);
  }

  Result<vision::DetectionOutputs> outputs_of(const Tensors& tensors) const {
    if (outputs) return *outputs;
    std::vector<DataDesc> described;
    for (const auto& [name, tensor] : tensors) described.push_back({name, tensor.dtype(), tensor.shape()});
    return find_outputs(described);
  }

  Result<std::vector<Detections>> detect(std::size_t count, const SubmitOptions& submit,
                                         const vision::PictureModel::GetPicture& get) const {
    std::vector<Detections> all;
    const auto take = [&](std::size_t, std::span<const vision::PictureSize> sizes, const Tensors& tensors) -> Status {
      SHOAL_ASSIGN_OR_RETURN(const vision::DetectionOutputs which, outputs_of(tensors));
      SHOAL_ASSIGN_OR_RETURN(std::vector<Detections> found,
                             vision::read_detections(model(), tensors, which, sizes, pictures.preprocess(), read_options()));
      for (Detections& each : found) all.push_back(std::move(each));
      return {};
    };
    SHOAL_RETURN_IF_ERROR(pictures.run(count, submit, get, take));
    return all;
  }
};

ObjectDetector::ObjectDetector(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<ObjectDetector> ObjectDetector::create(Client client, std::string model, const ObjectDetectorOptions& given) {
  const ObjectDetectorOptions options = whole(given);
  if (!(options.threshold <= 1))  // nor NaN
    return invalid_argument("model '{}': threshold is {}; it must be at most 1", model, options.threshold);
  SHOAL_ASSIGN_OR_RETURN(Predictor predictor,
                         Predictor::create(std::move(client), std::move(model),
                                           {.inputs = options.inputs, .outputs = options.outputs, .version = options.version}));
  SHOAL_ASSIGN_OR_RETURN(vision::PictureModel pictures,
                         vision::PictureModel::create(predictor, options.preprocess.get(), options.batch, usual_for_detectors()));
  auto impl = std::make_shared<Impl>(Impl{options.threshold,
                                          options.top_k,
                                          options.format,
                                          tasks::strings_of(options.labels),
                                          tasks::strings_of(options.detections),
                                          std::move(predictor),
                                          std::move(pictures),
                                          {}});
  const std::span<const DataDesc> described = impl->predictor.outputs();
  if (std::ranges::all_of(described, [](const DataDesc& output) { return output.shape.is_known(); })) {
    SHOAL_ASSIGN_OR_RETURN(impl->outputs, impl->find_outputs(described));
  }
  return ObjectDetector(std::move(impl));
}

Result<std::vector<Detections>> ObjectDetector::detect(std::span<const Image> images, const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("ObjectDetector");
  return impl_->detect(images.size(), options, [&](std::size_t i) { return Result<Image>(images[i]); });
}

Result<std::vector<Detections>> ObjectDetector::detect(std::span<const std::filesystem::path> files,
                                                       const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("ObjectDetector");
  return impl_->detect(files.size(), options, [&](std::size_t i) { return Image::read(files[i]); });
}

Result<Detections> ObjectDetector::detect(const Image& image, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Detections> all, detect(std::span(&image, 1), options));
  return std::move(all.front());
}

Result<Detections> ObjectDetector::detect(const std::filesystem::path& file, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Detections> all, detect(std::span(&file, 1), options));
  return std::move(all.front());
}

const ModelInfo& ObjectDetector::info() const& {
  static const ModelInfo none;
  return impl_ ? impl_->predictor.info() : none;
}

const Preprocess& ObjectDetector::preprocess() const& {
  static const Preprocess none;
  return impl_ ? impl_->pictures.preprocess() : none;
}

const std::vector<std::string>& ObjectDetector::warnings() const& {
  static const std::vector<std::string> none;
  return impl_ ? impl_->pictures.warnings() : none;
}

}  // namespace shoal
