// Which operators read sparse tensors as they are stored.
#include "worker/passes/sparse_forms.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/sparse.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;

class SparseForms : public ::testing::Test {
 protected:
  ValueId numbers(const std::vector<std::int64_t>& values) {
    const auto owner = std::make_shared<std::vector<std::int64_t>>(values);
    const Shape shape{static_cast<std::int64_t>(values.size())};
    const Constant constant{DType::kInt64, shape, std::as_bytes(std::span(*owner)), owner};
    return graph_.add_value({.name = "numbers", .dtype = DType::kInt64, .shape = shape, .constant = constant});
  }
  ValueId add(const Operator& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    const ValueId out = graph_.add_value({.name = "y"});
    graph_.nodes.push_back({&op, std::string(op.name), {}, std::move(attributes), std::move(inputs), {out}, {}});
    graph_.value(out).producer = static_cast<NodeId>(graph_.nodes.size() - 1);
    return out;
  }
  ValueId floats(const Shape& shape) {
    GraphBuilder builder;
    const ValueId made = builder.constant(shape);
    Value value = builder.graph().value(made);
    return graph_.add_value(value);
  }
  ValueId input(const std::string& name) {
    graph_.inputs.push_back(graph_.add_value({.name = name}));
    return graph_.inputs.back();
  }
  /// 2x5 with three elements.
  ValueId csr() { return add(ops::kCsrToDense, {floats({3}), numbers({0, 1, 3}), numbers({4, 0, 2})}, CsrAttributes{5}); }
  /// Rows 1 and 3 of 5.
  ValueId rows(std::int64_t count = 5) {
    return add(ops::kRowsToDense, {floats({2, 4}), numbers({1, 3})}, RowsAttributes{count});
  }
  void output(ValueId id) { graph_.outputs.push_back({"out" + std::to_string(graph_.outputs.size()), id}); }

  /// The operators after the pass. The results are those of the graph before it.
  std::vector<std::string> operators(const std::vector<TensorSpec>& inputs = {}) {
    Graph sparse = graph_;
    use_sparse_forms(sparse);
    const auto got = run(sparse, inputs);
    const auto want = run(graph_, inputs);
    EXPECT_TRUE(testing::alike(got, want));
    std::vector<std::string> names;
    for (const Node& node : sparse.nodes) names.emplace_back(node.op->name);
    return names;
  }

 private:
  static std::vector<Tensor> run(const Graph& graph, const std::vector<TensorSpec>& inputs) {
    Context context;
    return testing::run(**testing::load(graph, inputs, "cpu-reference")->program(inputs), context);
  }

 protected:
  Graph graph_;
};

using Names = std::vector<std::string>;

TEST_F(SparseForms, AreReadByProducts) {
  output(add(ops::kDot, {csr(), floats({5, 2})}, DotAttributes{}));
  output(add(ops::kDot, {csr(), floats({2, 3})}, DotAttributes{.transpose_a = true}));
  output(add(ops::kDot, {floats({3, 2}), csr()}, DotAttributes{}));
  output(add(ops::kDot, {floats({3, 5}), csr()}, DotAttributes{.transpose_b = true}));
  output(add(ops::kDot, {csr(), rows()}, DotAttributes{}));
  EXPECT_EQ(operators(), (Names{"SparseDot", "SparseDot", "DotSparse", "DotSparse", "SparseDot"}));
}

TEST_F(SparseForms, AreNotReadByProductsThatMxnetComputesOfDenseOnes) {
  output(add(ops::kDot, {csr(), floats({3, 5})}, DotAttributes{.transpose_b = true}));
  output(add(ops::kDot, {floats({2, 3}), csr()}, DotAttributes{.transpose_a = true}));
  output(add(ops::kDot, {rows(), floats({4, 2})}, DotAttributes{}));
  EXPECT_EQ(operators(), (Names{"CsrToDense", "Dot", "CsrToDense", "Dot", "RowsToDense", "Dot"}));
}

TEST_F(SparseForms, AreReadByTake) {
  output(add(ops::kTake, {rows(), numbers({0, 1, 7})}, TakeAttributes{.table = {5, 4}}));
  output(add(ops::kTake, {rows(), numbers({0, 1, -1})}, TakeAttributes{.mode = IndexMode::kWrap}));
  output(add(ops::kTake, {rows(), numbers({0, 1})}, TakeAttributes{.axis = 1}));
  EXPECT_EQ(operators(), (Names{"TakeRows", "TakeRows", "RowsToDense", "Take"}));
}

// As in a factorization machine: dot(square(x), sum(square(v), axis=1)).
TEST_F(SparseForms, StayBehindFunctionsThatKeepZeros) {
  const ValueId x = add(ops::kUnary, {csr()}, UnaryAttributes{UnaryKind::kSquare});
  const ValueId v = add(ops::kUnary, {rows()}, UnaryAttributes{UnaryKind::kSquare});
  const ValueId sums = add(ops::kReduce, {v}, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {1}, .keepdims = true});
  output(add(ops::kDot, {x, sums}, DotAttributes{}));
  EXPECT_EQ(operators(), (Names{"Unary", "Unary", "Reduce", "SparseDot"}));
}

