// What networks for detection and segmentation have: deconvolution, other sizes of pictures, anchors, boxes and regions.
#include <algorithm>
#include <tuple>
#include <utility>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_chain.hpp"
#include "worker/import/mxnet/lower_layers.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/boxes.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/deconvolution.hpp"
#include "worker/ops/detection.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/proposal.hpp"
#include "worker/ops/regions.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/resize.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// Checks that there are `wanted` inputs.
void check_input_number(MxnetLowering& lowering, std::size_t wanted, std::string_view with) {
  if (lowering.inputs.size() == wanted) return;
  lowering.attributes.fail_node(StatusCode::kInvalidArgument,
                                format("{} inputs; with {} it takes {}", lowering.inputs.size(), with, wanted));
}

/// A tuple of two numbers.
std::pair<std::int64_t, std::int64_t> two(AttributeReader& attributes, const char* key, std::optional<Dims> missing,
                                          std::int64_t least) {
  const Dims dims = attributes.tuple(key, std::move(missing), least);
  if (dims.size() != 2) {
    attributes.fail(key, "has not 2 entries");
    return {least, least};
  }
  return {dims[0], dims[1]};
}

std::pair<float, float> two_reals(AttributeReader& attributes, const char* key, float missing) {
  const std::vector<float> reals = attributes.reals(key, std::vector{missing, missing});
  if (reals.size() == 2) return {reals[0], reals[1]};
  attributes.fail(key, "has not 2 entries");
  return {missing, missing};
}

/// Tuples without entries are errors.
std::vector<float> some_reals(AttributeReader& attributes, const char* key, const std::vector<float>& missing) {
  const std::vector<float> reals = attributes.reals(key, missing);
  if (!reals.empty()) return reals;
  attributes.fail(key, "has no entries");
  return missing;
}

Values deconvolution(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  DeconvolutionAttributes deconv;
  read_filters(lowering, deconv, /*no_bias=*/true);
  deconv.adj = kernel_tuple(attributes, "adj", deconv.kernel.size(), 0, 0);
  const Dims target = kernel_tuple(attributes, "target_shape", deconv.kernel.size(), 0, 0);
  const auto zeros = std::ranges::count(target, 0);
  if (zeros == 0) deconv.target_shape = target;
  if (zeros > 0 && std::cmp_less(zeros, target.size())) attributes.fail("target_shape", "holds 0 beside other numbers");
  return lowering.add(ops::kDeconvolution, deconv);
}

/// Each input is repeated until it is as large as `scale` times the first one.
Values repeat_pixels(MxnetLowering& lowering, std::int64_t scale, bool sums) {
  ResizeAttributes resize{.kind = ResizeKind::kRepeat, .to = ResizeTo::kScaled};
  resize.scale_height = resize.scale_width = static_cast<float>(scale);
  Values pictures;
  for (std::size_t i = 0; i < lowering.inputs.size(); ++i) {
    if (i > 0) resize.to = ResizeTo::kLike;
    Values sources{lowering.inputs[i]};
    if (i > 0) sources.push_back(lowering.inputs[0]);
    const Values resized = lowering.add(ops::kResize, resize, std::move(sources));
    if (resized.empty()) return {};
    pictures.push_back(resized[0]);
  }
  if (pictures.size() == 1) return pictures;
  return sums ? lowering.add(ops::kAddN, {}, std::move(pictures))
              : lowering.add(ops::kConcat, ConcatAttributes{1}, std::move(pictures));
}

