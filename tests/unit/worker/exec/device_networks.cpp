#include "tests/unit/worker/exec/device_networks.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace shoal::worker::testing {

namespace {

ValueId relu_conv(GraphBuilder& b, ValueId x, std::int64_t from, std::int64_t to) { return b.activation(b.conv(x, from, to, 3)); }

/// The first of the parts; the others' numbers follow.
ValueId split(GraphBuilder& b, ValueId x, std::int64_t axis, int parts) {
  return b.node("Split", {x}, SplitAttributes{.axis = axis, .parts = parts}, parts);
}

const NetworkCase kNetworks[] = {
    {"ConvolutionTakesNormAndActivation",
     [](GraphBuilder& b) { b.output(b.activation(b.batch_norm(b.conv(b.input("data"), 32, 32, 3), 32))); },
     {1, 32, 9, 9},
     3},
    {"NormWithFixedGammaAndBias",
     [](GraphBuilder& b) { b.output(b.batch_norm(b.conv(b.input("data"), 32, 48, 3, 1, 1, true), 48, /*fix_gamma=*/true)); }},
    {"ResidualThatIsDeadIsOverwritten",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = relu_conv(b, x, 32, 32);
       b.output(b.activation(b.add(b.conv(y, 32, 32, 3), x)));
     },
     {1, 32, 9, 9},
     5},
    {"ResidualReadLaterIsKept",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = relu_conv(b, x, 32, 32);
       const ValueId sum = b.activation(b.add(x, b.conv(y, 32, 32, 3)));
       b.output(b.binary(BinaryKind::kMul, sum, x));
     }},
    {"ResidualThatIsAlsoTheSource",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(b.add(b.conv(x, 32, 32, 3), x));
     }},
    {"ResidualThatIsTheInput",
     [](GraphBuilder& b) {
       const ValueId x = b.input("data");
       b.output(b.add(b.conv(x, 32, 32, 3), x));
     }},
    {"ResidualThatIsAnOutput",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(x);
       b.output(b.add(b.conv(relu_conv(b, x, 32, 32), 32, 32, 3), x));
     }},
    {"ResidualThatIsConstant",
     [](GraphBuilder& b) {
       const ValueId constant = b.constant({1, 32, 9, 9});
       b.output(b.add(b.conv(b.input("data"), 32, 32, 3), constant));
     }},
    {"ActivationBeforeTheAddition",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = relu_conv(b, x, 32, 32);
       b.output(b.add(b.activation(b.conv(y, 32, 32, 1), ActivationKind::kSigmoid), x));
     }},
    {"AdditionOfTwoConvolutions",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(b.activation(b.add(b.batch_norm(b.conv(x, 32, 64, 1, 2), 64), b.batch_norm(b.conv(x, 32, 64, 3, 2), 64))));
     }},
    {"IntermediateThatIsAnOutputIsNotFused",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 32, 32, 3);
       b.output(x);
       b.output(b.activation(x));
     }},
    {"RoundingByALargeNumberBehindAConvolution",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 32, 32, 3);
       b.output(b.scalar(BinaryKind::kSub, b.scalar(BinaryKind::kAdd, x, 12582912), 12582912));
     }},
    {"RoundingByALargeNumberOfTheInput",
     [](GraphBuilder& b) {
       const ValueId x = b.scalar(BinaryKind::kMul, b.input("data"), 4);
       b.output(b.scalar(BinaryKind::kSub, b.scalar(BinaryKind::kAdd, x, 12582912), 12582912));
     }},
    {"SumPlusItself",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 32, 32, 3);
       b.output(b.add(x, x));
     }},
    {"BatchNormOfOnePixel",  // whose layouts are equal, and whose strides are not
     [](GraphBuilder& b) {
       b.output(b.activation(b.batch_norm(b.pool(b.input("data"), {.kind = PoolingKind::kMax, .global = true}), 32)));
     }},
    {"NormAndActivationInFrontOfConvolutions",
     [](GraphBuilder& b) {
       ValueId x = b.batch_norm(b.input("data"), 32, true);
       for (int i = 0; i < 2; ++i) x = b.add(b.conv(b.activation(b.batch_norm(x, 32)), 32, 32, 3), x);
       b.output(b.activation(b.batch_norm(x, 32)));
     }},
    {"ConcatenationsOfConcatenations",
     [](GraphBuilder& b) {
       ValueId x = relu_conv(b, b.input("data"), 32, 32);
       for (int i = 0; i < 3; ++i) {
         const std::int64_t channels = 32 + 16 * i;
         x = b.concat({x, b.conv(b.activation(b.batch_norm(x, channels)), channels, 16, 3)});
       }
       b.output(b.global_average(x));
     }},
    {"ConcatenationsThatShareParts",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = b.concat({x, b.conv(x, 32, 16, 3)});
       const ValueId left = b.concat({y, b.conv(b.activation(b.batch_norm(y, 48)), 48, 16, 1)}),
                     right = b.concat({b.conv(y, 48, 7, 3), y, b.node("Identity", {y})});
       const ValueId all = b.concat({left, b.node("Identity", {y}), right, left});
       b.output(b.conv(b.batch_norm(all, 279), 279, 32, 1));
       b.output(b.batch_norm(right, 103));
       b.output(left);
     }},
    {"ConcatenationOfOneValueTwice",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(b.conv(b.concat({x, b.activation(x, ActivationKind::kTanh), x}), 96, 32, 1));
     }},
    {"ConcatenationWhosePartIsReadLater",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = relu_conv(b, x, 32, 32);
       const ValueId both = b.conv(b.concat({x, y}), 64, 32, 1);
       b.output(b.add(both, b.activation(x, ActivationKind::kTanh)));
     }},
    {"ConcatenationOfOddChannels",
     [](GraphBuilder& b) {
       const ValueId x = b.input("data");
       b.output(b.conv(b.concat({b.conv(x, 32, 20, 3), x, b.conv(x, 32, 7, 1)}), 59, 33, 3));
     }},
    {"ConcatenationThatIsTheOutput",
     [](GraphBuilder& b) {
       const ValueId x = b.input("data");
       b.output(b.concat({x, b.conv(x, 32, 16, 1)}));
     }},
    {"ChannelsThatDoNotFillABlock",
     [](GraphBuilder& b) {
       const ValueId x = b.activation(b.conv(b.input("data"), 32, 20, 3), ActivationKind::kSigmoid);
       b.output(b.conv(b.activation(b.batch_norm(x, 20), ActivationKind::kSigmoid), 20, 21, 1));
     }},
    {"GroupedConvolution",
     [](GraphBuilder& b) { b.output(b.activation(b.batch_norm(b.conv(b.input("data"), 32, 64, 3, 1, 8), 64))); }},
    {"DepthwiseConvolution",
     [](GraphBuilder& b) {
       b.output(b.conv(b.activation(b.batch_norm(b.conv(b.input("data"), 32, 32, 3, 2, 32), 32)), 32, 64, 1));
     }},
    {"ConvolutionInOneDimension",
     [](GraphBuilder& b) {
       b.output(b.activation(b.conv(b.conv(b.input("data"), 3, 32, 5, 1, 1, true, 1), 32, 32, 3, 2, 1, true, 1)));
     },
     {1, 3, 40}},
    {"ConvolutionInThreeDimensions",
     [](GraphBuilder& b) {
       b.output(b.activation(b.conv(b.conv(b.input("data"), 3, 16, 3, 1, 1, true, 3), 16, 16, 3, 2, 1, true, 3)));
     },
     {1, 3, 6, 7, 8}},
    {"PoolingOfEveryKind",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       for (const auto kind : {PoolingKind::kMax, PoolingKind::kAvg, PoolingKind::kSum}) {
         for (const auto convention : {PoolingConvention::kValid, PoolingConvention::kFull}) {
           for (const std::int64_t pad : {0, 1}) {
             for (const bool include : {true, false}) {
               b.output(b.pool(x, {.kind = kind,
                                   .convention = convention,
                                   .kernel = {3, 2},
                                   .stride = {2, 3},
                                   .pad = {pad, pad},
                                   .count_include_pad = include}));
             }
           }
         }
       }
     },
     {1, 32, 10, 12}},
    {"Heads",
     [](GraphBuilder& b) {
       const ValueId x = b.fully_connected(b.global_average(relu_conv(b, b.input("data"), 32, 32)), 32, 40);
       const ValueId y = b.fully_connected(b.activation(b.batch_norm(x, 40)), 40, 10);
       b.output(b.node("Softmax", {y}, SoftmaxAttributes{}));
       b.output(b.node("Softmax", {y}, SoftmaxAttributes{.kind = SoftmaxKind::kLogSoftmax}));
     }},
    {"FlattenedPictures",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(b.fully_connected(b.node("Flatten", {x}), 32 * 81, 10));
       b.output(b.node("Reshape", {x}, ReshapeAttributes{.shape = {0, 0, -1}}));
     }},
    {"ViewsAreNotOverwritten",
     [](GraphBuilder& b) {
       const ValueId x = b.fully_connected(b.input("data"), 32 * 81, 16);
       const ValueId viewed = b.node("Reshape", {x}, ReshapeAttributes{.shape = {0, 4, 4}});
       const ValueId y = b.activation(x, ActivationKind::kTanh);
       b.output(b.add(b.node("Reshape", {y}, ReshapeAttributes{.shape = {0, 4, 4}}), viewed));
     }},
    {"ScalarsAndClip",
     [](GraphBuilder& b) {
       const ValueId x = b.scalar(BinaryKind::kMul, b.conv(b.input("data"), 32, 32, 1), 3);
       const ValueId y = b.scalar(BinaryKind::kSub, b.node("Clip", {x}, ClipAttributes{-1, 2}), 0.5, /*reversed=*/true);
       b.output(b.scalar(BinaryKind::kAdd, b.scalar(BinaryKind::kDiv, y, 3), 1));
     }},
    {"ScalarsOfOneKindInARow",
     [](GraphBuilder& b) {
       const ValueId x = b.scalar(BinaryKind::kMul, b.conv(b.input("data"), 32, 32, 3), 3);
       b.output(b.scalar(BinaryKind::kAdd, b.activation(x, ActivationKind::kTanh), 1));
     }},
    {"PairsOfEveryKind",
     [](GraphBuilder& b) {
       const ValueId x = b.input("data"), y = b.activation(b.conv(x, 32, 32, 3), ActivationKind::kSigmoid);
       const ValueId ratio = b.binary(BinaryKind::kDiv, x, b.scalar(BinaryKind::kAdd, y, 1));
       const ValueId z = b.binary(BinaryKind::kMul, b.binary(BinaryKind::kSub, x, y), ratio);
       b.output(b.node("AddN", {z, x, y, z}));
     }},
    {"LocalResponseNormalization",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(b.node("LRN", {x}, LrnAttributes{.alpha = 0.01, .nsize = 5}, 2));
       b.output(b.node("LRN", {x}, LrnAttributes{.alpha = 0.01, .beta = 0.5, .nsize = 3}, 2));
     }},
    {"SoftmaxOverAxesBeforeTheLast",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 32, 21, 3);
       for (const std::int64_t axis : {1, 2, -1}) {
         b.output(b.node("Softmax", {x}, SoftmaxAttributes{.axis = axis}));
         b.output(b.node("Softmax", {x}, SoftmaxAttributes{.kind = SoftmaxKind::kLogSoftmax, .axis = axis}));
         b.output(b.node("Softmax", {x}, SoftmaxAttributes{.kind = SoftmaxKind::kSoftmin, .axis = axis}));
         b.output(b.node("Softmax", {x}, SoftmaxAttributes{.kind = SoftmaxKind::kSoftmin, .axis = axis, .temperature = 0.3}));
         b.output(b.node("Softmax", {x}, SoftmaxAttributes{.kind = SoftmaxKind::kLogSoftmax, .axis = axis, .temperature = 3}));
       }
     },
     {1, 32, 9, 17}},
    {"SoftmaxOverMoreThanThereIsRoomFor",
     [](GraphBuilder& b) { b.output(b.node("Softmax", {b.input("data")}, SoftmaxAttributes{.axis = 1})); },
     {1, 1100, 5, 7}},
    {"SoftmaxOverwritesWhatIsDead",
     [](GraphBuilder& b) { b.output(b.node("Softmax", {b.conv(b.input("data"), 32, 21, 3)}, SoftmaxAttributes{.axis = 1})); },
     {1, 32, 9, 9},
     4},
    {"L2NormalizationOfEveryMode",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 32, 21, 3);
       for (const auto mode : {L2NormalizationMode::kInstance, L2NormalizationMode::kChannel, L2NormalizationMode::kSpatial}) {
         const ValueId y = b.node("L2Normalization", {x}, L2NormalizationAttributes{.mode = mode}, 2);
         b.output(y);
         b.output(y + 1);  // the roots
       }
       b.output(b.node("L2Normalization", {b.fully_connected(b.global_average(x), 21, 128)}, L2NormalizationAttributes{}, 2));
     },
     {1, 32, 9, 17}},
    {"SlicesOfEveryKind",
     [](GraphBuilder& b) {
       const ValueId data = b.input("data"), x = relu_conv(b, data, 32, 32);
       for (const ValueId whole : {x, b.activation(b.conv(x, 32, 20, 1), ActivationKind::kTanh), data}) {
         for (const std::vector<SliceRange>& ranges :
              std::vector<std::vector<SliceRange>>{{{1, 16, 20}},
                                                   {{1, 3, 19}},
                                                   {{1, 0, 20, 2}},
                                                   {{2, 1, 8, 3}},
                                                   {{3, -4, std::nullopt}},
                                                   {{1, 0, 16}, {2, 2, 7}, {3, 1, 9, 2}},
                                                   {{3, std::nullopt, std::nullopt, -1}}}) {
           b.output(b.activation(b.node("Slice", {whole}, SliceAttributes{.ranges = ranges}), ActivationKind::kTanh));
         }
       }
       b.output(b.node("Slice", {x}, SliceAttributes{.ranges = {{1, 16, 32}}}));  // a part that is an output
     }},
    {"SplitsOfEveryKind",
     [](GraphBuilder& b) {
       const ValueId data = b.input("data"), x = relu_conv(b, data, 32, 32);
       for (const ValueId whole : {x, data}) {
         const ValueId halves = split(b, whole, 1, 2), eighths = split(b, whole, 1, 8), rows = split(b, whole, 2, 3);
         b.output(b.concat({b.conv(halves + 1, 16, 16, 3), halves}));
         b.output(b.concat({eighths + 7, b.activation(eighths + 2, ActivationKind::kTanh), eighths}));
         b.output(b.add(rows, rows + 2));
         b.output(b.node("Split", {rows + 1}, SplitAttributes{.axis = 1, .parts = 32, .squeeze = true}, 32));
       }
     }},
    {"WholesAreNotOverwrittenWhileTheirPartsAreRead",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), y = relu_conv(b, x, 32, 32), z = relu_conv(b, y, 32, 32);
       b.output(b.add(b.conv(split(b, x, 1, 2), 16, 32, 3), x));
       const ValueId first = b.node("Slice", {y}, SliceAttributes{.ranges = {{1, 0, 1}}});
       b.output(b.binary(BinaryKind::kMul, y, first, /*broadcast=*/true));
       const ValueId half = split(b, z, 1, 2);
       const ValueId changed = b.activation(z, ActivationKind::kTanh);  // before its parts are read
       b.output(b.add(b.concat({half, half + 1}), changed));
     }},
    {"PartsAreNotOverwrittenWhileTheWholeIsRead",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32), half = split(b, x, 1, 2);
       const ValueId changed = b.activation(half, ActivationKind::kTanh), pair = b.add(half, half + 1);
       b.output(b.add(b.concat({changed, pair}), x));
     }},
    {"AxesInEveryOrder",
     [](GraphBuilder& b) {
       const ValueId data = b.input("data"), x = relu_conv(b, data, 32, 32);
       for (Dims axes = {0, 1, 2, 3}; std::ranges::next_permutation(axes).found;) {
         for (const ValueId turned : {data, x}) b.output(b.node("Transpose", {turned}, TransposeAttributes{axes}));
       }
       b.output(b.node("Transpose", {x}, TransposeAttributes{}));
       b.output(b.node("SwapAxes", {b.conv(x, 32, 20, 1)}, SwapAxesAttributes{1, -1}));
     }},
    {"ChannelsLastAndBack",
     [](GraphBuilder& b) {
       const ValueId x = b.node("Transpose", {b.input("data")}, TransposeAttributes{{0, 3, 1, 2}});  // of (N, 32, 9, 8)
       const ValueId y = b.activation(b.conv(b.activation(x), 8, 32, 3));
       const ValueId back = b.node("Transpose", {y}, TransposeAttributes{{0, 2, 3, 1}});
       b.output(b.node("Reshape", {b.activation(back, ActivationKind::kTanh)}, ReshapeAttributes{.shape = {0, -1, 4}}));
     },
     {1, 32, 9, 8}},
    {"AxesOfVectors",
     [](GraphBuilder& b) {
       const ValueId x = b.fully_connected(b.input("data"), 32 * 81, 24);
       const ValueId turned = b.node("Transpose", {b.node("Reshape", {x}, ReshapeAttributes{.shape = {0, 0, 1, 1}})},
                                     TransposeAttributes{{1, 0, 2, 3}});
       b.output(b.activation(turned, ActivationKind::kTanh));
       b.output(b.add(turned, turned));
     }},
    {"PaddingOfEveryAxis",
     [](GraphBuilder& b) {
       const ValueId data = b.input("data"), x = relu_conv(b, data, 32, 32), odd = relu_conv(b, data, 32, 20);
       for (const ValueId src : {data, x, odd}) {
         for (const Dims& widths : std::vector<Dims>{
                  {0, 0, 0, 0, 1, 2, 3, 4}, {0, 0, 0, 0, 0, 0, 0, 1}, {1, 0, 0, 16, 0, 0, 0, 0}, {0, 0, 0, 0, 2, 0, 0, 0}}) {
           b.output(b.node("Pad", {src}, PadAttributes{.widths = widths, .value = -1.5}));
         }
         b.output(b.node("Pad", {src}, PadAttributes{.mode = PadMode::kReflect, .widths = {0, 0, 0, 0, 1, 2, 3, 4}}));
       }
       b.output(b.conv(b.node("Pad", {x}, PadAttributes{.widths = {0, 0, 0, 0, 0, 1, 0, 1}}), 32, 32, 3, 2));
     }},
    {"PaddingInThreeDimensions",
     [](GraphBuilder& b) {
       const ValueId x = b.conv(b.input("data"), 3, 16, 3, 1, 1, true, 3);
       b.output(b.node("Pad", {x}, PadAttributes{.widths = {0, 0, 0, 0, 1, 0, 0, 2, 3, 1}, .value = 2}));
     },
     {1, 3, 6, 7, 8}},
    {"SlopesPerChannel",
     [](GraphBuilder& b) {
       const auto prelu = [&](ValueId x, const Shape& slopes) {
         return b.node("LeakyReLU", {x, b.constant(slopes)}, LeakyAttributes{.kind = LeakyKind::kPrelu});
       };
       const ValueId x = prelu(b.batch_norm(b.conv(b.input("data"), 32, 48, 3), 48), {48});
       const ValueId odd = prelu(b.conv(x, 48, 20, 1), {20});
       b.output(prelu(prelu(odd, {1}), {1, 20}));
       b.output(prelu(b.fully_connected(b.global_average(x), 48, 10), {10}));
     }},
    {"OneValueThatIsTwoOutputs",
     [](GraphBuilder& b) {
       const ValueId x = relu_conv(b, b.input("data"), 32, 32);
       b.output(x);
       b.output(x);
     }},
    {"OutputThatIsTheInput",
     [](GraphBuilder& b) {
       const ValueId x = b.input("data");
       b.output(b.node("Identity", {x}));
       b.output(b.activation(x));
     }},
    {"OutputThatIsConstant",
     [](GraphBuilder& b) {
       b.output(b.activation(b.constant({2, 3})));
       b.output(b.activation(b.input("data")));
     }},
};

}  // namespace

std::span<const NetworkCase> device_networks() { return kNetworks; }

}  // namespace shoal::worker::testing