TEST_F(SparseForms, EndAtFunctionsThatDoNot) {
  output(add(ops::kDot, {add(ops::kUnary, {csr()}, UnaryAttributes{UnaryKind::kCos}), floats({5, 1})}, DotAttributes{}));
  const ValueId plus = add(ops::kScalar, {csr()}, ScalarAttributes{BinaryKind::kAdd, 1});
  output(add(ops::kDot, {plus, floats({5, 1})}, DotAttributes{}));
  output(add(ops::kReduce, {rows()}, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {0}}));
  output(add(ops::kReduce, {rows()}, ReduceAttributes{.kind = ReduceKind::kMax, .axes = {1}}));
  EXPECT_EQ(operators(), (Names{"CsrToDense", "Unary", "Dot", "CsrToDense", "Scalar", "Dot", "RowsToDense", "Reduce",
                                "RowsToDense", "Reduce"}));
}

// Of integers 0.5 is cut to 0, which is equal to 0: also behind a function, whose result has no type yet.
TEST_F(SparseForms, EndAtFunctionsThatDoNotInTheTypeThatTheyGet) {
  const ValueId whole = add(ops::kCsrToDense, {numbers({5, 6, 7}), numbers({0, 1, 3}), numbers({4, 0, 2})}, CsrAttributes{5});
  const ValueId squares = add(ops::kUnary, {whole}, UnaryAttributes{UnaryKind::kSquare});
  const ValueId are_equal = add(ops::kScalar, {squares}, ScalarAttributes{BinaryKind::kEqual, 0.5});
  output(add(ops::kCast, {are_equal}, CastAttributes{DType::kFloat32}));
  const ValueId cast = add(ops::kCast, {csr()}, CastAttributes{DType::kInt32});
  const ValueId are_greater = add(ops::kScalar, {cast}, ScalarAttributes{BinaryKind::kGreaterEqual, 0.5});
  output(add(ops::kCast, {are_greater}, CastAttributes{DType::kFloat32}));
  EXPECT_EQ(operators(), (Names{"Unary", "CsrToDense", "Scalar", "Cast", "Cast", "CsrToDense", "Scalar", "Cast"}));
}

TEST_F(SparseForms, OfATypeThatIsNotKnownStayBehindFunctionsThatKeepZerosInAll) {
  const auto behind = [&](BinaryKind kind, double number) {
    const ValueId x = add(ops::kCsrToDense, {input("x"), numbers({0, 1, 3}), numbers({4, 0, 2})}, CsrAttributes{5});
    output(add(ops::kScalar, {x}, ScalarAttributes{kind, number}));
    use_sparse_forms(graph_);
    return std::string(graph_.nodes.back().op->name);
  };
  EXPECT_EQ(behind(BinaryKind::kMul, 2), "CsrToDense");
  EXPECT_EQ(behind(BinaryKind::kEqual, 0.5), "Scalar");
}

TEST_F(SparseForms, StayBehindRetain) {
  const ValueId kept = add(ops::kRetainRows, {rows(), numbers({3, 0})});
  output(add(ops::kTake, {kept, numbers({0, 1, 3})}, TakeAttributes{}));
  EXPECT_EQ(operators(), (Names{"RetainRows", "TakeRows"}));
}

TEST_F(SparseForms, OfTheWrongSizeAreAnError) {
  output(add(ops::kDot, {csr(), rows(6)}, DotAttributes{}));
  use_sparse_forms(graph_);
  const Status status = infer(graph_, {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("6x4"), std::string::npos) << status.to_string();
}

// A table of a million rows, of which two are stored.
TEST_F(SparseForms, TakeTheMemoryOfWhatIsStored) {
  output(add(ops::kTake, {rows(1'000'000), input("ids")}, TakeAttributes{.table = {1'000'000, 4}}));
  const std::vector<TensorSpec> ids = {testing::spec("ids", {3})};
  const auto model = testing::load(graph_, ids);
  EXPECT_LE(model->packed_bytes(), std::uint64_t{4} << 20) << "its segment is at least 2 MiB; dense it has 16 MB";
  EXPECT_TRUE(model->notes().empty());
}

TEST_F(SparseForms, ThatAreMadeDenseAreNoted) {
  output(add(ops::kBinary, {rows(), input("x")}, BinaryAttributes{}));
  const std::vector<TensorSpec> x = {testing::spec("x", {5, 4})};
  const auto notes = testing::load(graph_, x)->notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "row_sparse tensor 'RowsToDense' (5x4) is made dense, 80 bytes, at load");
}

}  // namespace
}  // namespace shoal::worker
