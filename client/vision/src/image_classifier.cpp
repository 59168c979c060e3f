#include "shoal/image_classifier.hpp"

#include <utility>

#include "client/tasks/moved_from.hpp"
#include "client/vision/src/picture_model.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"

namespace shoal {
namespace {

// The preprocessing of nearly every model trained on ImageNet with Gluon or torchvision, on the scale 0..255.
const vision::UsualWay& usual_for_classes() {
  static const vision::UsualWay usual{
      .name = "ImageNet's way (RGB, its mean and deviation)",
      .preprocess = {.order = "RGB", .mean = {123.675f, 116.28f, 103.53f}, .scale = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f}},
      .side = 224,
      .resize = 256 / 224.0};
  return usual;
}

}  // namespace

struct ImageClassifier::Impl {
  Classifier classifier;
  vision::PictureModel pictures;

  Result<std::vector<Classes>> classify(std::size_t count, const SubmitOptions& options,
                                        const vision::PictureModel::GetPicture& get) const {
    std::vector<Classes> all;
    const auto take = [&](std::size_t, std::span<const vision::PictureSize> sizes, const Tensors& outputs) -> Status {
      SHOAL_ASSIGN_OR_RETURN(std::vector<Classes> classes, classifier.read(outputs));
      if (classes.size() != sizes.size())
        return failed_precondition("model '{}' answers with {} lists of classes for {} pictures",
                                   classifier.predictor().info().name, classes.size(), sizes.size());
      for (Classes& each : classes) all.push_back(std::move(each));
      return {};
    };
    SHOAL_RETURN_IF_ERROR(pictures.run(count, options, get, take));
    return all;
  }
};

ImageClassifier::ImageClassifier(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<ImageClassifier> ImageClassifier::create(Client client, std::string model, const ImageClassifierOptions& given) {
  const ImageClassifierOptions options = whole(given);
  SHOAL_ASSIGN_OR_RETURN(Classifier classifier, Classifier::create(std::move(client), std::move(model),
                                                                   {.labels = options.labels,
                                                                    .top_k = options.top_k,
                                                                    .output = options.output,
                                                                    .inputs = options.inputs,
                                                                    .outputs = options.outputs,
                                                                    .version = options.version}));
  SHOAL_ASSIGN_OR_RETURN(
      vision::PictureModel pictures,
      vision::PictureModel::create(classifier.predictor(), options.preprocess.get(), options.batch, usual_for_classes()));
  return ImageClassifier(std::make_shared<const Impl>(Impl{std::move(classifier), std::move(pictures)}));
}

Result<std::vector<Classes>> ImageClassifier::classify(std::span<const Image> images, const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("ImageClassifier");
  return impl_->classify(images.size(), options, [&](std::size_t i) { return Result<Image>(images[i]); });
}

Result<std::vector<Classes>> ImageClassifier::classify(std::span<const std::filesystem::path> files,
                                                       const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("ImageClassifier");
  return impl_->classify(files.size(), options, [&](std::size_t i) { return Image::read(files[i]); });
}

Result<Classes> ImageClassifier::classify(const Image& image, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Classes> all, classify(std::span(&image, 1), options));
  return std::move(all.front());
}

Result<Classes> ImageClassifier::classify(const std::filesystem::path& file, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Classes> all, classify(std::span(&file, 1), options));
  return std::move(all.front());
}

const ModelInfo& ImageClassifier::info() const& {
  static const ModelInfo none;
  return impl_ ? impl_->classifier.predictor().info() : none;
}

const Preprocess& ImageClassifier::preprocess() const& {
  static const Preprocess none;
  return impl_ ? impl_->pictures.preprocess() : none;
}

const std::vector<std::string>& ImageClassifier::warnings() const& {
  static const std::vector<std::string> none;
  return impl_ ? impl_->pictures.warnings() : none;
}

}  // namespace shoal
