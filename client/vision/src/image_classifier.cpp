#include "shoal/image_classifier.hpp"

#include <algorithm>
#include <deque>

#include "client/vision/src/preprocessing.hpp"
#include "client/vision/src/scores.hpp"
#include "shm/base/errors.hpp"

namespace shoal {
namespace {

// Enough to keep some workers busy while pictures are prepared; far below the limit of the daemon's queue.
constexpr std::size_t kRequestsUnderWay = 16;

// The preprocessing of nearly every model trained on ImageNet with Gluon or torchvision, on the scale 0..255. 0..1 for gray.
constexpr std::int64_t kUsualSide = 224, kUsualResize = 256;
Preprocess usual_preprocess(bool is_gray) {
  if (is_gray) return {.order = "GRAY", .mean = {0}, .scale = {1 / 255.0f}};
  return {.order = "RGB", .mean = {123.675f, 116.28f, 103.53f}, .scale = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f}};
}

/// The dimensions of NCHW without N; -1 if the model leaves one open.
struct InputSides {
  std::int64_t channels = -1, height = -1, width = -1;
};

Result<InputSides> sides_of(const ModelInfo& info) {
  if (info.inputs.size() != 1)
    return failed_precondition("model '{}' has {} inputs; a classifier of pictures has one", info.name, info.inputs.size());
  const TensorSpec& input = info.inputs[0];
  if (input.dtype != DType::kFloat32) {
    return failed_precondition("model '{}': input '{}' is {}; pictures need float32", info.name, input.name,
                               dtype_name(input.dtype));
  }
  if (!input.shape.is_known()) return InputSides{};
  const bool is_picture = input.shape.rank() == 4 && (input.shape[1] == 1 || input.shape[1] == 3 || input.shape[1] == -1);
  if (!is_picture) {
    return failed_precondition("model '{}': input '{}' is {}; pictures need batch x (1 or 3) x height x width", info.name,
                               input.name, input.shape.to_string());
  }
  return InputSides{input.shape[1], input.shape[2], input.shape[3]};
}

}  // namespace

ImageClassifier::ImageClassifier(Client client, ModelInfo info, ImageClassifierOptions options)
    : client_(std::move(client)), info_(std::move(info)), options_(std::move(options)) {}

Result<ImageClassifier> ImageClassifier::create(Client client, std::string model, ImageClassifierOptions options) {
  if (options.batch < 1 || options.top_k < 1)
    return invalid_argument("classify with '{}': batch and top_k must be at least 1", model);
  SHOAL_ASSIGN_OR_RETURN(ModelInfo info, client.describe(model));
  ImageClassifier classifier(std::move(client), std::move(info), std::move(options));
  SHOAL_RETURN_IF_ERROR(classifier.choose_preprocess());
  return classifier;
}

Status ImageClassifier::choose_preprocess() {
  SHOAL_ASSIGN_OR_RETURN(const InputSides sides, sides_of(info_));
  const auto& known = options_.preprocess ? options_.preprocess : info_.preprocess;
  preprocess_ = known.value_or(usual_preprocess(sides.channels == 1));
  if (preprocess_.crop_height == 0) preprocess_.crop_height = sides.height > 0 ? sides.height : kUsualSide;
  if (preprocess_.crop_width == 0) preprocess_.crop_width = sides.width > 0 ? sides.width : kUsualSide;
  if (!known) {
    if (preprocess_.order != "GRAY")
      preprocess_.resize = std::min(preprocess_.crop_height, preprocess_.crop_width) * kUsualResize / kUsualSide;
    warnings_.push_back(format(
        "model '{}' does not say how to prepare its pictures; used {}; give a preset, or write [preprocess] into model.toml",
        info_.name, preprocess_.order == "GRAY" ? "gray, 0..1" : "ImageNet's way (RGB, its mean and deviation)"));
  }
  SHOAL_RETURN_IF_ERROR(vision::check_preprocess(preprocess_).with_context(format("model '{}'", info_.name)));
  const auto agree = [](std::int64_t model, std::int64_t given) { return model < 0 || model == given; };
  if (!agree(sides.channels, vision::channels_of(preprocess_)) || !agree(sides.height, preprocess_.crop_height) ||
      !agree(sides.width, preprocess_.crop_width)) {
    return invalid_argument("model '{}': input '{}' is {}, but pictures are prepared as {}x{}x{} ({})", info_.name,
                            info_.inputs[0].name, info_.inputs[0].shape.to_string(), vision::channels_of(preprocess_),
                            preprocess_.crop_height, preprocess_.crop_width, preprocess_.order);
  }
  return {};
}