Values up_sampling(MxnetLowering& lowering) {
  constexpr std::int64_t kMostScale = std::int64_t{1} << 24;  // whole in float32
  AttributeReader& attributes = lowering.attributes;
  const std::int64_t scale = attributes.integer("scale", {}, 1, kMostScale);
  const bool is_linear = attributes.choice("sample_type", {"nearest", "bilinear"}) == 1;
  const bool sums = attributes.choice("multi_input_mode", {"concat", "sum"}, 0) == 1;
  const std::int64_t filters = attributes.integer("num_filter", 0, 0);
  attributes.ignore({"workspace", "num_args"});
  if (!is_linear) {
    lowering.check_input_count("num_args");
    return repeat_pixels(lowering, scale, sums);
  }
  check_input_number(lowering, 2, "sample_type='bilinear'");
  if (filters < 1) attributes.fail("num_filter", "is missing; sample_type='bilinear' needs the number of channels");
  DeconvolutionAttributes deconv;
  deconv.kernel = Dims(2, 2 * scale - scale % 2);
  deconv.stride = Dims(2, scale);
  deconv.dilate = Dims(2, 1);
  deconv.pad = Dims(2, scale / 2);
  deconv.adj = Dims(2, 0);
  deconv.num_filter = deconv.num_group = filters;
  return lowering.add(ops::kDeconvolution, deconv);
}

Values crop(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const bool has_like = attributes.integer("num_args", {}, 1, 2) == 2;
  check_input_number(lowering, has_like ? 2 : 1, has_like ? "num_args=2" : "num_args=1");
  CropAttributes crop;
  std::tie(crop.top, crop.left) = two(attributes, "offset", Dims{0, 0}, 0);
  std::tie(crop.height, crop.width) = two(attributes, "h_w", Dims{0, 0}, 0);
  if (!has_like && (crop.height == 0 || crop.width == 0)) attributes.fail("h_w", "holds 0, and there is no second input");
  crop.centered = attributes.flag("center_crop", false);
  return lowering.add(ops::kCrop, crop);
}

Values multibox_prior(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  MultiBoxPriorAttributes prior;
  prior.sizes = some_reals(attributes, "sizes", {1});
  prior.ratios = some_reals(attributes, "ratios", {1});
  prior.clip = attributes.flag("clip", false);
  std::tie(prior.step_y, prior.step_x) = two_reals(attributes, "steps", -1);
  std::tie(prior.offset_y, prior.offset_x) = two_reals(attributes, "offsets", 0.5F);
  if (!(prior.step_y * prior.step_x >= 0)) attributes.fail("steps", "has one entry below 0");
  const auto is_part = [](float offset) { return offset >= 0 && offset <= 1; };
  if (!is_part(prior.offset_y) || !is_part(prior.offset_x)) attributes.fail("offsets", "has an entry that is not in 0 to 1");
  return lowering.add(ops::kMultiBoxPrior, prior);
}

Values multibox_detection(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  MultiBoxDetectionAttributes detection;
  detection.clip = attributes.flag("clip", true);
  detection.threshold = attributes.real("threshold", 0.01F);
  detection.overlap = attributes.real("nms_threshold", 0.5F);
  detection.across_classes = attributes.flag("force_suppress", false);
  detection.topk = attributes.integer("nms_topk", -1);
  attributes.integer("background_id", 0);  // MXNet does not use it, either
  const std::vector<float> variances = attributes.reals("variances", detection.variances);
  if (variances.size() == 4)
    detection.variances = variances;
  else
    attributes.fail("variances", "has not 4 entries");
  return lowering.add(ops::kMultiBoxDetection, detection);
}

auto proposal(bool one_picture) {
  return [=](MxnetLowering& lowering) {
    AttributeReader& attributes = lowering.attributes;
    ProposalAttributes proposal{.one_picture = one_picture};
    proposal.most_sorted = attributes.integer("rpn_pre_nms_top_n", 6000);
    proposal.count = attributes.integer("rpn_post_nms_top_n", 300, 1);
    proposal.overlap = attributes.real("threshold", 0.7F);
    proposal.least_size = attributes.integer("rpn_min_size", 16);
    proposal.scales = some_reals(attributes, "scales", proposal.scales);
    proposal.ratios = some_reals(attributes, "ratios", proposal.ratios);
    proposal.stride = attributes.integer("feature_stride", 16, 1);
    attributes.flag("output_score", false);  // says whether the second output is listed
    proposal.adds_offsets = attributes.flag("iou_loss", false);
    return lowering.add(ops::kProposal, proposal);
  };
}

