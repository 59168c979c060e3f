// Where, through the importer and the shape rule: what MXNet answers, and NumPy's broadcasting.
#include <gtest/gtest.h>

#include "tests/support/interpreter.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/importer.hpp"
#include "worker/ops/selection.hpp"

namespace shoal::worker {
namespace {

TEST(Where, AnswersWhatMxnetAnswers) {
  const auto folder = testing::test_data() / "vectors" / "tier4";
  int count = 0;
  for (const auto& vector : testing::read_cases(folder / "cases.json")) {
    if (!vector.name.starts_with("where_")) continue;
    SCOPED_TRACE(vector.name);
    const std::string prefix = (folder / vector.name).string();
    const auto import = read_model({prefix + "-symbol.json", prefix + "-0000.params"});
    ASSERT_TRUE(import.ok()) << import.status().to_string();
    const auto outputs = testing::interpret(import->graph, testing::read_arrays(prefix + "-io.params", "in:").value());
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    const Tensors expected = testing::read_arrays(prefix + "-io.params", "out:").value();
    EXPECT_TRUE(testing::close_to(outputs->front().tensor.view(), expected.front().tensor.view(), 0));
    ++count;
  }
  if (count == 0) GTEST_SKIP() << "no vectors in " << folder;
  EXPECT_GE(count, 10);
}

// The three of a node, and what it makes of them.
struct Answer {
  Status status;
  Shape shape;
  std::vector<std::int32_t> values;
};
Answer where(bool selects_rows, const Shape& condition, const Shape& x, const Shape& y) {
  const Node node{.op = &ops::kWhere, .name = "w", .attributes = WhereAttributes{selects_rows}};
  const std::array<TypedValue, 3> src{{{"c", DType::kBool, condition}, {"x", DType::kInt32, x}, {"y", DType::kInt32, y}}};
  std::array<TypedValue, 1> dst;
  Answer answer{.status = node.op->infer(node, src, dst)};
  if (!answer.status.ok()) return answer;
  answer.shape = dst[0].shape.bound();
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(condition.element_count()));
  std::vector<std::int32_t> left(static_cast<std::size_t>(x.element_count())), right(static_cast<std::size_t>(y.element_count()));
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i % 2 == 0 ? 0 : 255;  // a bool from outside may be any byte
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = -1 - static_cast<std::int32_t>(i);
  answer.values.resize(static_cast<std::size_t>(answer.shape.element_count()));
  const auto view = [](DType dtype, const Shape& shape, auto& values) {
    return TensorView{dtype, shape, reinterpret_cast<std::byte*>(values.data())};
  };
  const std::array sources{view(DType::kBool, condition, bits), view(DType::kInt32, x, left), view(DType::kInt32, y, right)};
  std::array results{view(DType::kInt32, answer.shape, answer.values)};
  answer.status = node.op->oracle(node, sources, results);
  return answer;
}

TEST(Where, BroadcastsAllThree) {
  const Answer answer = where(false, {2, 1}, {3}, {1});
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  EXPECT_EQ(answer.shape, (Shape{2, 3}));
  EXPECT_EQ(answer.values, (std::vector<std::int32_t>{-1, -1, -1, 0, 1, 2}));
  EXPECT_EQ(where(false, {2}, {2, 2}, {2, 2}).values, (std::vector<std::int32_t>{-1, 1, -3, 3})) << "along the last axis";
  EXPECT_EQ(where(true, {2}, {2, 2}, {2, 2}).values, (std::vector<std::int32_t>{-1, -2, 2, 3})) << "by rows";
}

TEST(Where, RefusesWhatDoesNotFit) {
  EXPECT_EQ(where(false, {2}, {3}, {3}).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(where(true, {3}, {2, 3}, {2, 3}).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(where(true, {2, 3}, {2, 3}, {1, 3}).status.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::worker
