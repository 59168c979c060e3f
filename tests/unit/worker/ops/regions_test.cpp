// Regions of maps, through the importer's lowering and the oracle kernels. The numbers are worked out by hand.
#include "worker/ops/regions.hpp"

#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const Tensor kMap = tensor({1, 1, 2, 2}, {1, 2, 3, 4});
Texts pooled(const std::string& size, Texts more = {}) {
  more.emplace("pooled_size", size);
  more.emplace("spatial_scale", "1");
  return more;
}
Tensor roi(const std::vector<double>& numbers) { return tensor({1, 5}, numbers); }

TEST(RoiPooling, TakesTheMaximumOfEachBin) {
  EXPECT_TRUE(gives("ROIPooling", pooled("(1, 1)"), {kMap, roi({0, 0, 0, 1, 1})}, {1, 1, 1, 1}, {4}));
  EXPECT_TRUE(gives("ROIPooling", pooled("(2, 2)"), {kMap, roi({0, 0, 0, 1, 1})}, {1, 1, 2, 2}, {1, 2, 3, 4}));
  EXPECT_TRUE(gives("ROIPooling", pooled("(1, 2)"), {kMap, roi({0, .5, 0, .5, 0})}, {1, 1, 1, 2}, {2, 2}))
      << "0.5 is rounded to 1, and a bin covers each element that it touches";
}

TEST(RoiPooling, GivesZeroWhereThereIsNothing) {
  for (const double map : {-1.0, 1.0, 1e30, kNan})
    EXPECT_TRUE(gives("ROIPooling", pooled("(1, 1)"), {kMap, roi({map, 0, 0, 1, 1})}, {1, 1, 1, 1}, {0})) << map;
  EXPECT_TRUE(gives("ROIPooling", pooled("(1, 1)"), {kMap, roi({0, 20, 20, 30, 30})}, {1, 1, 1, 1}, {0}));
  EXPECT_TRUE(gives("ROIPooling", pooled("(1, 1)"), {kMap, roi({0, -1e30, -1e30, 1e30, 1e30})}, {1, 1, 1, 1}, {0}))
      << "both ends are the lowest number of 32 bits, as on x86";
  EXPECT_TRUE(gives("ROIPooling", pooled("(1, 1)"), {tensor({1, 2, 0, 2}, {}), roi({0, 0, 0, 1, 1})}, {1, 2, 1, 1}, {0, 0}));
}

TEST(RoiPooling, NamesWhatIsWrong) {
  EXPECT_TRUE(refuses("ROIPooling", pooled("(1, 1)"), {kMap, tensor({1, 4}, {})}, "rois"));
  EXPECT_TRUE(refuses("ROIPooling", pooled("(1,)"), {kMap, roi({})}, "pooled_size"));
  EXPECT_TRUE(refuses("ROIPooling", pooled("(0, 1)"), {kMap, roi({})}, "pooled_size"));
  EXPECT_TRUE(refuses("ROIPooling", {{"pooled_size", "(1, 1)"}}, {kMap, roi({})}, "spatial_scale"));
  EXPECT_TRUE(refuses("ROIPooling", pooled("(1, 1)", {{"spatial_scale", "2"}}), {kMap, roi({})}, "spatial_scale"));
}

TEST(RoiAlign, InterpolatesSamples) {
  const auto one = [](Texts more, const std::vector<double>& region, double value) {
    return gives("_contrib_ROIAlign", pooled("(1, 1)", std::move(more)), {kMap, roi(region)}, {1, 1, 1, 1}, {value});
  };
  EXPECT_TRUE(one({{"sample_ratio", "1"}}, {0, 0, 0, 2, 2}, 4)) << "the last element at 1, 1";
  EXPECT_TRUE(one({{"sample_ratio", "1"}}, {0, 0, 0, 1, 1}, 2.5)) << "between all four at 0.5, 0.5";
  EXPECT_TRUE(one({{"sample_ratio", "1"}, {"aligned", "True"}}, {0, 0, 0, 2, 2}, 2.5));
  EXPECT_TRUE(one({{"aligned", "True"}}, {0, 0, 0, 2, 2}, 2.5)) << "two samples along each axis";
  EXPECT_TRUE(one({{"sample_ratio", "1"}}, {0, 0, 0, 0, 0}, 2.5)) << "a region without extent counts as one element";
  EXPECT_TRUE(one({{"sample_ratio", "1"}}, {0, -2, 0, -1, 1}, 0)) << "a sample beyond the map counts 0";
  EXPECT_TRUE(one({{"sample_ratio", "2"}}, {0, -4, 0, 4, 1}, 1.5)) << "of two columns only the one at 2 counts";
}

TEST(RoiAlign, GivesZeroWhereThereIsNothing) {
  for (const double map : {-1.0, 1.0, kNan})
    EXPECT_TRUE(gives("_contrib_ROIAlign", pooled("(1, 1)"), {kMap, roi({map, 0, 0, 1, 1})}, {1, 1, 1, 1}, {0})) << map;
  EXPECT_TRUE(gives("_contrib_ROIAlign", pooled("(1, 1)", {{"aligned", "1"}}), {kMap, roi({0, 1, 1, 1, 2})}, {1, 1, 1, 1}, {0}));
  EXPECT_TRUE(gives("_contrib_ROIAlign", pooled("(1, 1)"), {tensor({1, 1, 2, 0}, {}), roi({0, 0, 0, 1, 1})}, {1, 1, 1, 1}, {0}));
}

TEST(RoiAlign, VisitsNoMoreSamplesThanTheMapHas) {
  for (const double end : {1e9, 1e30, kInfinity, kNan, -1e30}) {
    for (const char* samples : {"-1", "65536"}) {
      const auto outputs = apply("_contrib_ROIAlign", pooled("(7, 7)", {{"sample_ratio", samples}}),
                                 {kMap, tensor({2, 5}, {0, -end, -end, end, end, 0, 0, 0, end, end})});
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    }
  }
}

TEST(RoiAlign, ReadsAChannelForEachBinIfPositionsCount) {
  const Tensor map = tensor({1, 4, 1, 1}, {1, 2, 3, 4});
  EXPECT_TRUE(gives("_contrib_ROIAlign", pooled("(2, 2)", {{"position_sensitive", "True"}}), {map, roi({0, 0, 0, 1, 1})},
                    {1, 1, 2, 2}, {1, 2, 3, 4}));
  EXPECT_TRUE(refuses("_contrib_ROIAlign", pooled("(2, 2)", {{"position_sensitive", "True"}}),
                      {tensor({1, 3, 1, 1}, {}), roi({0, 0, 0, 1, 1})}, "bins"));
}

}  // namespace
}  // namespace shoal::worker
