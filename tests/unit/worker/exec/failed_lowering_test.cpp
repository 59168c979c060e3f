// oneDNN refuses to make a primitive when its node has been half lowered: a kernel runs, and nothing is left of the attempt. Or
// it has no memory: callers see std::bad_alloc, as for every failed allocation.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/infer.hpp"

namespace {
int failing_primitive = 0;  // the so-many-th from now on; 0: none
dnnl_status_t failure = dnnl_unimplemented;
bool has_failed = false;
bool streams_fail = false;
}  // namespace

// Stands before the library's.
extern "C" dnnl_status_t dnnl_primitive_create(dnnl_primitive_t* primitive, const_dnnl_primitive_desc_t description) {
  static const auto original = reinterpret_cast<decltype(&dnnl_primitive_create)>(::dlsym(RTLD_NEXT, "dnnl_primitive_create"));
  if (failing_primitive > 0 && --failing_primitive == 0) {
    has_failed = true;
    return failure;
  }
  return original(primitive, description);
}

extern "C" dnnl_status_t dnnl_stream_create(dnnl_stream_t* stream, dnnl_engine_t engine, unsigned flags) {
  static const auto original = reinterpret_cast<decltype(&dnnl_stream_create)>(::dlsym(RTLD_NEXT, "dnnl_stream_create"));
  return streams_fail ? dnnl_out_of_memory : original(stream, engine, flags);
}

namespace shoal::worker {
namespace {

using testing::GraphBuilder;

/// A network in which most primitives take several nodes: folded normalizations, sums, gates, reorders on the way.
Graph network() {
  GraphBuilder b;
  const ValueId x = b.activation(b.batch_norm(b.conv(b.input("data"), 3, 16, 3), 16));
  const ValueId y = b.batch_norm(b.conv(x, 16, 16, 3), 16);
  const ValueId sum = b.activation(b.add(y, x));
  const ValueId shifted = b.activation(b.batch_norm(b.scalar(BinaryKind::kAdd, sum, 0.5), 16));
  const ValueId gate = b.activation(b.conv(b.global_average(shifted), 16, 16, 1), ActivationKind::kSigmoid);
  const ValueId gated = b.activation(b.add(b.binary(BinaryKind::kMul, shifted, gate, true), sum));
  const ValueId swish = b.binary(BinaryKind::kMul, gated, b.activation(gated, ActivationKind::kSigmoid));
  const ValueId size = b.node("Unary", {swish}, UnaryAttributes{UnaryKind::kAbs});
  const ValueId root = b.node("Unary", {size}, UnaryAttributes{UnaryKind::kSqrt});  // two primitives, the second in place
  const ValueId elu = b.node("LeakyReLU", {root}, LeakyAttributes{.kind = LeakyKind::kElu});
  const ValueId joined = b.concat({elu, b.node("AddN", {x, y, sum})}, 1);
  b.output(b.activation(b.fully_connected(b.global_average(joined), 32, 8), ActivationKind::kTanh));
  return b.graph();
}

TEST(FailedLowering, LeavesTheNodesToKernels) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 12, 12})};
  Context reference_context;
  const auto want = testing::run(**testing::load(network(), inputs, "cpu-reference")->program(inputs), reference_context);
  int number = 0, refused = 0;
  for (bool fails = true; fails && !HasFailure();) {
    SCOPED_TRACE("primitive " + std::to_string(++number) + " cannot be made");
    failing_primitive = number;
    has_failed = false;
    const auto model = Model::load(network(), {.input_sets = {inputs}});
    fails = has_failed;
    failing_primitive = 0;
    if (!model.ok()) {  // the packed weights are read by kernels, too: nothing can stand in for their reorders
      EXPECT_TRUE(model.status().message().starts_with("pack weights: oneDNN says")) << model.status().to_string();
      ++refused;
      continue;
    }
    Context context;
    const auto got = testing::run(**(*model)->program(inputs), context);
    EXPECT_LE(testing::relative_error(got[0], want[0]), 1e-5);
  }
  EXPECT_GT(number, 12);
  EXPECT_LT(refused, number / 2) << "most primitives belong to the plan";
}

