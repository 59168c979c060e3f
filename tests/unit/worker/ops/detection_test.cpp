// Anchors, detections and proposals, through the importer's lowering and the oracle kernels. The numbers are worked out by hand.
#include "worker/ops/detection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/ops/suppression.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

/// The places of the `most` best scores. Scores below 0 take no part.
std::vector<std::int64_t> ranked(const std::vector<float>& scores, std::int64_t most) {
  std::vector<Ranked<float>> room(scores.size());
  const auto count = static_cast<std::int64_t>(scores.size());
  const std::int64_t found = rank_best(count, most, room.data(), Undivided(), [&](std::int64_t i, float& score) {
    score = scores[static_cast<std::size_t>(i)];
    return !(score < 0);
  });
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < found; ++i) places.push_back(room[static_cast<std::size_t>(i)].index);
  return places;
}

TEST(RankBest, IsStableAndPutsNanLast) {
  const std::vector<float> scores{1, static_cast<float>(kNan), 3, 1, -1, static_cast<float>(kInfinity)};
  EXPECT_EQ(ranked(scores, 9), (std::vector<std::int64_t>{5, 2, 0, 3, 1}));
  EXPECT_EQ(ranked(scores, 3), (std::vector<std::int64_t>{5, 2, 0}));
  EXPECT_EQ(ranked(scores, 0), std::vector<std::int64_t>());
  EXPECT_EQ(ranked({}, 3), std::vector<std::int64_t>());
}

TEST(RankBest, FindsTheBestOfAllParts) {
  std::vector<float> scores;
  for (std::size_t i = 0; i < 1000; ++i) scores.push_back(static_cast<float>(i * 7919 % 211));
  std::vector<std::int64_t> all(scores.size());
  std::iota(all.begin(), all.end(), 0);
  std::ranges::stable_sort(all, std::ranges::greater(), [&](std::int64_t i) { return scores[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(ranked(scores, 1000), all);
  all.resize(37);
  EXPECT_EQ(ranked(scores, 37), all);
}

const Tensor kMap = tensor({1, 1, 1, 2}, {0, 0});

TEST(MultiBoxPrior, MakesSquaresInPixelsAroundEachCell) {
  EXPECT_TRUE(
      gives("_contrib_MultiBoxPrior", {{"sizes", "(0.5,)"}}, {kMap}, {1, 2, 4}, {.125, .25, .375, .75, .625, .25, .875, .75}));
  EXPECT_TRUE(gives("_contrib_MultiBoxPrior", {{"sizes", "[0.5]"}, {"ratios", "(1, 4)"}}, {tensor({9, 3, 1, 1}, {})}, {1, 2, 4},
                    {.25, .25, .75, .75, 0, .375, 1, .625}))
      << "batch and channels do not count";
  EXPECT_TRUE(gives("_contrib_MultiBoxPrior", {{"sizes", "(0.5, 1)"}, {"ratios", "4"}}, {tensor({1, 1, 1, 1}, {})}, {1, 2, 4},
                    {0, .375, 1, .625, -.5, .25, 1.5, .75}))
      << "all sizes have the first ratio";
}

TEST(MultiBoxPrior, ClipsStepsAndMovesCenters) {
  EXPECT_TRUE(gives("_contrib_MultiBoxPrior", {{"sizes", "(2,)"}, {"clip", "True"}}, {tensor({1, 1, 1, 1}, {})}, {1, 1, 4},
                    {0, 0, 1, 1}));
  EXPECT_TRUE(gives("_contrib_MultiBoxPrior", {{"sizes", "(0,)"}, {"steps", "(2, 3)"}, {"offsets", "(0, 1)"}}, {kMap}, {1, 2, 4},
                    {3, 0, 3, 0, 6, 0, 6, 0}));
  EXPECT_TRUE(gives("_contrib_MultiBoxPrior", {{"sizes", "(0,)"}, {"steps", "(0, 3)"}}, {kMap}, {1, 2, 4},
                    {.25, .5, .25, .5, .75, .5, .75, .5}))
      << "steps count only if both are above 0";
}

TEST(MultiBoxPrior, NamesWhatIsWrong) {
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"sizes", "(small,)"}}, {kMap}, "sizes"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"sizes", "()"}}, {kMap}, "sizes"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"ratios", "(1e60,)"}}, {kMap}, "ratios"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"steps", "(-1, 0.5)"}}, {kMap}, "steps"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"steps", "(1, 1, 1)"}}, {kMap}, "steps"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {{"offsets", "(0.5, 2)"}}, {kMap}, "offsets"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxPrior", {}, {tensor({1, 1, 2}, {})}, "axes"));
}