Values roi_pooling(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  RoiPoolingAttributes pool;
  std::tie(pool.height, pool.width) = two(attributes, "pooled_size", {}, 1);
  pool.scale = attributes.real("spatial_scale");
  if (!(pool.scale >= 0 && pool.scale <= 1)) attributes.fail("spatial_scale", "is not in 0 to 1");
  Values outputs = lowering.add(ops::kRoiPooling, pool);
  outputs.push_back(kNoValue);  // where the maxima are
  return outputs;
}

Values roi_align(MxnetLowering& lowering) {
  constexpr std::int64_t kMostSamples = 65536;  // of a bin; more are refused
  AttributeReader& attributes = lowering.attributes;
  RoiAlignAttributes align;
  std::tie(align.height, align.width) = two(attributes, "pooled_size", {}, 1);
  align.scale = attributes.real("spatial_scale");
  align.samples = attributes.integer("sample_ratio", -1, AttributeReader::kInt32Min, kMostSamples);
  align.by_position = attributes.flag("position_sensitive", false);
  align.aligned = attributes.flag("aligned", false);
  return lowering.add(ops::kRoiAlign, align);
}

BoxFormat box_format(AttributeReader& attributes, const char* key, BoxFormat missing) {
  return static_cast<BoxFormat>(attributes.choice(key, {"corner", "center"}, static_cast<std::size_t>(missing)));
}

Values box_nms(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  BoxNmsAttributes nms;
  nms.overlap = attributes.real("overlap_thresh", 0.5F);
  nms.valid = attributes.real("valid_thresh", 0.0F);
  nms.topk = attributes.integer("topk", -1);
  nms.coordinates = attributes.integer("coord_start", 2);
  nms.score = attributes.integer("score_index", 1);
  nms.class_id = attributes.integer("id_index", -1);
  nms.background = attributes.integer("background_id", -1);
  nms.across_classes = attributes.flag("force_suppress", false);
  nms.in_format = box_format(attributes, "in_format", BoxFormat::kCorner);
  nms.out_format = box_format(attributes, "out_format", BoxFormat::kCorner);
  Values outputs = lowering.add(ops::kBoxNms, nms);
  outputs.push_back(kNoValue);  // which rows were kept
  return outputs;
}

Values box_iou(MxnetLowering& lowering) {
  return lowering.add(ops::kBoxIou, BoxIouAttributes{box_format(lowering.attributes, "format", BoxFormat::kCorner)});
}

Values box_decode(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  BoxDecodeAttributes decode;
  decode.factor_x = attributes.real("std0", 1.0F);
  decode.factor_y = attributes.real("std1", 1.0F);
  decode.factor_width = attributes.real("std2", 1.0F);
  decode.factor_height = attributes.real("std3", 1.0F);
  decode.clip = attributes.real("clip", -1.0F);
  decode.format = box_format(attributes, "format", BoxFormat::kCenter);
  return lowering.add(ops::kBoxDecode, decode);
}

Values box_encode(MxnetLowering& lowering) { return lowering.add(ops::kBoxEncode); }

Values bipartite_matching(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  BipartiteMatchingAttributes matching;
  matching.ascending = attributes.flag("is_ascend", false);
  matching.threshold = attributes.real("threshold");
  matching.topk = attributes.integer("topk", -1);
  return lowering.add(ops::kBipartiteMatching, matching);
}