TEST(FailedLowering, ForWantOfMemoryIsABadAlloc) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 12, 12})};
  failure = dnnl_out_of_memory;
  int number = 0;
  for (bool fails = true; fails && !HasFailure();) {
    SCOPED_TRACE("there is no memory for primitive " + std::to_string(++number));
    failing_primitive = number;
    has_failed = false;
    bool threw = false;
    std::string said = "it loaded";
    try {
      const auto model = Model::load(network(), {.input_sets = {inputs}});
      if (!model.ok()) said = model.status().to_string();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    fails = has_failed;
    EXPECT_EQ(threw, fails) << said;
  }
  failing_primitive = 0;
  failure = dnnl_unimplemented;
  EXPECT_GT(number, 12);
}

/// What a new thread's run throws; empty if it answers.
std::string thrown_by_run(const Model& model, const Program& program, bool enters_without_memory, bool runs_without_memory) {
  std::string thrown;
  std::thread([&] {
    streams_fail = enters_without_memory;
    model.enter_thread();
    streams_fail = runs_without_memory;
    Context context;
    try {
      (void)testing::run(program, context);
    } catch (const std::bad_alloc&) {
      thrown = "bad_alloc";
    } catch (const std::exception& error) {
      thrown = error.what();
    }
    streams_fail = false;
  }).join();
  return thrown;
}

TEST(FailedLowering, AThreadMakesItsStreamBeforeItsFirstRun) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 12, 12})};
  const auto model = testing::load(network(), inputs);
  const auto program = model->program(inputs).value();
  EXPECT_EQ(thrown_by_run(*model, *program, false, true), "");
  EXPECT_EQ(thrown_by_run(*model, *program, true, true), "bad_alloc");
  EXPECT_EQ(thrown_by_run(*model, *program, true, false), "") << "the run makes the stream that enter_thread() could not make";
}

// The WeightStore keeps the forms that the oracle kernels read, and no form of the attempt.
TEST(FailedLowering, OfAConvolutionPacksOnlyWhatTheOracleKernelsRead) {
  GraphBuilder b;
  b.output(b.conv(b.input("data"), 512, 512, 3));
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 512, 4, 4})};
  failing_primitive = 1;
  const auto model = testing::load(b.graph(), inputs);
  failing_primitive = 0;
  // In huge pages, of which a second form of these weights takes several.
  EXPECT_EQ(model->packed_bytes(), testing::load(b.graph(), inputs, "cpu-reference")->packed_bytes());
}

// No axis is too long for oneDNN's int, but the window has more positions than it can count. Nothing is run here.
TEST(FailedLowering, OfAWindowWithTooManyPositionsLeavesItToAKernel) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 1, 65536, 65536})};
  GraphBuilder pooled, mean, adaptive;
  pooled.output(pooled.global_average(pooled.input("data")));
  mean.output(mean.node("Reduce", {mean.input("data")}, ReduceAttributes{.kind = ReduceKind::kMean, .axes = {2, 3}}));
  adaptive.output(adaptive.node("AdaptiveAvgPooling", {adaptive.input("data")}, AdaptivePoolingAttributes{}));
  for (const auto& [b, by] : {std::pair(&pooled, "oracle"), std::pair(&mean, "kernel"), std::pair(&adaptive, "oracle")}) {
    const auto program = *testing::load(b->graph(), inputs)->program(inputs);
    const auto& steps = dynamic_cast<const PlannedProgram&>(*program).plan().steps;
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0]->implementation(), by) << b->graph().nodes[0].op->name;
  }
}

/// A network whose first part runs image by image. The adaptive pooling runs by its oracle kernel, which needs a reorder.
Graph network_of_images() {
  GraphBuilder b;
  const ValueId wide = b.activation(b.conv(b.input("data"), 3, 32, 3));
  const ValueId narrow = b.conv(b.conv(wide, 32, 32, 3, 1, /*group=*/32), 32, 32, 1);
  const ValueId adapted = b.node("AdaptiveAvgPooling", {narrow}, AdaptivePoolingAttributes{48, 48});
  b.output(b.global_average(b.activation(b.conv(adapted, 32, 32, 3))));
  return b.graph();
}

