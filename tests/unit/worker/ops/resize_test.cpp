// Pictures of another size, through the importer's lowering and the oracle kernels. The numbers are worked out by hand.
#include "worker/ops/resize.hpp"

#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const Tensor kPair = tensor({1, 1, 1, 2}, {1, 2});

TEST(UpSampling, RepeatsPixels) {
  const Texts twice{{"scale", "2"}, {"sample_type", "nearest"}, {"num_args", "1"}};
  EXPECT_TRUE(gives("UpSampling", twice, {kPair}, {1, 1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2}));
}

TEST(UpSampling, BringsSeveralInputsToOneSize) {
  const Tensor large = tensor({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  Texts texts{{"scale", "2"}, {"sample_type", "nearest"}, {"num_args", "2"}};
  EXPECT_TRUE(gives("UpSampling", texts, {kPair, large}, {1, 2, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2, 1, 2, 3, 4, 5, 6, 7, 8}));
  texts["multi_input_mode"] = "sum";
  EXPECT_TRUE(gives("UpSampling", texts, {kPair, large}, {1, 1, 2, 4}, {2, 3, 5, 6, 6, 7, 9, 10}));
  EXPECT_TRUE(refuses("UpSampling", texts, {kPair, tensor({1, 1, 2, 3}, {})}, "repeated"));
  EXPECT_TRUE(refuses("UpSampling", texts, {kPair}, "num_args"));
}

TEST(UpSampling, InterpolatesByTheStoredWeight) {
  const Texts texts{{"scale", "1"}, {"sample_type", "bilinear"}, {"num_filter", "1"}, {"num_args", "1"}};
  EXPECT_TRUE(gives("UpSampling", texts, {kPair, tensor({1, 1, 1, 1}, {5})}, {1, 1, 1, 2}, {5, 10}));
  EXPECT_TRUE(refuses("UpSampling", texts, {kPair}, "inputs"));
  EXPECT_TRUE(refuses("UpSampling", {{"scale", "0"}, {"sample_type", "nearest"}, {"num_args", "1"}}, {kPair}, "scale"));
  EXPECT_TRUE(refuses("UpSampling", {{"scale", "2"}, {"num_args", "1"}}, {kPair}, "sample_type"));
}

TEST(BilinearResize, PutsCornersOnCornersOrCentersOnCenters) {
  const Tensor data = tensor({1, 1, 1, 2}, {0, 2});
  EXPECT_TRUE(gives("_contrib_BilinearResize2D", {{"width", "3"}}, {data}, {1, 1, 1, 3}, {0, 1, 2}));
  EXPECT_TRUE(
      gives("_contrib_BilinearResize2D", {{"width", "4"}, {"align_corners", "False"}}, {data}, {1, 1, 1, 4}, {0, .5, 1.5, 2}));
  EXPECT_TRUE(gives("_contrib_BilinearResize2D", {{"width", "1"}}, {data}, {1, 1, 1, 1}, {0}));
  EXPECT_TRUE(gives("_contrib_BilinearResize2D", {{"width", "2"}, {"height", "2"}}, {tensor({1, 1, 1, 1}, {7})}, {1, 1, 2, 2},
                    {7, 7, 7, 7}));
}

TEST(BilinearResize, CopiesPicturesOfTheSameSize) {
  const Tensor odd = tensor({1, 1, 1, 2}, {kNan, 2});
  EXPECT_TRUE(gives("_contrib_BilinearResize2D", {{"width", "2"}}, {odd}, {1, 1, 1, 2}, {kNan, 2}));
}

TEST(BilinearResize, KnowsAllModes) {
  const auto shape = [](Texts texts, const Shape& from, const Shape& to) {
    const std::vector<double> zeros(static_cast<std::size_t>(to.element_count()), 0);
    return gives("_contrib_BilinearResize2D", texts, {tensor(from, {})}, to, zeros);
  };
  const Shape odd{1, 1, 5, 7}, even{1, 1, 6, 8};
  EXPECT_TRUE(shape({{"scale_height", "1.5"}, {"scale_width", "0.7"}, {"height", "99"}}, odd, {1, 1, 7, 4}));
  EXPECT_TRUE(shape({{"mode", "odd_scale"}, {"scale_height", "2"}, {"scale_width", "0.5"}}, odd, {1, 1, 9, 4}));
  EXPECT_TRUE(shape({{"mode", "odd_scale"}, {"scale_height", "2"}, {"scale_width", "0.5"}}, even, {1, 1, 12, 4}));
  EXPECT_TRUE(shape({{"mode", "to_even_down"}}, odd, {1, 1, 4, 6}));
  EXPECT_TRUE(shape({{"mode", "to_even_up"}}, odd, {1, 1, 6, 8}));
  EXPECT_TRUE(shape({{"mode", "to_odd_down"}}, even, {1, 1, 5, 7}));
  EXPECT_TRUE(shape({{"mode", "to_odd_up"}}, even, {1, 1, 7, 9}));
  EXPECT_TRUE(shape({{"mode", "to_odd_up"}}, odd, odd));
  EXPECT_TRUE(gives("_contrib_BilinearResize2D", {{"mode", "like"}}, {tensor({1, 1, 1, 1}, {3}), tensor({4, 2, 1, 2}, {})},
                    {1, 1, 1, 2}, {3, 3}));
}

TEST(BilinearResize, NamesWhatIsWrong) {
  const Tensor data = tensor({1, 1, 2, 2}, {});
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"scale_height", "2"}}, {data}, "scale_width"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"scale_width", "2"}}, {data}, "scale_height"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"mode", "odd_scale"}}, {data}, "scale_height"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"scale_height", "0.1"}, {"scale_width", "nan"}}, {data}, "0 long"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"height", "0"}}, {data}, "height"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {{"mode", "like"}}, {data}, "inputs"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {}, {tensor<std::uint8_t>({1, 1, 2, 2}, {})}, "uint8"));
  EXPECT_TRUE(refuses("_contrib_BilinearResize2D", {}, {tensor({1, 1, 0, 2}, {})}, "no pixels"));
}