Values bilinear_resize(MxnetLowering& lowering) {
  constexpr std::int64_t kMostPixels = 10000;  // of a side, as in MXNet
  AttributeReader& attributes = lowering.attributes;
  constexpr ResizeTo kModes[] = {ResizeTo::kSize,   ResizeTo::kOddScaled, ResizeTo::kLike, ResizeTo::kEvenDown,
                                 ResizeTo::kEvenUp, ResizeTo::kOddDown,   ResizeTo::kOddUp};
  ResizeAttributes resize;
  resize.height = attributes.integer("height", 1, 1, kMostPixels);
  resize.width = attributes.integer("width", 1, 1, kMostPixels);
  resize.to = kModes[attributes.choice(
      "mode", {"size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"}, 0)];
  const bool has_height = attributes.has("scale_height"), has_width = attributes.has("scale_width");
  attributes.ignore({"scale_height", "scale_width"});
  if (resize.to == ResizeTo::kSize && (has_height || has_width)) resize.to = ResizeTo::kScaled;
  if (resize.to == ResizeTo::kScaled || resize.to == ResizeTo::kOddScaled) {
    if (!has_height) attributes.fail("scale_height", "is missing");
    if (!has_width) attributes.fail("scale_width", "is missing");
    if (has_height) resize.scale_height = attributes.real("scale_height");
    if (has_width) resize.scale_width = attributes.real("scale_width");
  }
  resize.kind = attributes.flag("align_corners", true) ? ResizeKind::kLinearCorners : ResizeKind::kLinearHalfPixel;
  check_input_number(lowering, resize.to == ResizeTo::kLike ? 2 : 1, resize.to == ResizeTo::kLike ? "mode='like'" : "this mode");
  return lowering.add(ops::kResize, resize);
}

Values image_resize(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  ResizeAttributes resize{.channels_last = true};
  const Dims size = attributes.tuple("size", {}, 1);
  if (size.size() != 1 && size.size() != 2) {
    attributes.fail("size", "has no 1 or 2 entries");
  } else {
    resize.width = size.front();
    resize.height = size.back();
  }
  if (attributes.flag("keep_ratio", false) && size.size() == 1) resize.to = ResizeTo::kShorterSide;
  const std::int64_t method = attributes.integer("interp", 1);
  if (method != 0 && method != 1) {
    attributes.fail_node(StatusCode::kUnimplemented,
                         format("attribute interp={}: only 0 (nearest) and 1 (linear) are supported", method));
  }
  resize.kind = method == 0 ? ResizeKind::kOpenCvNearest : ResizeKind::kOpenCvLinear;
  return lowering.add(ops::kResize, resize);
}

/// (H, W, C) or (N, H, W, C) of 0 to 255 becomes channels in front of 0 to 1.
Values image_to_tensor(MxnetLowering& lowering) {
  return Chain(lowering, lowering.inputs[0])
      .add(ops::kSwapAxes, SwapAxesAttributes{-3, -1})
      .add(ops::kSwapAxes, SwapAxesAttributes{-2, -1})
      .add(ops::kCast, CastAttributes{DType::kFloat32})
      .add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kDiv, .scalar = 255})
      .end();
}

/// (x - mean) / std: one number each, or one for each channel.
Values image_normalize(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  std::vector<float> means = some_reals(attributes, "mean", {0, 0, 0, 0}),
                     deviations = some_reals(attributes, "std", {1, 1, 1, 1});
  const std::size_t channels = std::max(means.size(), deviations.size());
  Chain chain(lowering, lowering.inputs[0]);
  if (channels == 1) {
    return chain.add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kSub, .scalar = means[0]})
        .add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kDiv, .scalar = deviations[0]})
        .end();
  }
  if (means.size() == 1) means.resize(channels, means[0]);
  if (deviations.size() == 1) deviations.resize(channels, deviations[0]);
  if (means.size() != deviations.size()) {
    attributes.fail("std", format("has {} entries where mean has {}", deviations.size(), means.size()));
    return {};
  }
  std::vector<float> factors;
  for (const float deviation : deviations) factors.push_back(1 / deviation);
  Values parameters;
  for (const std::vector<float>& numbers :
       {factors, std::vector<float>(channels, 0.0F), means, std::vector<float>(channels, 1.0F)})
    parameters.push_back(add_constant(lowering, numbers));
  if (std::ranges::count(parameters, kNoValue) > 0) return {};
  return chain.add(ops::kBatchNorm, BatchNormAttributes{.eps = 0, .fix_gamma = false, .axis = -3}, parameters).end();
}

