// What every operator must state.
#include <gtest/gtest.h>

#include <set>

#include "worker/graph/operators.hpp"
#include "worker/ops/pooling.hpp"

namespace shoal::worker {
namespace {

TEST(Operators, StateAllTheirFacts) {
  ASSERT_GE(all_operators().size(), 29U);
  for (const Operator* const op : all_operators()) {
    EXPECT_NE(op->facts.rows, nullptr) << op->name;
    EXPECT_NE(op->facts.is_view, Fact::kUnstated) << op->name;
    EXPECT_NE(op->facts.is_elementwise, Fact::kUnstated) << op->name;
    EXPECT_NE(op->facts.index_input, Facts::kUnstated) << op->name;
    EXPECT_NE(op->facts.work, nullptr) << op->name;
    EXPECT_NE(op->facts.accuracy, Accuracy::kUnstated) << op->name;
    EXPECT_STRNE(op->formula, "") << op->name;
    EXPECT_STRNE(op->source, "") << op->name;
  }
}

TEST(Operators, AreFoundByTheirNames) {
  for (const Operator* const op : all_operators()) EXPECT_EQ(find_operator(op->name), op);
  EXPECT_EQ(find_operator("NoSuchOperator"), nullptr);
}

TEST(Operators, HaveTheFileThatIsTheirHomeAsTheirFamily) { EXPECT_EQ(ops::kPooling.family(), "pooling"); }

TEST(OperatorsDeathTest, WithTheNameOfAnotherOneEndTheProcess) {
  EXPECT_DEATH(Operator(OperatorDef{.name = "Pooling", .infer = ops::kPooling.infer, .oracle = ops::kPooling.oracle}), "");
  EXPECT_DEATH(Operator(OperatorDef{.name = "WithoutKernel", .infer = ops::kPooling.infer}), "oracle");
}

}  // namespace
}  // namespace shoal::worker