TEST(Resize, KeepsOpenSizes) {
  DimTable table;
  const Dim batch = table.symbol("batch", {1, 64}), height = table.symbol("height", {1, 64});
  const auto resized = [&](const ResizeAttributes& attributes) {
    const Node node{.op = &ops::kResize, .name = "r", .attributes = attributes};
    const std::array<TypedValue, 1> src{{{"data", DType::kFloat32, {batch, 3, height, 5}, &table}}};
    std::array<TypedValue, 1> dst;
    dst[0].table = &table;
    const Status inferred = node.op->infer(node, src, dst);
    EXPECT_TRUE(inferred.ok()) << inferred.to_string();
    return dst[0].shape;
  };
  EXPECT_TRUE(resized({.to = ResizeTo::kScaled, .scale_height = 2, .scale_width = 2}) ==
              (SymbolicShape{batch, 3, 2 * height, 10}));
  EXPECT_TRUE(resized({.to = ResizeTo::kSize, .height = 4, .width = 10}) == (SymbolicShape{batch, 3, 4, 10}));
  const SymbolicShape half =
      resized({.kind = ResizeKind::kLinearCorners, .to = ResizeTo::kScaled, .scale_height = .5F, .scale_width = .5F});
  EXPECT_TRUE(half[3] == Dim(2));
  EXPECT_FALSE(half[2].is_number());
  EXPECT_GE(half[2].highest(), 32);
}

