#include "client/vision/src/picture_model.hpp"

#include <algorithm>
#include <opencv2/core.hpp>
#include <utility>

#include "client/tasks/in_order.hpp"
#include "client/vision/src/preprocessing.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"

namespace shoal::vision {
namespace {

constexpr std::size_t kMostPreparedAtOnce = 64;

/// The dimensions of the input without the batch; -1 if the model leaves one open.
struct InputSides {
  std::int64_t channels = -1, height = -1, width = -1;
  bool is_interleaved = false;
};

bool is_channels(std::int64_t size) { return size == 1 || size == 3; }
bool may_be_channels(std::int64_t size) { return is_channels(size) || size == -1; }

Result<InputSides> sides_of(const Predictor& predictor) {
  const std::string& model = predictor.info().name;
  if (predictor.inputs().size() != 1)
    return failed_precondition("model '{}' has {} inputs; a model for pictures has one", model, predictor.inputs().size());
  const DataDesc& input = predictor.inputs()[0];
  if (input.dtype != DType::kFloat32)
    return failed_precondition("model '{}': input '{}' is {}; pictures need float32", model, input.name, dtype_name(input.dtype));
  const bool is_nhwc = input.layout == "NHWC";
  const Shape& shape = input.shape;
  if (!shape.is_known()) return InputSides{.is_interleaved = is_nhwc};
  const bool says_nothing = input.layout.empty() && shape.rank() == 4;
  const bool is_first =
      says_nothing && may_be_channels(shape[1]) && (is_channels(shape[1]) || !is_channels(shape[3]));  // else an open side
  if (is_first || (input.layout == "NCHW" && may_be_channels(shape[1]))) return InputSides{shape[1], shape[2], shape[3], false};
  if ((says_nothing || is_nhwc) && may_be_channels(shape[3])) return InputSides{shape[3], shape[1], shape[2], true};
  return failed_precondition(
      "model '{}': input '{}' is {}; pictures need batch x (1 or 3) x height x width (NCHW), or the channels last (NHWC)", model,
      input.name, descriptor_text(input));
}

}  // namespace

Result<PictureModel> PictureModel::create(Predictor predictor, const Preprocess* given, std::size_t batch,
                                          const UsualWay& usual) {
  PictureModel model;
  model.predictor_ = std::move(predictor);
  model.batch_ = batch;
  if (batch < 1)
    return invalid_argument("model '{}': a request needs a batch of at least 1 picture", model.predictor_.info().name);
  SHOAL_RETURN_IF_ERROR(model.choose_preprocess(given, usual));
  return model;
}

Status PictureModel::choose_preprocess(const Preprocess* given, const UsualWay& usual) {
  SHOAL_ASSIGN_OR_RETURN(const InputSides sides, sides_of(predictor_));
  const ModelInfo& info = predictor_.info();
  const Preprocess* const known = given ? given : info.preprocess.get();
  const bool is_gray = !known && sides.channels == 1;
  if (known)
    preprocess_ = whole(*known);
  else
    preprocess_ = is_gray ? Preprocess{.order = "GRAY", .mean = {0}, .scale = {1 / 255.0f}} : usual.preprocess;
  const auto fill_in = [&](std::int64_t& crop, std::int64_t side) {
    if (crop == 0) crop = side > 0 ? side : usual.side;
  };
  fill_in(preprocess_.crop_height, sides.height);
  fill_in(preprocess_.crop_width, sides.width);
  if (preprocess_.crop_height == 0 || preprocess_.crop_width == 0) {
    return invalid_argument(
        "model '{}': input '{}' is {}, which leaves the size of pictures open: write `crop` into [preprocess]", info.name,
        predictor_.inputs()[0].name, descriptor_text(predictor_.inputs()[0]));
  }
  if (!known) {
    if (!is_gray && usual.resize > 0) {
      const auto shorter = static_cast<double>(std::min(preprocess_.crop_height, preprocess_.crop_width));
      preprocess_.resize = static_cast<std::int64_t>(shorter * usual.resize);
    }
    warnings_.push_back(format(
        "model '{}' does not say how to prepare its pictures; used {}; give a preset, or write [preprocess] into model.toml",
        info.name, is_gray ? "gray, 0..1" : usual.name));
  }
  SHOAL_RETURN_IF_ERROR(check_preprocess(preprocess_).with_context(format("model '{}'", info.name)));
  const auto agree = [](std::int64_t model, std::int64_t given) { return model < 0 || model == given; };
  is_interleaved_ = sides.is_interleaved;
  if (agree(sides.channels, channels_of(preprocess_)) && agree(sides.height, preprocess_.crop_height) &&
      agree(sides.width, preprocess_.crop_width))
    return {};
  return invalid_argument("model '{}': input '{}' is {}, but pictures are prepared as {} ({})", info.name,
                          predictor_.inputs()[0].name, descriptor_text(predictor_.inputs()[0]), shape_of(1).to_string(),
                          preprocess_.order);
}

Shape PictureModel::shape_of(std::size_t pictures) const {
  const auto count = static_cast<std::int64_t>(pictures);
  const std::int64_t channels = channels_of(preprocess_), height = preprocess_.crop_height, width = preprocess_.crop_width;
  return is_interleaved_ ? Shape{count, height, width, channels} : Shape{count, channels, height, width};
}

Result<std::vector<PictureModel::Batch>> PictureModel::prepare(std::size_t first, std::size_t count,
                                                               const GetPicture& get) const {
  std::vector<Batch> batches;
  for (std::size_t begin = 0; begin < count; begin += batch_) {
    const std::size_t size = std::min(batch_, count - begin);
    SHOAL_ASSIGN_OR_RETURN(Tensor input, predictor_.allocate(predictor_.inputs()[0].name, shape_of(size)));
    batches.push_back({std::move(input), std::vector<PictureSize>(size)});
  }
  std::vector<Status> failures(count);
  const auto prepare_one = [&](std::size_t i) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const Image image, get(first + i));
    Batch& batch = batches[i / batch_];
    const std::size_t at = i % batch_;
    batch.sizes[at] = {image.height(), image.width()};
    const std::span<float> values = batch.input.values<float>();
    const std::size_t size = values.size() / batch.sizes.size();
    return vision::prepare(image, preprocess_, {values.subspan(at * size, size), is_interleaved_});
  };
  const auto prepare_some = [&](const cv::Range& range) {
    for (int i = range.start; i < range.end; ++i)
      failures[static_cast<std::size_t>(i)] = prepare_one(static_cast<std::size_t>(i));
  };
  if (count == 1)
    prepare_some(cv::Range(0, 1));
  else
    cv::parallel_for_(cv::Range(0, static_cast<int>(count)), prepare_some);
  for (Status& failure : failures) {
    if (!failure.ok()) return std::move(failure);
  }
  return batches;
}

