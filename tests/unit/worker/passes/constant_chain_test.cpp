#include "worker/passes/constant_chain.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "shm/base/format.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/deconvolution.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

/// A convolution of two filters with two weights each, and the BatchNorm behind it.
class Folding : public ::testing::Test {
 protected:
  Folding() {
    const ValueId data = graph_.add_value({.name = "data", .dtype = DType::kFloat32, .shape = {1, 2, 1, 1}, .constant = {}});
    const ValueId weights = constant({2, 2, 1, 1}, {1, 2, 3, 4});
    conv_.inputs = {data, weights};
    bias_ = constant({2}, {5, 6});
    norm_.inputs = {data, constant({2}, {2, 8}), constant({2}, {1, -1}), constant({2}, {3, 1}), constant({2}, {4, 16})};
    norm_.attributes = BatchNormAttributes{.eps = 0, .fix_gamma = false};
  }
  ValueId constant(const Shape& shape, const std::vector<float>& numbers) {
    const auto owner = std::make_shared<std::vector<float>>(numbers);
    return graph_.add_value({.name = "c",
                             .dtype = DType::kFloat32,
                             .shape = shape,
                             .constant = Constant{DType::kFloat32, shape, std::as_bytes(std::span(*owner)), owner}});
  }
  static std::vector<float> numbers_of(const ConstantChain& chain, std::size_t count) {
    std::vector<float> scratch;
    const float* const numbers = evaluate(chain, scratch);
    return {numbers, numbers + count};
  }

  Graph graph_;
  Node conv_, norm_;
  ValueId bias_ = 0;
};

TEST_F(Folding, WithoutANormGivesTheConstantItself) {
  const ConstantChain chain = folded_weights(graph_, conv_, nullptr);
  EXPECT_EQ(numbers_of(chain, 4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(chain.key(), "v1");
  EXPECT_FALSE(folded_bias(graph_, conv_, nullptr).has_value());
}

TEST_F(Folding, APartOfAConstantHasAKeyOfItsOwn) {
  const ConstantChain part = part_of(graph_, conv_.inputs[1], 1, {1, 2});
  EXPECT_EQ(numbers_of(part, 2), (std::vector<float>{2, 3}));
  EXPECT_EQ(part.key(), "v1[1: 1x2]");
  graph_.value(conv_.inputs[1]).constant->bytes = {};  // released
  EXPECT_EQ(part_of(graph_, conv_.inputs[1], 1, {1, 2}).key(), part.key());
}

TEST_F(Folding, ScalesEachFilter) {
  EXPECT_EQ(numbers_of(folded_weights(graph_, conv_, &norm_), 4), (std::vector<float>{1, 2, 6, 8}));
}

TEST_F(Folding, PutsTheFiltersOfADeconvolutionFirst) {
  const ValueId weights = constant({4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});  // two groups of two channels and one filter
  conv_.inputs[1] = weights;
  conv_.op = &ops::kDeconvolution;
  conv_.attributes = DeconvolutionAttributes{.num_filter = 2, .num_group = 2};
  EXPECT_EQ(numbers_of(folded_weights(graph_, conv_, nullptr), 8), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  conv_.attributes = DeconvolutionAttributes{.num_filter = 1, .num_group = 1};
  EXPECT_EQ(folded_weights(graph_, conv_, nullptr).key(), format("v{} > filters first(1 4 1)", weights));
  conv_.inputs[1] = constant({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  conv_.attributes = DeconvolutionAttributes{.num_filter = 2};
  EXPECT_EQ(numbers_of(folded_weights(graph_, conv_, nullptr), 8), (std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
  EXPECT_EQ(numbers_of(folded_weights(graph_, conv_, &norm_), 8), (std::vector<float>{1, 2, 5, 6, 6, 8, 14, 16}));
}

TEST_F(Folding, MovesTheBiasOrMakesOne) {
  EXPECT_EQ(numbers_of(*folded_bias(graph_, conv_, &norm_), 2), (std::vector<float>{-2, -3}));
  conv_.inputs.push_back(bias_);
  EXPECT_EQ(numbers_of(*folded_bias(graph_, conv_, &norm_), 2), (std::vector<float>{3, 9}));
}

TEST_F(Folding, WithoutGammaTakesOne) {
  norm_.attributes = BatchNormAttributes{.eps = 0, .fix_gamma = true};
  EXPECT_EQ(numbers_of(folded_weights(graph_, conv_, &norm_), 4), (std::vector<float>{0.5, 1, 0.75, 1}));
}

TEST_F(Folding, EqualChainsHaveEqualKeys) {
  const ConstantChain weights = folded_weights(graph_, conv_, &norm_);
  EXPECT_EQ(weights.key(), folded_weights(graph_, conv_, &norm_).key());
  EXPECT_EQ(weights.key(), "v1 > fold weights(v3 v4 v5 v6 0)");
  EXPECT_EQ(folded_bias(graph_, conv_, &norm_)->key(), "2 times 0 > fold bias(v3 v4 v5 v6 0)");
  const std::string before = weights.key();
  norm_.attributes = BatchNormAttributes{.eps = 1e-5 + 1e-14, .fix_gamma = false};
  const std::string other = folded_weights(graph_, conv_, &norm_).key();
  norm_.attributes = BatchNormAttributes{.eps = 1e-5, .fix_gamma = false};
  EXPECT_NE(folded_weights(graph_, conv_, &norm_).key(), other) << "digits of eps are lost";
  EXPECT_NE(other, before);
}

// A parameter file may place an array at any address.
TEST_F(Folding, ReadsConstantsAtAnyAddress) {
  const auto owner = std::make_shared<std::vector<std::byte>>(9);
  const float numbers[2] = {7, 8};
  std::memcpy(owner->data() + 1, numbers, sizeof numbers);
  const ConstantChain chain{
      .source =
          NamedConstant{"odd", {.dtype = DType::kFloat32, .shape = {2}, .bytes = std::span(*owner).subspan(1), .owner = owner}}};
  EXPECT_EQ(numbers_of(chain, 2), (std::vector<float>{7, 8}));
}

}  // namespace
}  // namespace shoal::worker
