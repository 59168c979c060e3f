// Boxes, through the importer's lowering and the oracle kernels. The numbers are worked out by hand.
#include "worker/ops/boxes.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

// Rows [class, score, box]; all boxes are the same.
const Tensor kThree = tensor({3, 6}, {0, .5, 0, 0, 2, 2, 0, .9, 0, 0, 2, 2, 1, .7, 0, 0, 2, 2});
const std::vector<double> kNone(6, -1);

std::vector<double> rows(std::initializer_list<std::vector<double>> parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const std::vector<double> kBest{0, .9, 0, 0, 2, 2}, kOther{1, .7, 0, 0, 2, 2}, kWorst{0, .5, 0, 0, 2, 2};

TEST(BoxNms, PutsWhatIsKeptInFrontTheBestFirst) {
  EXPECT_TRUE(gives("_contrib_box_nms", {}, {kThree}, {3, 6}, rows({kBest, kNone, kNone})));
  EXPECT_TRUE(gives("_contrib_box_nms", {{"overlap_thresh", "1"}}, {kThree}, {3, 6}, rows({kBest, kOther, kWorst})))
      << "an overlap that is not greater keeps a box";
}

TEST(BoxNms, ComparesBoxesOfAClassUnlessForced) {
  EXPECT_TRUE(gives("_contrib_box_nms", {{"id_index", "0"}}, {kThree}, {3, 6}, rows({kBest, kOther, kNone})));
  EXPECT_TRUE(
      gives("_contrib_box_nms", {{"id_index", "0"}, {"force_suppress", "True"}}, {kThree}, {3, 6}, rows({kBest, kNone, kNone})));
}

TEST(BoxNms, DropsTheBackgroundLowScoresAndNan) {
  EXPECT_TRUE(
      gives("_contrib_box_nms", {{"id_index", "0"}, {"background_id", "0"}}, {kThree}, {3, 6}, rows({kOther, kNone, kNone})));
  EXPECT_TRUE(gives("_contrib_box_nms", {{"valid_thresh", "0.9"}}, {kThree}, {3, 6}, rows({kNone, kNone, kNone})));
  const Tensor odd = tensor({2, 6}, {0, kNan, 0, 0, 1, 1, 0, kInfinity, 0, 0, 1, kNan});
  EXPECT_TRUE(gives("_contrib_box_nms", {}, {odd}, {2, 6}, rows({{0, kInfinity, 0, 0, 1, kNan}, kNone})));
}

TEST(BoxNms, TakesTheBestOnly) {
  EXPECT_TRUE(
      gives("_contrib_box_nms", {{"topk", "2"}, {"overlap_thresh", "1"}}, {kThree}, {3, 6}, rows({kBest, kOther, kNone})));
  const Tensor centered = tensor({1, 6}, {0, .5, 1, 1, 2, 2});
  EXPECT_TRUE(gives("_contrib_box_nms", {{"topk", "0"}, {"in_format", "center"}}, {centered}, {1, 6}, {0, .5, 1, 1, 2, 2}))
      << "a copy, not converted";
}

TEST(BoxNms, ConvertsWhatItKeeps) {
  const Tensor low = tensor({2, 6}, {0, .9, 0, 0, 2, 4, 0, .8, -9, 5, -7, 6});
  EXPECT_TRUE(gives("_contrib_box_nms", {{"out_format", "center"}}, {low}, {2, 6}, {0, .9, 1, 2, 2, 4, 0, .8, -9, 5, -7, 6}));
  EXPECT_TRUE(
      gives("_contrib_box_nms", {{"in_format", "center"}}, {tensor({1, 6}, {0, .9, 1, 2, 2, 4})}, {1, 6}, {0, .9, 0, 0, 2, 4}));
}

TEST(BoxNms, KeepsBatchesApartAndTakesNothingForNothing) {
  const Tensor two = tensor({2, 1, 5}, {.1, 0, 0, 1, 1, .2, 0, 0, 1, 1});
  EXPECT_TRUE(gives("_contrib_box_nms", {{"score_index", "0"}, {"coord_start", "1"}}, {two}, {2, 1, 5},
                    {.1, 0, 0, 1, 1, .2, 0, 0, 1, 1}));
  EXPECT_TRUE(gives("_contrib_box_nms", {}, {tensor({0, 6}, {})}, {0, 6}, {}));
}

TEST(BoxNms, RefusesRowsWithoutTheirFields) {
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"coord_start", "3"}}, {kThree}, "coord_start"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"coord_start", "-1"}}, {kThree}, "coord_start"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"score_index", "2"}}, {kThree}, "score_index"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"score_index", "6"}}, {kThree}, "score_index"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"id_index", "5"}}, {kThree}, "id_index"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {{"id_index", "1"}}, {kThree}, "id_index"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {}, {tensor<std::int32_t>({1, 6}, {})}, "int32"));
  EXPECT_TRUE(refuses("_contrib_box_nms", {}, {tensor({6}, {})}, "axes"));
}