Status PictureModel::run(std::size_t count, const SubmitOptions& options, const GetPicture& get, const TakeOutputs& take) const {
  const std::size_t batch = batch_, requests = (count + batch - 1) / batch;
  // As many as there are threads; whole requests.
  const std::size_t threads =
      std::clamp<std::size_t>(static_cast<std::size_t>(std::max(cv::getNumThreads(), 1)), 1, kMostPreparedAtOnce);
  const std::size_t at_once = std::max<std::size_t>(threads / batch, 1) * batch;
  std::deque<Batch> prepared;                      // and not submitted
  std::deque<std::vector<PictureSize>> under_way;  // of the requests, in order
  return tasks::in_order(
      requests,
      [&](std::size_t request) -> Result<Prediction> {
        if (prepared.empty()) {
          const std::size_t first = request * batch;
          SHOAL_ASSIGN_OR_RETURN(std::vector<Batch> batches, prepare(first, std::min(at_once, count - first), get));
          prepared.assign(std::make_move_iterator(batches.begin()), std::make_move_iterator(batches.end()));
        }
        Tensors inputs;
        inputs.push_back({predictor_.inputs()[0].name, std::move(prepared.front().input)});
        under_way.push_back(std::move(prepared.front().sizes));
        prepared.pop_front();
        return predictor_.submit(std::move(inputs), options);
      },
      [&](std::size_t request, const Tensors& outputs) {
        const std::vector<PictureSize> sizes = std::move(under_way.front());
        under_way.pop_front();
        return take(request * batch, sizes, outputs);
      });
}

}  // namespace shoal::vision
