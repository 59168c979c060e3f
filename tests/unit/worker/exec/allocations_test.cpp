// No allocation of ours per run: a run allocates what its primitives do, and nothing more.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/control_flow.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? 12 : 0;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
}

namespace shoal::worker {
namespace {

// The program's steps, bound to memory of their own, and nothing around them.
class BareLoop {
 public:
  explicit BareLoop(const PlannedProgram& program) {
    for (const auto& buffer : program.plan().buffers) memory_.push_back(AlignedBytes::allocate(buffer.bytes));
    for (const auto& step : program.plan().steps) {
      std::vector<std::byte*> operands;
      for (const BufferId id : step->operands())
        operands.push_back(id == kNoBuffer ? nullptr : memory_[static_cast<std::size_t>(id)].data.get());
      steps_.push_back(step->bind());
      steps_.back()->set_addresses(operands);
    }
  }
  void run() {
    for (const auto& step : steps_) ASSERT_TRUE(step->run().ok());
  }

 private:
  std::vector<AlignedBytes> memory_;
  std::vector<std::unique_ptr<BoundStep>> steps_;
};

template <typename Function>
std::uint64_t allocations_of(Function function) {
  const std::uint64_t before = allocations;
  function();
  return allocations - before;
}

TEST(Allocations, OfARunAreThoseOfItsPrimitives) {
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 64, 64})};
  const auto model = testing::load(testing::make_bottleneck_network(16), inputs);
  const auto program = *model->program(inputs);
  BareLoop bare(dynamic_cast<const PlannedProgram&>(*program));
  const Tensor src = testing::noise(inputs[0].shape), other_src = testing::noise(inputs[0].shape, 2);
  Tensor dst = Tensor::create(DType::kFloat32, program->outputs()[0].shape).value();
  TensorView dst_view = dst.view();
  Context context;
  const auto run_on = [&](const Tensor& tensor) {
    return [&] { (void)program->run(context, std::span(&tensor.view(), 1), std::span(&dst_view, 1)); };
  };
  run_on(src)();  // the first run binds
  bare.run();
  const auto expected = allocations_of([&] { bare.run(); });
  EXPECT_EQ(allocations_of(run_on(src)), expected);
  EXPECT_EQ(allocations_of(run_on(other_src)), expected) << "the input lies elsewhere";
}

TEST(Allocations, OfAPaddedRunAreThoseOfItsPrimitives) {
  const auto inputs_of = [](std::int64_t batch) { return std::vector{testing::spec("data", {batch, 3, 64, 64})}; };
  const auto model = Model::load(testing::make_bottleneck_network(16),
                                 {.input_sets = {inputs_of(4)}, .buckets = {{.sizes = {4}}}, .declared_inputs = inputs_of(-1)})
                         .value();
  const auto program = *model->program(inputs_of(3)), full = *model->program(inputs_of(4));
  BareLoop bare(dynamic_cast<const PlannedProgram&>(*full));
  const Tensor src = testing::noise({3, 3, 64, 64});
  Tensor dst = Tensor::create(DType::kFloat32, program->outputs()[0].shape).value();
  TensorView dst_view = dst.view();
  Context context;
  const auto run = [&] { ASSERT_TRUE(program->run(context, std::span(&src.view(), 1), std::span(&dst_view, 1)).ok()); };
  run();
  bare.run();
  EXPECT_EQ(allocations_of(run), allocations_of([&] { bare.run(); }));
}

/// x -> 2x or x + 1, four times: the branch depends on x. Rows of 12 bytes are scanned.
TEST(Allocations, OfARunWithBodiesAreNone) {
  testing::GraphBuilder twice, next;
  twice.output(twice.scalar(BinaryKind::kMul, twice.input("x"), 2));
  next.output(next.scalar(BinaryKind::kAdd, next.input("x"), 1));
  testing::GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x");
  body.output(body.number(1));
  body.output(body.node_with_bodies("If", {body.scalar(BinaryKind::kLesser, x, 0), x}, {twice.graph(), next.graph()}));
  testing::GraphBuilder row, b;
  row.output(row.scalar(BinaryKind::kMul, row.input("row"), 3));
  const ValueId rows = b.node_with_bodies("Scan", {b.input("rows")}, {row.graph()}, ScanAttributes{1, 0});
  b.output(rows);
  b.output(b.node_with_bodies("Loop", {b.number(4), b.number(1), b.input("x")}, {body.graph()}, LoopAttributes{}));
  const std::vector<TensorSpec> inputs = {testing::spec("rows", {5, 3}), testing::spec("x", Shape())};
  const auto model = testing::load(b.graph(), inputs, "cpu-reference");
  const auto program = *model->program(inputs);
  const std::vector<Tensor> tensors{testing::noise({5, 3}),
                                    testing::noise({5, 3}, 2),
                                    Tensor::create(DType::kFloat32, Shape()).value(),
                                    Tensor::create(DType::kFloat32, Shape()).value(),
                                    Tensor::create(DType::kFloat32, {5, 3}).value(),
                                    Tensor::create(DType::kFloat32, Shape()).value()};
  *reinterpret_cast<float*>(tensors[2].view().data) = 7;
  *reinterpret_cast<float*>(tensors[3].view().data) = -2;
  const std::array some{tensors[0].view(), tensors[2].view()}, others{tensors[1].view(), tensors[3].view()};
  std::array dst{tensors[4].view(), tensors[5].view()};
  Context context;
  ASSERT_TRUE(program->run(context, some, dst).ok());
  EXPECT_EQ(dst[1].values<float>()[0], 11);
  EXPECT_EQ(allocations_of([&] { (void)program->run(context, others, dst); }), 0U) << "branches that no run has taken yet";
  EXPECT_EQ(dst[1].values<float>()[0], -32);
  EXPECT_EQ(dst[0].values<float>()[14], 3 * others[0].values<float>()[14]);
}

}  // namespace
}  // namespace shoal::worker