Result<Prediction> ImageClassifier::submit(std::span<const Image> images) const {
  if (info_.inputs.empty()) return failed_precondition("this ImageClassifier was moved from: use the one that it was moved to");
  const Shape shape{static_cast<std::int64_t>(images.size()), vision::channels_of(preprocess_), preprocess_.crop_height,
                    preprocess_.crop_width};
  SHOAL_ASSIGN_OR_RETURN(Tensor input, Tensor::create(DType::kFloat32, shape));
  const std::size_t size = input.values<float>().size() / images.size();
  for (std::size_t i = 0; i < images.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(vision::fill_planes(images[i], preprocess_, input.values<float>().subspan(i * size, size)));
  }
  Tensors inputs;
  inputs.push_back({info_.inputs[0].name, std::move(input)});
  return client_.submit(info_.name, std::move(inputs), options_.submit);
}

Status ImageClassifier::read_classes(const Tensors& outputs, std::size_t count, std::vector<Classes>& all) const {
  if (outputs.empty()) return failed_precondition("model '{}' has no output", info_.name);
  const Tensor& output = outputs[0].tensor;
  const auto rows = static_cast<std::int64_t>(count);
  const bool is_list = output.dtype() == DType::kFloat32 && output.shape().rank() >= 1 && output.shape()[0] == rows &&
                       output.shape().element_count() > 0;
  if (!is_list) {
    return failed_precondition("model '{}': output '{}' is {} {}, not a list of classes for {} pictures", info_.name,
                               outputs[0].name, dtype_name(output.dtype()), output.shape().to_string(), count);
  }
  const std::size_t classes = output.values<float>().size() / count;
  // With one line too few, classes would get the names of others.
  if (!info_.labels.empty() && info_.labels.size() != classes) {
    return failed_precondition("model '{}': output '{}' has {} classes, but its labels file has {} lines", info_.name,
                               outputs[0].name, classes, info_.labels.size());
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<float> probabilities = vision::to_probabilities(output.values<float>().subspan(i * classes, classes));
    all.push_back(vision::top_classes(probabilities, info_.labels, options_.top_k));
  }
  return {};
}

Result<Classes> ImageClassifier::classify(const Image& image) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Classes> all, classify(std::span(&image, 1)));
  return std::move(all.front());
}

Result<std::vector<Classes>> ImageClassifier::classify(std::span<const Image> images) const {
  struct UnderWay {
    Prediction prediction;
    std::size_t count;
  };
  std::deque<UnderWay> under_way;
  std::vector<Classes> all;
  for (std::size_t begin = 0; begin < images.size() || !under_way.empty();) {
    if (begin < images.size() && under_way.size() < kRequestsUnderWay) {
      const auto batch = images.subspan(begin, std::min(options_.batch, images.size() - begin));
      SHOAL_ASSIGN_OR_RETURN(Prediction prediction, submit(batch));
      under_way.push_back({std::move(prediction), batch.size()});
      begin += batch.size();
      continue;
    }
    const Result<Tensors>& outputs = under_way.front().prediction.get();
    if (!outputs.ok()) return outputs.status();
    SHOAL_RETURN_IF_ERROR(read_classes(*outputs, under_way.front().count, all));
    under_way.pop_front();
  }
  return all;
}

}  // namespace shoal
