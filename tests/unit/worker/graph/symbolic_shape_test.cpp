#include "worker/graph/symbolic_shape.hpp"

#include <gtest/gtest.h>

namespace shoal::worker {
namespace {

TEST(SymbolicShape, OfNumbersIsThatShape) {
  const SymbolicShape shape = Shape{2, 3, 4};
  EXPECT_TRUE(shape.is_numeric());
  EXPECT_EQ(shape.bound(), (Shape{2, 3, 4}));
  EXPECT_EQ(shape.element_count(), Dim(24));
  EXPECT_EQ(shape.to_string(), "2x3x4");
  EXPECT_EQ(SymbolicShape(Shape()).to_string(), "scalar");
}

TEST(SymbolicShape, OfOpenSizesHasBounds) {
  DimTable table;
  const Dim n = table.symbol("data[0]", {2, 8});
  const SymbolicShape shape{n, n * 3 - 1, 4};
  EXPECT_FALSE(shape.is_numeric());
  EXPECT_EQ(shape.bound(), (Shape{8, 23, 4}));
  EXPECT_EQ(shape.least(), (Shape{2, 5, 4}));
  EXPECT_EQ(shape.to_string(), "data[0]x(3 * data[0] - 1)x4");
}

TEST(SymbolicShape, OfUnknownRankIsNoScalar) {
  const SymbolicShape any = SymbolicShape::any(), scalar;
  EXPECT_FALSE(any.is_known());
  EXPECT_FALSE(any.is_numeric());
  EXPECT_FALSE(any == scalar);
  EXPECT_FALSE(SymbolicShape(Shape::any()).is_known());
  EXPECT_FALSE(any.bound().is_known());
}

TEST(SymbolicShape, IsKnownUnequalOnlyIfItIsForAllSizes) {
  DimTable table;
  const Dim n = table.symbol("n", {2, 8}), m = table.symbol("m", {2, 8});
  EXPECT_FALSE(known_unequal({n, 3}, {m, 3}));
  EXPECT_FALSE((SymbolicShape{n, 3} == SymbolicShape{m, 3}));
  EXPECT_TRUE(known_unequal({n, 3}, {n, 4}));
  EXPECT_TRUE(known_unequal({n, 3}, {9, 3}));
  EXPECT_TRUE(known_unequal({n}, {n, 1}));
}

}  // namespace
}  // namespace shoal::worker
