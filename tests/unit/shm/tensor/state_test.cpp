#include "shm/tensor/state.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::says;
using Specs = std::vector<TensorSpec>;

const std::vector<StatePair> kState = {{"h_out", "h_in"}, {"c_out", "c_in"}};
const Specs kInputs = {{"h_in", DType::kFloat32, {-1, 8}},
                       {"scale", DType::kFloat32, {}},
                       {"data", DType::kInt32, {-1, 4}},
                       {"c_in", DType::kFloat16, {2, -1, 8}}};

TEST(FindState, GoesByTheInput) {
  EXPECT_EQ(find_state(kState, "c_in"), &kState[1]);
  EXPECT_EQ(find_state(kState, "h_out"), nullptr);
  EXPECT_EQ(find_state({}, "h_in"), nullptr);
}

TEST(ZeroState, HasTheBatchOfTheFirstOtherInputWhereItsShapeIsOpen) {
  const Specs given = {{"data", DType::kInt32, {5, 4}}, {"scale", DType::kFloat32, {}}, {"c_in", DType::kFloat16, {2, 3, 8}}};
  EXPECT_EQ(zero_state(kInputs, kState, kState[0], given).value(), (TensorSpec{"h_in", DType::kFloat32, {5, 8}}));
  EXPECT_EQ(zero_state(kInputs, kState, kState[1], given).value(), (TensorSpec{"c_in", DType::kFloat16, {2, 5, 8}}));
  const Specs empty = {{"data", DType::kInt32, {0, 4}}};
  EXPECT_EQ(zero_state(kInputs, kState, kState[0], empty).value().shape, (Shape{0, 8}));
}

TEST(ZeroState, HasTheBatchOfTheAxisThatItsPairNames) {
  const Specs inputs = {{"ids", DType::kInt32, {-1}}, {"data", DType::kFloat32, {-1, -1, 4}}, {"h_in", DType::kFloat32, {1, -1}}};
  const auto zeros = [&](const StatePair& pair, const Specs& given) {
    return zero_state(inputs, std::vector{pair}, pair, given);
  };
  const Specs given = {{"data", DType::kFloat32, {7, 3, 4}}, {"ids", DType::kInt32, {5}}};
  EXPECT_EQ(zeros({"h_out", "h_in"}, given).value().shape, (Shape{1, 5}));
  EXPECT_EQ(zeros({"h_out", "h_in", Shape::any(), "data", 1}, given).value().shape, (Shape{1, 3}));
  EXPECT_EQ(zeros({"h_out", "h_in", Shape::any(), "data", 0}, given).value().shape, (Shape{1, 7}));
  const Status beyond = zeros({"h_out", "h_in", Shape::any(), "", 1}, given).status();
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(beyond.message(),
            "state 'h_in' of shape 1x? is left out. Its `batch_axis` is 1, but the input 'ids' has the shape 5: give the state, "
            "or write the axis of the batch into model.toml, as in "
            "state = [{out = \"h_out\", in = \"h_in\", batch_axis = 0}]");
  const Status missing = zeros({"h_out", "h_in", Shape::any(), "data", 1}, {given[1]}).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(missing.message(), {"'h_in'", "'data'", "`batch_axis`"}));
}

TEST(ZeroState, WithoutABatchIsAnErrorUnlessItsShapeNeedsNone) {
  const Status none = zero_state(kInputs, kState, kState[0], Specs{{"c_in", DType::kFloat16, {2, 3, 8}}}).status();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(none.message(), {"'h_in'", "?x8", "batch"}));
  const Specs closed = {{"h_in", DType::kFloat32, {1, 8}}}, any = {{"h_in"}};
  EXPECT_EQ(zero_state(closed, kState, kState[0], {}).value(), closed[0]);
  EXPECT_TRUE(says(zero_state(any, kState, kState[0], {}).status().message(), {"'h_in'", "any"}));
  EXPECT_TRUE(says(zero_state({}, kState, kState[0], {}).status().message(), {"'h_in'"}));
}

TEST(CheckState, WantsEqualTypesAndShapesOfInputsAndOutputsThatExist) {
  const Specs inputs = {{"data", DType::kFloat32, {1, 4}}, {"h_in", DType::kFloat32, {1, 8}}};
  const auto check = [&](const StatePair& pair, const TensorSpec& output) {
    return check_state(std::vector{pair}, inputs, std::vector{output}, "model 'net'");
  };
  const TensorSpec right{"h_out", DType::kFloat32, {1, 8}};
  EXPECT_TRUE(check({"h_out", "h_in"}, right).ok());
  EXPECT_TRUE(check({"h_out", "h_in", {-1, 8}}, right).ok());
  const auto refuses = [&](const StatePair& pair, const TensorSpec& output, std::initializer_list<std::string_view> words) {
    const Status refused = check(pair, output);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(says(refused.message(), {"model 'net'", "'state'"}));
    EXPECT_TRUE(says(refused.message(), words));
  };
  refuses({"h_out", "h"}, right, {"input 'h'", "data, h_in"});
  refuses({"h_out", "h_in", Shape::any(), "dada", 1}, right, {"'dada' (`batch_input`)", "data, h_in"});
  refuses({"h_out", "h_in", Shape::any(), "data", 2}, right, {"dimension 2 (`batch_axis`)", "'data'"});
  refuses({"h", "h_in"}, right, {"output 'h'", "h_out"});
  refuses({"h_out", "h_in", {-1, 4}}, right, {"'h_in'", "?x4", "1x8"});
  refuses({"h_out", "h_in"}, {"h_out", DType::kFloat16, {1, 8}}, {"'h_out', float16", "'h_in', float32"});
  refuses({"h_out", "h_in"}, {"h_out", DType::kFloat32, {2, 8}}, {"'h_out'", "2x8", "'h_in'", "1x8"});
}

}  // namespace
}  // namespace shoal