Graph inferred(Graph graph, const std::vector<TensorSpec>& inputs) {
  EXPECT_TRUE(infer(graph, inputs).ok());
  return graph;
}

// Each image may be lowered by itself. If that fails half-way, the batch is lowered as a whole.
TEST(FailedLowering, OfOneImageLeavesTheBatchToBeLoweredAsAWhole) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {4, 3, 96, 96})};
  Context reference_context;
  const auto want =
      testing::run(**testing::load(network_of_images(), inputs, "cpu-reference")->program(inputs), reference_context);
  const Graph graph = inferred(network_of_images(), inputs);
  const auto backend = make_backends({}).value().front();
  int number = 0;
  for (bool fails = true; fails && !HasFailure();) {
    SCOPED_TRACE("primitive " + std::to_string(++number) + " cannot be made");
    const auto weights = std::make_shared<WeightStore>(WeightIdentity{});
    failing_primitive = number;
    has_failed = false;
    auto plan = backend->prepare(graph, *weights, {});
    fails = has_failed;
    failing_primitive = 0;
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_TRUE(weights->seal().ok());
    Context context;
    const auto got = testing::run(PlannedProgram(*std::move(plan), weights), context);
    EXPECT_LE(testing::relative_error(got[0], want[0]), 1e-5);
  }
  EXPECT_GT(number, 20) << "the images share no step";
}

// A caller may compile again with the same WeightStore.
TEST(FailedLowering, LeavesTheWeightsAsTheyWere) {
  const auto backend = make_backends({}).value().front();
  for (const std::int64_t batch : {1, 4}) {
    const Graph graph = inferred(network_of_images(), {testing::spec("data", {batch, 3, 96, 96})});
    for (const dnnl_status_t status : {dnnl_unimplemented, dnnl_out_of_memory}) {
      int failed = 0;
      failure = status;
      has_failed = true;
      for (int number = 1; has_failed && !HasFailure(); ++number) {
        SCOPED_TRACE("batch " + std::to_string(batch) + ", primitive " + std::to_string(number) + ", status " +
                     std::to_string(status));
        WeightStore weights{WeightIdentity{}};
        weights.add({.source = NamedConstant{"first", {}}}, {.dtype = DType::kUInt8}, 64,
                    [](const ConstantChain&, const WeightForm&, std::span<std::byte>) { return Status(); });
        failing_primitive = number;
        has_failed = false;
        bool is_compiled = false;
        try {
          is_compiled = backend->prepare(graph, weights, {}).ok();
        } catch (const std::bad_alloc&) {
        }
        failing_primitive = 0;
        if (is_compiled) continue;
        ++failed;
        EXPECT_EQ(weights.entry_count(), 1u);
      }
      EXPECT_TRUE(failed > 0 || (batch == 4 && status == dnnl_unimplemented)) << "nothing has failed";
    }
  }
  failure = dnnl_unimplemented;
}

// The convolution has its normalization and its relu with it.
TEST(FailedLowering, OfAConvolutionGivesBackWhatItTookAlong) {
  GraphBuilder b;
  b.output(b.activation(b.batch_norm(b.conv(b.input("data"), 3, 16, 3), 16)));
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 12, 12})};
  Context context, reference_context;
  failing_primitive = 1;
  const auto model = testing::load(b.graph(), inputs);
  failing_primitive = 0;
  const auto program = *model->program(inputs);
  EXPECT_EQ(dynamic_cast<const PlannedProgram&>(*program).plan().steps[0]->implementation(), "oracle");
  const auto want = testing::run(**testing::load(b.graph(), inputs, "cpu-reference")->program(inputs), reference_context);
  EXPECT_LE(testing::relative_error(testing::run(*program, context)[0], want[0]), 1e-5);
}

}  // namespace
}  // namespace shoal::worker
