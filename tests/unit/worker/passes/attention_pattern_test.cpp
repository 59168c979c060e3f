#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/passes/patterns.hpp"

namespace shoal::worker {
namespace {

/// Graphs of float32 values, written node by node.
class AttentionPattern : public ::testing::Test {
 protected:
  ValueId value(const Shape& shape, DType dtype = DType::kFloat32) {
    return graph_.add_value({.name = "v", .dtype = dtype, .shape = shape, .constant = {}});
  }
  ValueId node(const Operator& op, std::vector<ValueId> inputs, const Shape& shape, Attributes attributes = {}) {
    Node made{.op = &op, .name = "n", .attributes = std::move(attributes), .inputs = std::move(inputs)};
    made.outputs.push_back(value(shape));
    graph_.nodes.push_back(made);
    return made.outputs[0];
  }
  ValueId scores_of(ValueId queries, ValueId keys, bool transposed = true) {
    return node(ops::kMatMul, {queries, keys}, {2, 5, 7}, MatMulAttributes{.transpose_b = transposed});
  }
  ValueId softmax(ValueId of, std::int64_t axis = -1) {
    return node(ops::kSoftmax, {of}, {2, 5, 7}, SoftmaxAttributes{.axis = axis});
  }
  ValueId sum_of(ValueId weights) { return node(ops::kMatMul, {weights, value({2, 7, 4})}, {2, 5, 4}, MatMulAttributes{}); }
  std::map<NodeId, Attention> found() const { return find_attentions(graph_, Readers(graph_)); }

  Graph graph_;
};

TEST_F(AttentionPattern, IsTwoProductsAroundASoftmax) {
  const ValueId scores = scores_of(value({2, 5, 4}), value({2, 7, 4})), mask = value({7});
  const ValueId masked = node(ops::kBinary, {mask, scores}, {2, 5, 7}, BinaryAttributes{BinaryKind::kAdd, true});
  graph_.outputs.push_back({"out", sum_of(node(ops::kIdentity, {softmax(masked, 2)}, {2, 5, 7}))});
  const auto all = found();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.begin()->first, 4);
  EXPECT_EQ(all.begin()->second.scores, 0);
  EXPECT_EQ(all.begin()->second.inner.size(), 4U);
  EXPECT_EQ(all.begin()->second.mask, mask);
  EXPECT_EQ(all.begin()->second.lengths, -1);
}

// Two tensors of the scores' shape: only one of them is a product.
TEST_F(AttentionPattern, KnowsTheMaskFromTheScores) {
  for (const bool comes_first : {false, true}) {
    graph_ = {};
    const ValueId scores = scores_of(value({2, 5, 4}), value({2, 7, 4})), mask = value({2, 5, 7});
    const ValueId a = comes_first ? mask : scores, b = comes_first ? scores : mask;
    (void)sum_of(softmax(node(ops::kBinary, {a, b}, {2, 5, 7}, BinaryAttributes{BinaryKind::kAdd, false})));
    ASSERT_EQ(found().size(), 1U);
    EXPECT_EQ(found().begin()->second.mask, mask);
  }
}

TEST_F(AttentionPattern, OfVectorsSideBySideReadsOneTensor) {
  const ValueId tokens = value({7, 1, 24}), other = value({7, 1, 24}), lengths = value({2, 7}, DType::kInt32);
  const auto add = [&](ValueId of_values, std::int64_t heads) {
    const ValueId scores = node(ops::kAttentionScores, {tokens}, {2, 7, 7}, AttentionAttributes{2, true});
    const ValueId weights = node(ops::kSoftmax, {scores, lengths}, {2, 7, 7}, SoftmaxAttributes{.use_length = true});
    (void)node(ops::kAttentionValues, {of_values, weights}, {7, 1, 8}, AttentionAttributes{heads, true});
  };
  add(tokens, 2);
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(found().begin()->second.lengths, lengths);
  add(other, 2);  // values of other tokens
  add(tokens, 1);
  EXPECT_EQ(found().size(), 1U);
}

TEST_F(AttentionPattern, IsNoneIfSomebodyElseReadsTheScoresOrTheNodesAreOthers) {
  const auto scores = [&] { return scores_of(value({2, 5, 4}), value({2, 7, 4})); };
  const ValueId read_twice = scores();
  (void)sum_of(softmax(read_twice));
  (void)softmax(read_twice);
  const ValueId weights = softmax(scores());
  graph_.outputs.push_back({"weights", weights});
  (void)sum_of(weights);
  (void)sum_of(softmax(scores(), 1));                                           // over the queries
  (void)sum_of(softmax(scores_of(value({2, 5, 4}), value({2, 4, 7}), false)));  // keys that stand in columns
  (void)sum_of(softmax(scores_of(value({2, 5, 4}), value({1, 7, 4}))));         // keys that are broadcast
  const ValueId narrow = node(ops::kBinary, {scores(), value({2, 5, 1})}, {2, 5, 7}, BinaryAttributes{BinaryKind::kAdd, true});
  (void)sum_of(softmax(narrow));  // a mask of one number for all keys
  const ValueId product = node(ops::kBinary, {scores(), value({7})}, {2, 5, 7}, BinaryAttributes{BinaryKind::kMul, true});
  (void)sum_of(softmax(product));
  EXPECT_TRUE(found().empty());
}

// Each of the three gives a result of the shape of its data.
TEST_F(AttentionPattern, IsNoneIfScoresOrWeightsAreMoved) {
  const Shape square{2, 7, 7};
  const std::array<std::pair<const Operator*, Attributes>, 3> moves{
      {{&ops::kTranspose, TransposeAttributes{.axes = {0, 2, 1}}},
       {&ops::kSwapAxes, SwapAxesAttributes{.first = 1, .second = 2}},
       {&ops::kSlice, SliceAttributes{.ranges = {{.axis = 2, .step = -1}}}}}};
  for (const auto& each : moves) {
    for (const bool is_of_scores : {true, false}) {
      graph_ = {};
      const auto move = [&](ValueId of, bool moves) { return moves ? node(*each.first, {of}, square, each.second) : of; };
      const ValueId scores =
          node(ops::kMatMul, {value({2, 7, 4}), value({2, 7, 4})}, square, MatMulAttributes{.transpose_b = true});
      const ValueId weights = node(ops::kSoftmax, {move(scores, is_of_scores)}, square, SoftmaxAttributes{.axis = -1});
      (void)node(ops::kMatMul, {move(weights, !is_of_scores), value({2, 7, 4})}, {2, 7, 4}, MatMulAttributes{});
      EXPECT_TRUE(found().empty()) << each.first->name << (is_of_scores ? " of the scores" : " of the weights");
    }
  }
}

}  // namespace
}  // namespace shoal::worker