TEST(MultiBoxPrior, DependsOnTheShapeAlone) {
  EXPECT_FALSE(ops::kMultiBoxPrior.facts.reads_elements_of(0));
  DimTable table;
  const Dim batch = table.symbol("batch", {1, 64}), width = table.symbol("width", {1, 64});
  const Node node{.op = &ops::kMultiBoxPrior, .name = "p", .attributes = MultiBoxPriorAttributes{.sizes = {1, 2}}};
  const std::array<TypedValue, 1> src{{{"data", DType::kFloat32, {batch, 3, 2, width}}}};
  std::array<TypedValue, 1> dst;
  ASSERT_TRUE(node.op->infer(node, src, dst).ok());
  EXPECT_TRUE(dst[0].shape == (SymbolicShape{1, 4 * width, 4}));
}

// Two anchors at one place; class 1 is best at the first, class 2 at the second.
const Tensor kScores = tensor({1, 3, 2}, {.1, .2, .7, .2, .2, .6}), kStill = tensor({1, 8}, std::vector<double>(8, 0)),
             kAnchors = tensor({1, 2, 4}, {0, 0, .5, .5, 0, 0, .5, .5});

TEST(MultiBoxDetection, NamesTheBestClassOfEachAnchor) {
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {}, {kScores, kStill, kAnchors}, {1, 2, 6},
                    {0, .7, 0, 0, .5, .5, 1, .6, 0, 0, .5, .5}));
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"background_id", "2"}}, {kScores, kStill, kAnchors}, {1, 2, 6},
                    {0, .7, 0, 0, .5, .5, 1, .6, 0, 0, .5, .5}))
      << "background_id does not count";
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"threshold", "0.65"}}, {kScores, kStill, kAnchors}, {1, 2, 6},
                    {0, .7, 0, 0, .5, .5, -1, -1, -1, -1, -1, -1}));
}

TEST(MultiBoxDetection, SuppressesByTheClassAlone) {
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"force_suppress", "True"}, {"nms_threshold", "1"}},
                    {kScores, kStill, kAnchors}, {1, 2, 6}, {0, .7, 0, 0, .5, .5, -1, .6, 0, 0, .5, .5}))
      << "an overlap of the threshold suppresses, and only the class is lost";
}

TEST(MultiBoxDetection, SortsUnlessSuppressionIsOff) {
  const Tensor scores = tensor({1, 2, 2}, {0, 0, .3, .9}), anchors = tensor({1, 2, 4}, {0, 0, .1, .1, .5, .5, 1, 1});
  EXPECT_TRUE(
      gives("_contrib_MultiBoxDetection", {}, {scores, kStill, anchors}, {1, 2, 6}, {0, .9, .5, .5, 1, 1, 0, .3, 0, 0, .1, .1}));
  for (const char* off : {"0", "1.5", "-1"}) {
    EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"nms_threshold", off}}, {scores, kStill, anchors}, {1, 2, 6},
                      {0, .3, 0, 0, .1, .1, 0, .9, .5, .5, 1, 1}))
        << off;
  }
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"nms_topk", "1"}}, {scores, kStill, anchors}, {1, 2, 6},
                    {0, .9, .5, .5, 1, 1, -1, .9, .5, .5, 1, 1}))
      << "the second row is what the unsorted list had there";
}

TEST(MultiBoxDetection, DecodesAndClips) {
  const Tensor score = tensor({1, 2, 1}, {0, 1}), anchor = tensor({1, 1, 4}, {.4, .4, .6, .6});
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"variances", "(1, 1, 1, 1)"}}, {score, tensor({1, 4}, {4, 0, 0, 0}), anchor},
                    {1, 1, 6}, {0, 1, 1, .4, 1, .6}));
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {{"clip", "0"}, {"variances", "(1, 1, 1, 1)"}},
                    {score, tensor({1, 4}, {4, 0, 0, 0}), anchor}, {1, 1, 6}, {0, 1, 1.2, .4, 1.4, .6}));
  EXPECT_TRUE(
      gives("_contrib_MultiBoxDetection", {}, {score, tensor({1, 4}, {kNan, 0, 0, 0}), anchor}, {1, 1, 6}, {0, 1, 1, .4, 1, .6}));
  EXPECT_TRUE(gives("_contrib_MultiBoxDetection", {}, {tensor({1, 2, 1}, {0, kNan}), tensor({1, 4}, {0, 0, 0, 0}), anchor},
                    {1, 1, 6}, std::vector<double>(6, -1)))
      << "a score that is no number is no class";
}

