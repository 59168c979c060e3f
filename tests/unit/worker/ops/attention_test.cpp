// Normalization over the data and attention, through the importer's lowering and the oracle kernels. Worked out by hand.
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const std::string kPrefix = "_contrib_interleaved_matmul_";

// Two positions: q = 1, k = 2, v = 3, and q = 4, k = 5, v = 6.
TEST(Attention, ReadsQueryKeyAndValueSideBySide) {
  const Tensor qkv = tensor({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(gives(kPrefix + "selfatt_qk", {{"heads", "1"}}, {qkv}, {1, 2, 2}, {2, 5, 8, 20}));
  const Tensor weights = tensor({1, 2, 2}, {1, 0, 0.5, 0.5});
  EXPECT_TRUE(gives(kPrefix + "selfatt_valatt", {{"heads", "1"}}, {qkv, weights}, {2, 1, 1}, {3, 4.5}));
}

// The same six numbers as two heads of one position.
TEST(Attention, CountsHeadsBeforeVectors) {
  const Tensor qkv = tensor({1, 1, 6}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(gives(kPrefix + "selfatt_qk", {{"heads", "2"}}, {qkv}, {2, 1, 1}, {2, 20}));
  EXPECT_TRUE(gives(kPrefix + "selfatt_valatt", {{"heads", "2"}}, {qkv, tensor({2, 1, 1}, {1, 2})}, {1, 1, 2}, {3, 12}));
}

TEST(Attention, DividesByTheRootOfTheSize) {
  const Tensor qkv = tensor({1, 1, 12}, {1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0});
  EXPECT_TRUE(gives(kPrefix + "selfatt_qk", {{"heads", "1"}}, {qkv}, {1, 1, 1}, {4}));
}

TEST(Attention, OfADecoderReadsQueriesOfTheirOwn) {
  const Tensor queries = tensor({1, 1, 2}, {3, 4}), kv = tensor({2, 1, 4}, {1, 0, 5, 6, 0, 1, 7, 8});
  EXPECT_TRUE(gives(kPrefix + "encdec_qk", {{"heads", "1"}}, {queries, kv}, {1, 1, 2}, {2.12132034, 2.82842712}));
  EXPECT_TRUE(gives(kPrefix + "encdec_valatt", {{"heads", "1"}}, {kv, tensor({1, 1, 2}, {0.25, 0.75})}, {1, 1, 2}, {6.5, 7.5}));
}

TEST(Attention, RefusesWhatCannotBeDivided) {
  EXPECT_TRUE(refuses(kPrefix + "selfatt_qk", {{"heads", "2"}}, {tensor({1, 1, 5}, {})}, "2 heads"));
  EXPECT_TRUE(refuses(kPrefix + "selfatt_qk", {}, {tensor({1, 1, 6}, {})}, "heads"));
  EXPECT_TRUE(refuses(kPrefix + "selfatt_qk", {{"heads", "0"}}, {tensor({1, 1, 6}, {})}, "heads"));
  EXPECT_TRUE(refuses(kPrefix + "selfatt_qk", {{"heads", "1"}}, {tensor({1, 6}, {})}, "3 axes"));
  EXPECT_TRUE(refuses(kPrefix + "selfatt_valatt", {{"heads", "1"}}, {tensor({2, 1, 3}, {}), tensor({1, 1, 2}, {})}, "1x2x2"));
  EXPECT_TRUE(refuses(kPrefix + "encdec_qk", {{"heads", "1"}}, {tensor({1, 1, 2}, {}), tensor({1, 1, 2}, {})}, "half"));
}

TEST(LayerNorm, GivesMeanAndRootWithEps) {
  const Tensor x = tensor({1, 2}, {-1, 1}), gamma = tensor({2}, {2, 4}), beta = tensor({2}, {1, 1});
  EXPECT_TRUE(gives("LayerNorm", {{"eps", "3"}}, {x, gamma, beta}, {1, 2}, {0, 3}));
  EXPECT_TRUE(gives("LayerNorm", {{"eps", "3"}}, {x, gamma, beta}, {1, 1}, {0}, 1));
  EXPECT_TRUE(gives("LayerNorm", {{"eps", "3"}}, {x, gamma, beta}, {1, 1}, {2}, 2));
  const Tensor columns = tensor({2, 2}, {-1, 10, 1, 30});
  EXPECT_TRUE(gives("LayerNorm", {{"eps", "0"}, {"axis", "0"}}, {columns, gamma, beta}, {2, 2}, {-1, -1, 5, 5}));
  EXPECT_TRUE(refuses("LayerNorm", {}, {x, tensor({3}, {}), beta}, "gamma"));
  EXPECT_TRUE(refuses("LayerNorm", {{"axis", "2"}}, {x, gamma, beta}, "axis 2"));
}

TEST(GroupNorm, TakesParametersForGroupsOrForChannels) {
  const Tensor x = tensor({1, 4, 1}, {-1, 1, -3, 3});
  const Texts two{{"num_groups", "2"}, {"eps", "0"}};
  EXPECT_TRUE(gives("GroupNorm", two, {x, tensor({2}, {10, 100}), tensor({2}, {0, 1})}, {1, 4, 1}, {-10, 10, -99, 101}));
  EXPECT_TRUE(gives("GroupNorm", two, {x, tensor({4}, {1, 2, 3, 4}), tensor({4}, {0, 0, 0, 0})}, {1, 4, 1}, {-1, 2, -3, 4}));
  EXPECT_TRUE(gives("GroupNorm", two, {x, tensor({2}, {1, 1}), tensor({2}, {0, 0})}, {1, 2}, {1, 3}, 2));
  EXPECT_TRUE(refuses("GroupNorm", {{"num_groups", "3"}}, {x, tensor({3}, {}), tensor({3}, {})}, "3 groups"));
  EXPECT_TRUE(refuses("GroupNorm", two, {x, tensor({3}, {}), tensor({3}, {})}, "gamma"));
  EXPECT_TRUE(refuses("GroupNorm", two, {x, tensor({4}, {}), tensor({2}, {})}, "beta"));
}

TEST(InstanceNorm, IsAGroupForEachChannelAndGivesTheVariance) {
  const Tensor x = tensor({1, 2, 2}, {-1, 1, -3, 3}), gamma = tensor({2}, {1, 2}), beta = tensor({2}, {0, 1});
  EXPECT_TRUE(gives("InstanceNorm", {{"eps", "0"}}, {x, gamma, beta}, {1, 2, 2}, {-1, 1, -1, 3}));
  EXPECT_TRUE(gives("InstanceNorm", {}, {x, gamma, beta}, {1, 2}, {1, 9}, 2));
  EXPECT_TRUE(refuses("InstanceNorm", {}, {tensor({1, 2}, {}), gamma, beta}, "3 or more axes"));
}

TEST(LayerNorm, ParametersFollowFromTheData) {
  std::array<TypedValue, 3> src{{{"x", DType::kFloat32, {2, 5, 7}}, {"gamma"}, {"beta"}}};
  const Node node{.op = &ops::kLayerNorm, .name = "n", .attributes = LayerNormAttributes{.axis = -2}};
  node.op->infer_parameters(node, src);
  EXPECT_TRUE(src[1].shape == SymbolicShape{5});
  EXPECT_EQ(src[2].dtype, DType::kFloat32);
}

}  // namespace
}  // namespace shoal::worker