Values image_crop(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const std::int64_t x = attributes.integer("x", {}, 0), y = attributes.integer("y", {}, 0);
  const std::int64_t width = attributes.integer("width", {}, 1), height = attributes.integer("height", {}, 1);
  return lowering.add(ops::kSlice, SliceAttributes{{{-3, y, y + height}, {-2, x, x + width}}, /*clips=*/false});
}

/// The channels are (block, block, rest): the first two go between rows and columns.
Values depth_to_space(MxnetLowering& lowering) {
  const std::int64_t block = lowering.attributes.integer("block_size", {}, 1);
  return Chain(lowering, lowering.inputs[0])
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, -4, block, -1, -2}})
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, 0, -4, block, -1, -2}})
      .add(ops::kTranspose, TransposeAttributes{{0, 3, 4, 1, 5, 2}})
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, 0, -3, -3}})
      .end();
}

Values space_to_depth(MxnetLowering& lowering) {
  const std::int64_t block = lowering.attributes.integer("block_size", {}, 1);
  return Chain(lowering, lowering.inputs[0])
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, 0, -4, -1, block, -4, -1, block, -2}})
      .add(ops::kTranspose, TransposeAttributes{{0, 3, 5, 1, 2, 4}})
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, -3, 0, 0, 0}})
      .add(ops::kReshape, ReshapeAttributes{.shape = {0, -3, 0, 0}})
      .end();
}

}  // namespace

std::vector<MxnetOperator> vision_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 2, 3, -1, deconvolution, -1, {}, {"weight", "bias"}}, {"Deconvolution", "_npx_deconvolution"});
  all.push_back({"UpSampling", 1, -1, -1, up_sampling});
  all.push_back({"Crop", 1, 2, -1, crop});
  add_aliases(all, {"", 1, 1, -1, multibox_prior}, {"_contrib_MultiBoxPrior", "_npx_multibox_prior"});
  add_aliases(all, {"", 3, 3, -1, multibox_detection}, {"_contrib_MultiBoxDetection", "_npx_multibox_detection"});
  all.push_back({"_contrib_Proposal", 3, 3, -1, proposal(true), -1, {"output", "score"}});
  all.push_back({"_contrib_MultiProposal", 3, 3, -1, proposal(false), -1, {"output", "score"}});
  add_aliases(all, {"", 2, 2, -1, roi_pooling, -1, {"output", "maxidx"}}, {"ROIPooling", "_npx_roi_pooling"});
  all.push_back({"_contrib_ROIAlign", 2, 2, -1, roi_align});
  add_aliases(all, {"", 1, 1, -1, box_nms}, {"_contrib_box_nms", "_contrib_box_non_maximum_suppression"});
  all.push_back({"_contrib_box_iou", 2, 2, -1, box_iou});
  all.push_back({"_contrib_box_decode", 2, 2, -1, box_decode});
  all.push_back({"_contrib_box_encode", 6, 6, -1, box_encode});
  all.push_back({"_contrib_bipartite_matching", 1, 1, -1, bipartite_matching});
  all.push_back({"_contrib_BilinearResize2D", 1, 2, -1, bilinear_resize});
  add_aliases(all, {"", 1, 1, -1, image_to_tensor}, {"_image_to_tensor", "_npx__image_to_tensor"});
  add_aliases(all, {"", 1, 1, -1, image_normalize}, {"_image_normalize", "_npx__image_normalize"});
  add_aliases(all, {"", 1, 1, -1, image_resize}, {"_image_resize", "_npx__image_resize"});
  add_aliases(all, {"", 1, 1, -1, image_crop}, {"_image_crop", "_npx__image_crop"});
  all.push_back({"depth_to_space", 1, 1, -1, depth_to_space});
  all.push_back({"space_to_depth", 1, 1, -1, space_to_depth});
  return all;
}

}  // namespace shoal::worker