TEST(MultiBoxDetection, NamesTheInputThatDoesNotFit) {
  EXPECT_TRUE(refuses("_contrib_MultiBoxDetection", {}, {kScores, tensor({1, 4}, {}), kAnchors}, "loc_pred"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxDetection", {}, {kScores, kStill, tensor({1, 3, 4}, {})}, "anchor"));
  EXPECT_TRUE(refuses("_contrib_MultiBoxDetection", {{"variances", "(1, 1)"}}, {kScores, kStill, kAnchors}, "variances"));
}

// One anchor in one cell: 4 by 4 pixels.
const Texts kOneAnchor{
    {"scales", "(1,)"}, {"ratios", "(1,)"}, {"feature_stride", "4"}, {"rpn_min_size", "1"}, {"rpn_post_nms_top_n", "2"}};
const Tensor kScore = tensor({1, 2, 1, 1}, {.1, .9}), kUnmoved = tensor({1, 4, 1, 1}, {0, 0, 0, 0}),
             kInfo = tensor({1, 3}, {4, 4, 1});

Texts one_anchor(const std::string& key, const std::string& text) {
  Texts texts = kOneAnchor;
  texts[key] = text;
  return texts;
}

TEST(Proposal, RepeatsWhatItHas) {
  for (const char* op : {"_contrib_Proposal", "_contrib_MultiProposal"}) {
    EXPECT_TRUE(gives(op, kOneAnchor, {kScore, kUnmoved, kInfo}, {2, 5}, {0, 0, 0, 3, 3, 0, 0, 0, 3, 3}));
    EXPECT_TRUE(gives(op, kOneAnchor, {kScore, kUnmoved, kInfo}, {2, 1}, {.9, .9}, 1));
  }
}

TEST(Proposal, MovesStretchesAndClips) {
  EXPECT_TRUE(gives("_contrib_Proposal", one_anchor("rpn_min_size", "0"), {kScore, tensor({1, 4, 1, 1}, {.25, 0, -30, 0}), kInfo},
                    {2, 5}, {0, 3, 0, 2, 3, 0, 3, 0, 2, 3}))
      << "x = 2.5, half of (0 - 1) to the left and right";
  EXPECT_TRUE(gives("_contrib_Proposal", one_anchor("iou_loss", "True"), {kScore, tensor({1, 4, 1, 1}, {1, 1, -1, 9}), kInfo},
                    {2, 5}, {0, 1, 1, 2, 3, 0, 1, 1, 2, 3}));
}

TEST(Proposal, ScoresSmallRegionsAndCellsBeyondThePictureMinusOne) {
  EXPECT_TRUE(gives("_contrib_Proposal", one_anchor("rpn_min_size", "5"), {kScore, kUnmoved, kInfo}, {2, 5},
                    {0, -2.5, -2.5, 5.5, 5.5, 0, -2.5, -2.5, 5.5, 5.5}));
  EXPECT_TRUE(gives("_contrib_Proposal", one_anchor("rpn_min_size", "5"), {kScore, kUnmoved, kInfo}, {2, 1}, {-1, -1}, 1));
  EXPECT_TRUE(gives("_contrib_Proposal", kOneAnchor, {kScore, kUnmoved, tensor({1, 3}, {3, 4, 1})}, {2, 1}, {-1, -1}, 1));
}

TEST(Proposal, RefusesAPictureThatIsLargerThanItsMap) {
  EXPECT_TRUE(refuses("_contrib_Proposal", kOneAnchor, {kScore, kUnmoved, tensor({1, 3}, {8, 4, 1})}, "im_info"));
  const Tensor odd = tensor({1, 3}, {kNan, 1e30, kInfinity});
  EXPECT_TRUE(gives("_contrib_Proposal", kOneAnchor, {kScore, kUnmoved, odd}, {2, 1}, {-1, -1}, 1)) << "any number is harmless";
}

TEST(Proposal, NumbersThePicturesOfABatch) {
  const Tensor scores = tensor({2, 2, 1, 1}, {.1, .9, .2, .8}), offsets = tensor({2, 4, 1, 1}, std::vector<double>(8, 0)),
               infos = tensor({2, 3}, {4, 4, 1, 4, 4, 1});
  EXPECT_TRUE(gives("_contrib_MultiProposal", one_anchor("rpn_post_nms_top_n", "1"), {scores, offsets, infos}, {2, 5},
                    {0, 0, 0, 3, 3, 1, 0, 0, 3, 3}));
  EXPECT_TRUE(refuses("_contrib_Proposal", kOneAnchor, {scores, offsets, infos}, "batch of 1"));
  EXPECT_TRUE(refuses("_contrib_Proposal", kOneAnchor, {kScore, tensor({1, 12, 1, 1}, {}), kInfo}, "bbox_pred"));
  EXPECT_TRUE(refuses("_contrib_Proposal", one_anchor("scales", "(1, 2)"), {kScore, kUnmoved, kInfo}, "cls_prob"));
}

}  // namespace
}  // namespace shoal::worker