TEST(Crop, TakesAPart) {
  const Tensor data = tensor({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), like = tensor({1, 5, 2, 2}, {});
  EXPECT_TRUE(gives("Crop", {{"num_args", "1"}, {"h_w", "(1, 2)"}}, {data}, {1, 1, 1, 2}, {1, 2}));
  EXPECT_TRUE(gives("Crop", {{"num_args", "2"}, {"offset", "(1, 0)"}}, {data, like}, {1, 1, 2, 2}, {4, 5, 7, 8}));
  EXPECT_TRUE(gives("Crop", {{"num_args", "1"}, {"h_w", "(1, 1)"}, {"center_crop", "True"}}, {data}, {1, 1, 1, 1}, {5}));
  EXPECT_TRUE(refuses("Crop", {{"num_args", "1"}, {"h_w", "(4, 1)"}}, {data}, "axis 2"));
  EXPECT_TRUE(refuses("Crop", {{"num_args", "2"}, {"offset", "(0, 2)"}}, {data, like}, "axis 3"));
  EXPECT_TRUE(refuses("Crop", {{"num_args", "1"}}, {data}, "h_w"));
  EXPECT_TRUE(refuses("Crop", {{"num_args", "2"}}, {data}, "num_args"));
}

TEST(ImageOperators, ResizeAsOpenCvDoes) {
  const Tensor row = tensor<std::uint8_t>({1, 2, 1}, {0, 255});
  EXPECT_TRUE(gives("_image_resize", {{"size", "(4, 1)"}}, {row}, {1, 4, 1}, {0, 64, 191, 255}));
  EXPECT_TRUE(gives("_image_resize", {{"size", "(4, 1)"}, {"interp", "0"}}, {row}, {1, 4, 1}, {0, 0, 255, 255}));
  EXPECT_TRUE(gives("_image_resize", {{"size", "2"}}, {tensor({1, 1, 1, 1}, {3})}, {1, 2, 2, 1}, {3, 3, 3, 3}));
  const auto sides = apply("_image_resize", {{"size", "(10,)"}, {"keep_ratio", "True"}}, {tensor({5, 8, 3}, {})});
  ASSERT_TRUE(sides.ok()) << sides.status().to_string();
  EXPECT_EQ(sides->front().tensor.shape(), (Shape{10, 16, 3}));
  EXPECT_TRUE(refuses("_image_resize", {{"size", "(4, 1)"}, {"interp", "2"}}, {row}, "interp"));
  EXPECT_TRUE(refuses("_image_resize", {{"size", "()"}}, {row}, "size"));
  EXPECT_TRUE(refuses("_image_resize", {{"size", "(0, 2)"}}, {row}, "size"));
}

TEST(ImageOperators, MakeTensors) {
  EXPECT_TRUE(gives("_image_to_tensor", {}, {tensor<std::uint8_t>({1, 2, 2}, {0, 51, 102, 255})}, {2, 1, 2}, {0, .4, .2, 1}));
  EXPECT_TRUE(gives("_image_to_tensor", {}, {tensor({2, 1, 1, 2}, {0, 51, 102, 255})}, {2, 2, 1, 1}, {0, .2, .4, 1}));
}

TEST(ImageOperators, Normalize) {
  const Tensor data = tensor({2, 1, 1}, {1, 2});
  EXPECT_TRUE(gives("_image_normalize", {{"mean", "(1, 0)"}, {"std", "(2, -4)"}}, {data}, {2, 1, 1}, {0, -.5}));
  EXPECT_TRUE(gives("_image_normalize", {{"mean", "(1, 0)"}, {"std", "(2,)"}}, {data}, {2, 1, 1}, {0, 1}));
  EXPECT_TRUE(gives("_image_normalize", {{"mean", "0.5"}, {"std", "(0.25,)"}}, {data}, {2, 1, 1}, {2, 6}));
  EXPECT_TRUE(
      gives("_image_normalize", {{"mean", "(1, 0)"}, {"std", "(2, 4)"}}, {tensor({1, 2, 1, 1}, {1, 2})}, {1, 2, 1, 1}, {0, .5}));
  EXPECT_TRUE(refuses("_image_normalize", {{"mean", "(1, 2, 3)"}, {"std", "(1, 2)"}}, {data}, "std"));
  EXPECT_TRUE(refuses("_image_normalize", {{"mean", "(1, 2, 3)"}, {"std", "(1,)"}}, {data}, "gamma"));
}

TEST(ImageOperators, Crop) {
  const Tensor data = tensor({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(gives("_image_crop", {{"x", "1"}, {"y", "1"}, {"width", "2"}, {"height", "1"}}, {data}, {1, 2, 1}, {5, 6}));
  EXPECT_TRUE(refuses("_image_crop", {{"x", "2"}, {"y", "1"}, {"width", "2"}, {"height", "1"}}, {data}, "axis 1"));
}

TEST(DepthToSpace, TakesBlocksFromTheFirstChannels) {
  const Tensor deep = tensor({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}), wide = tensor({1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7});
  EXPECT_TRUE(gives("depth_to_space", {{"block_size", "2"}}, {deep}, {1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_TRUE(gives("space_to_depth", {{"block_size", "2"}}, {wide}, {1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(refuses("depth_to_space", {{"block_size", "3"}}, {deep}, "8"));
  EXPECT_TRUE(refuses("space_to_depth", {{"block_size", "3"}}, {wide}, "2"));
  EXPECT_TRUE(refuses("depth_to_space", {{"block_size", "2"}}, {tensor({1, 8, 1, 1, 1}, {})}, "axes"));
  EXPECT_TRUE(refuses("depth_to_space", {{"block_size", "0"}}, {deep}, "block_size"));
}

}  // namespace
}  // namespace shoal::worker
