// SequenceMask, SequenceLast, SequenceReverse, through the importer's lowering and the oracle kernels.
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/sequence.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const Texts kLengths{{"use_sequence_length", "True"}};
Texts lengths_and(const std::string& key, const std::string& text) {
  Texts texts = kLengths;
  texts[key] = text;
  return texts;
}

const Tensor kThreeSteps = tensor({3, 2}, {1, 2, 3, 4, 5, 6});  // three steps of two sequences

TEST(SequenceMask, PutsANumberBehindEachSequence) {
  EXPECT_TRUE(gives("SequenceMask", kLengths, {kThreeSteps, tensor({2}, {2, 0})}, {3, 2}, {1, 0, 3, 0, 0, 0}));
  EXPECT_TRUE(
      gives("SequenceMask", lengths_and("value", "-7.5"), {kThreeSteps, tensor({2}, {1, 9})}, {3, 2}, {1, 2, -7.5, 4, -7.5, 6}));
  EXPECT_TRUE(
      gives("_npx_sequence_mask", lengths_and("axis", "1"), {kThreeSteps, tensor({3}, {0, 1, 2})}, {3, 2}, {0, 0, 3, 0, 5, 6}));
  EXPECT_TRUE(gives("SequenceMask", lengths_and("value", "1.75"), {tensor<std::int32_t>({2, 1}, {5, 6}), tensor({1}, {1})},
                    {2, 1}, {5, 1}));
  EXPECT_TRUE(gives("SequenceMask", {}, {kThreeSteps}, {3, 2}, {1, 2, 3, 4, 5, 6}));
}

TEST(SequenceMask, CutsWhatIsNoLength) {
  const Tensor ends = tensor({2}, {1.999, kNan}), wide = tensor({2}, {-kInfinity, kInfinity});
  EXPECT_TRUE(gives("SequenceMask", kLengths, {kThreeSteps, ends}, {3, 2}, {1, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(gives("SequenceMask", kLengths, {kThreeSteps, wide}, {3, 2}, {0, 2, 0, 4, 0, 6}));
  EXPECT_TRUE(
      gives("SequenceMask", kLengths, {kThreeSteps, tensor<std::int64_t>({2}, {-0x1p40, 0x1p40})}, {3, 2}, {0, 2, 0, 4, 0, 6}));
  EXPECT_TRUE(
      gives("SequenceMask", kLengths, {kThreeSteps, tensor<std::uint64_t>({2}, {0x1p63, 1})}, {3, 2}, {1, 2, 3, 0, 5, 0}));
}

TEST(SequenceLast, GivesTheLastStep) {
  EXPECT_TRUE(gives("SequenceLast", {}, {kThreeSteps}, {2}, {5, 6}));
  EXPECT_TRUE(gives("SequenceLast", {{"axis", "1"}}, {kThreeSteps}, {3}, {2, 4, 6}));
  EXPECT_TRUE(gives("SequenceLast", {}, {tensor({2, 1, 2}, {1, 2, 3, 4})}, {1, 2}, {3, 4}));
  EXPECT_TRUE(gives("SequenceLast", kLengths, {kThreeSteps, tensor({2}, {3, 1})}, {2}, {5, 2}));
  EXPECT_TRUE(
      gives("SequenceLast", lengths_and("axis", "1"), {kThreeSteps, tensor<std::int32_t>({3}, {1, 2, 1})}, {3}, {1, 4, 5}));
  EXPECT_TRUE(gives("SequenceLast", kLengths, {kThreeSteps, tensor({2}, {0, 99})}, {2}, {1, 6}))
      << "cut to the steps that there are";
}

TEST(SequenceReverse, ReversesTheStepsOfEachSequence) {
  EXPECT_TRUE(gives("SequenceReverse", {}, {kThreeSteps}, {3, 2}, {5, 6, 3, 4, 1, 2}));
  EXPECT_TRUE(gives("SequenceReverse", kLengths, {kThreeSteps, tensor({2}, {2, 3})}, {3, 2}, {3, 6, 1, 4, 5, 2}));
  EXPECT_TRUE(gives("SequenceReverse", kLengths, {kThreeSteps, tensor({2}, {-1, 0})}, {3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(gives("SequenceReverse", kLengths, {kThreeSteps, tensor({2}, {7, 1})}, {3, 2}, {5, 2, 3, 4, 1, 6}));
}

TEST(Sequences, OfNothingGiveNothing) {
  EXPECT_TRUE(gives("SequenceMask", kLengths, {tensor({0, 2}, {}), tensor({2}, {1, 1})}, {0, 2}, {}));
  EXPECT_TRUE(gives("SequenceReverse", kLengths, {tensor({2, 0, 3}, {}), tensor({0}, {})}, {2, 0, 3}, {}));
  EXPECT_TRUE(gives("SequenceLast", kLengths, {tensor({2, 1, 0}, {}), tensor({1}, {1})}, {1, 0}, {}));
  EXPECT_TRUE(refuses("SequenceLast", kLengths, {tensor({0, 2}, {}), tensor({2}, {1, 1})}, "no step"));
}

TEST(Sequences, RefuseWhatDoesNotFit) {
  const Tensor lengths = tensor({2}, {1, 1});
  for (const char* const op : {"SequenceMask", "SequenceLast", "SequenceReverse"}) {
    EXPECT_TRUE(refuses(op, kLengths, {kThreeSteps, tensor({3}, {})}, "lengths 'in1'")) << op;
    EXPECT_TRUE(refuses(op, kLengths, {tensor({2}, {}), lengths}, "2 or more axes")) << op;
    EXPECT_TRUE(refuses(op, kLengths, {kThreeSteps}, "sequence_length")) << op;
    EXPECT_TRUE(refuses(op, {}, {kThreeSteps, lengths}, "2 inputs")) << op;
    EXPECT_TRUE(refuses(op, lengths_and("axis", "2"), {kThreeSteps, lengths}, "axis")) << op;
    EXPECT_TRUE(refuses(op, kLengths, {kThreeSteps, bools({1, 1})}, "bool")) << op;
  }
  EXPECT_TRUE(refuses("SequenceReverse", lengths_and("axis", "1"), {kThreeSteps, tensor({3}, {})}, "axis"));
}

// Requests may be joined if the sequences are along axis 0, and each has its length.
TEST(Sequences, KeepRowsApartWhereTheyAreSequences) {
  const auto keeps = [](const Operator& op, const Attributes& attributes, std::vector<bool> has_rows) {
    Graph graph;
    const Node node{.op = &op,
                    .attributes = attributes,
                    .inputs = {graph.add_value({.shape = {4, 3}}), graph.add_value({.shape = {4}})},
                    .outputs = {graph.add_value({.shape = {4, 3}})}};
    has_rows.push_back(false);
    return op.facts.rows({graph, node, has_rows});
  };
  for (const Operator* const op : {&ops::kSequenceLast, &ops::kSequenceReverse}) {
    EXPECT_TRUE(keeps(*op, SequenceAttributes{1}, {true, true}));
    EXPECT_FALSE(keeps(*op, SequenceAttributes{1}, {true, false}));
    EXPECT_FALSE(keeps(*op, SequenceAttributes{0}, {true, true}));
  }
  EXPECT_TRUE(keeps(ops::kSequenceMask, SequenceMaskAttributes{1}, {true, true}));
  EXPECT_FALSE(keeps(ops::kSequenceMask, SequenceMaskAttributes{0}, {true, true}));
}

}  // namespace
}  // namespace shoal::worker