TEST(BoxIou, ComparesEachBoxWithEachOther) {
  const Tensor boxes = tensor({2, 4}, {0, 0, 2, 2, 3, 3, 1, 1}), others = tensor({1, 2, 4}, {1, 1, 3, 3, 5, 5, 6, 6});
  EXPECT_TRUE(gives("_contrib_box_iou", {}, {boxes, others}, {2, 1, 2}, {1.0 / 7, 0, 0, 0})) << "reversed boxes have no area";
  const Tensor centered = tensor({1, 4}, {1, 1, 2, 2}), shifted = tensor({1, 4}, {2, 2, 2, 2});
  EXPECT_TRUE(gives("_contrib_box_iou", {{"format", "center"}}, {centered, shifted}, {1, 1}, {1.0 / 7}));
  EXPECT_TRUE(refuses("_contrib_box_iou", {}, {tensor({2, 5}, {}), centered}, "4 numbers"));
  EXPECT_TRUE(refuses("_contrib_box_iou", {}, {tensor({4}, {}), centered}, "axes"));
}

TEST(BoxDecode, MovesAndStretchesAnchors) {
  const Tensor data = tensor({1, 1, 4}, {.5, 1, 0, 0}), center = tensor({1, 1, 4}, {1, 2, 4, 6});
  EXPECT_TRUE(gives("_contrib_box_decode", {}, {data, center}, {1, 1, 4}, {1, 5, 5, 11}));
  EXPECT_TRUE(
      gives("_contrib_box_decode", {{"format", "corner"}}, {data, tensor({1, 1, 4}, {-1, -1, 3, 5})}, {1, 1, 4}, {1, 5, 5, 11}));
  EXPECT_TRUE(gives("_contrib_box_decode", {{"std0", "2"}, {"std1", "0"}}, {data, center}, {1, 1, 4}, {3, -1, 7, 5}));
  const double width = 2 * std::exp(.5);
  EXPECT_TRUE(gives("_contrib_box_decode", {{"clip", "0.5"}}, {tensor({1, 1, 4}, {0, 0, 9, kNan}), center}, {1, 1, 4},
                    {1 - width, 2 - 1.5 * width, 1 + width, 2 + 1.5 * width}));
  EXPECT_TRUE(refuses("_contrib_box_decode", {}, {data, tensor({1, 2, 4}, {})}, "anchors"));
}

TEST(BoxEncode, IsTheReverseForSamples) {
  const Tensor samples = tensor({1, 3}, {1, .5, .6}), matches = tensor({1, 3}, {1, 0, 99});
  const Tensor anchors = tensor({1, 3, 4}, {0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2}),
               refs = tensor({1, 2, 4}, {0, 0, 9, 9, 1, 1, 3, 3});
  const Tensor means = tensor({4}, {0, .5, 0, 0}), deviations = tensor({4}, {.5, 1, 1, 1});
  const std::vector<Tensor> inputs{samples, matches, anchors, refs, means, deviations};
  EXPECT_TRUE(gives("_contrib_box_encode", {}, inputs, {1, 3, 4}, {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_TRUE(gives("_contrib_box_encode", {}, inputs, {1, 3, 4}, {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}, 1));
}

TEST(BipartiteMatching, TakesTheBestPairsThatAreLeft) {
  const Tensor scores = tensor({3, 2}, {.5, .6, .1, .2, .3, .4});  // MXNet's own example
  EXPECT_TRUE(gives("_contrib_bipartite_matching", {{"threshold", "1e-12"}}, {scores}, {3}, {1, -1, 0}));
  EXPECT_TRUE(gives("_contrib_bipartite_matching", {{"threshold", "1e-12"}}, {scores}, {2}, {2, 0}, 1));
  EXPECT_TRUE(gives("_contrib_bipartite_matching", {{"threshold", "0.5"}}, {scores}, {3}, {1, -1, -1}));
  EXPECT_TRUE(gives("_contrib_bipartite_matching", {{"threshold", "1"}, {"is_ascend", "1"}}, {scores}, {3}, {-1, 0, 1}));
  EXPECT_TRUE(refuses("_contrib_bipartite_matching", {}, {scores}, "threshold"));
}

}  // namespace
}  // namespace shoal::worker
