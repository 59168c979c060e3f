#include "worker/exec/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/context.hpp"
#include "worker/graph/convert.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::run;
using testing::spec;

Graph two_inputs() {
  GraphBuilder b;
  const ValueId first = b.input("first"), second = b.input("second");
  b.output(b.binary(BinaryKind::kSub, b.conv(first, 3, 16, 3), b.conv(second, 3, 16, 3)));
  return b.graph();
}
const std::vector<TensorSpec> kTwo = {spec("first", {1, 3, 8, 8}), spec("second", {1, 3, 8, 8})};

TEST(Model, FindsAProgramInAnyOrderOfItsInputs) {
  const auto model = load(two_inputs(), kTwo);
  const std::vector<TensorSpec> turned = {kTwo[1], kTwo[0]};
  EXPECT_EQ(*model->program(kTwo), *model->program(turned));
  EXPECT_EQ((*model->program(turned))->inputs()[0].name, "first");
  EXPECT_FALSE((*model->program(turned))->time_varies()) << "it has no bodies";
}

TEST(Model, NamesTheInputThatIsMissingUnknownOrOpen) {
  const auto model = load(two_inputs(), kTwo);
  const auto message = [&](std::vector<TensorSpec> inputs) { return model->program(inputs).status().to_string(); };
  EXPECT_NE(message({kTwo[0]}).find("'second'"), std::string::npos);
  EXPECT_NE(message({kTwo[0], kTwo[1], spec("third", {1})}).find("'third'"), std::string::npos);
  EXPECT_NE(message({kTwo[0], spec("second", {-1, 3, 8, 8})}).find("'second'"), std::string::npos);
  EXPECT_NE(message({kTwo[0], {"second", DType::kFloat64, {1, 3, 8, 8}}}).find("'second' is float64"), std::string::npos);
}

TEST(Model, RefusesADeviceItDoesNotHave) {
  const auto refused = Model::load(two_inputs(), {.device = "abacus", .input_sets = {kTwo}});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().to_string().find("'abacus'"), std::string::npos);
}

TEST(Model, CompilesOtherShapesAgainstTheSamePackedWeights) {
  const Graph graph = testing::make_bottleneck_network(16);
  const auto model = load(graph, {spec("data", {1, 3, 64, 64})});
  for (const Shape& shape : {Shape{3, 3, 64, 64}, Shape{1, 3, 96, 80}}) {
    const std::vector<TensorSpec> inputs = {spec("data", shape)};
    Context context, reference_context;
    const auto got = run(**model->program(inputs), context);
    const auto want = run(**load(graph, inputs, "cpu-reference")->program(inputs), reference_context);
    EXPECT_LE(testing::relative_error(got[0], want[0]), 5e-6) << shape.to_string();
  }
}

/// The graph with its constants stored in another type.
Graph stored_as(DType dtype, Graph graph) {
  for (Value& value : graph.values) {
    if (!value.constant) continue;
    value.constant = convert_constant(*value.constant, dtype);
    value.dtype = dtype;
  }
  return graph;
}

Tensors answer_to_noise(const Program& program) {
  Tensors outputs;
  std::vector<Tensor> inputs;
  std::vector<TensorView> src, dst;
  for (const TensorSpec& input : program.inputs()) {
    const Tensor noise = testing::noise(input.shape);
    const Constant converted = convert_constant({DType::kFloat32, input.shape, noise.view().bytes(), nullptr}, input.dtype);
    src.push_back(inputs.emplace_back(Tensor::create(input.dtype, input.shape).value()).view());
    std::memcpy(src.back().data, converted.bytes.data(), converted.bytes.size());
  }
  for (const TensorSpec& output : program.outputs()) {
    outputs.push_back({output.name, Tensor::create(output.dtype, output.shape).value()});
    dst.push_back(outputs.back().tensor.view());
  }
  Context context;
  EXPECT_TRUE(program.run(context, src, dst).ok());
  return outputs;
}

struct StoredCase {
  const char* device;
  DType stored, data;
};
void PrintTo(const StoredCase& stored, std::ostream* out) {
  *out << dtype_name(stored.stored) << " for " << dtype_name(stored.data) << " on " << stored.device;
}

class StoredType : public ::testing::TestWithParam<StoredCase> {};

// What was stored is gone once the weights are packed: a program compiled later reads what was converted at load.
TEST_P(StoredType, ShapesCompiledLaterReadTheWeightsConvertedAtLoad) {
  const StoredCase& stored = GetParam();
  const Graph graph = stored_as(stored.stored, testing::make_bottleneck_network(8));
  const auto inputs = [&](std::int64_t batch) { return std::vector{TensorSpec{"data", stored.data, Shape{batch, 3, 32, 32}}}; };
  const auto loaded = [&](std::int64_t batch) {
    return Model::load(graph, {.device = stored.device, .input_sets = {inputs(batch)}}).value();
  };
  const auto model = loaded(1);
  for (const std::int64_t batch : {1, 2, 3}) {
    const auto got = answer_to_noise(**model->program(inputs(batch)));
    const auto want = answer_to_noise(**loaded(batch)->program(inputs(batch)));
    ASSERT_EQ(got[0].tensor.dtype(), stored.data);
    const auto got_bytes = got[0].tensor.view().bytes(), want_bytes = want[0].tensor.view().bytes();
    EXPECT_TRUE(std::ranges::equal(got_bytes, want_bytes)) << batch;
  }
}

constexpr DType kHalf = DType::kFloat16, kSingle = DType::kFloat32, kDouble = DType::kFloat64;
INSTANTIATE_TEST_SUITE_P(, StoredType,
                         ::testing::Values(StoredCase{"cpu", kHalf, kSingle}, StoredCase{"cpu", kDouble, kSingle},
                                           StoredCase{"cpu", kSingle, kHalf}, StoredCase{"cpu-reference", kHalf, kSingle},
                                           StoredCase{"cpu-reference", kDouble, kSingle},
                                           StoredCase{"cpu-reference", kSingle, kHalf},
                                           StoredCase{"cpu-reference", kSingle, kDouble}));

TEST(Model, RefusesSetsOfDifferentTypes) {
  const auto refused = Model::load(two_inputs(), {.input_sets = {kTwo, {kTwo[0], {"second", kDouble, {2, 3, 8, 8}}}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("'second' is float64"), std::string::npos) << refused.status().to_string();
}

TEST(Model, HoldsNoMoreThanItsCacheMay) {
  const auto model =
      Model::load(testing::make_bottleneck_network(16), {.input_sets = {{spec("data", {1, 3, 64, 64})}}, .cache_bytes = 4 << 20})
          .value();
  std::weak_ptr<const Program> first = *model->program(std::vector{spec("data", {1, 3, 65, 65})});
  Context context;
  (void)run(*first.lock(), context);
  for (std::int64_t size = 66; size < 76; ++size)
    (void)run(**model->program(std::vector{spec("data", {1, 3, size, size})}), context);
  EXPECT_LE(model->program_counters().bytes, std::size_t{4} << 20);
  EXPECT_TRUE(first.expired()) << "ten other shapes of 1.5 MB each, and the first is still here";
}

// The process may be an application that uses oneDNN, too.
TEST(Model, LeavesTheLibrarysCacheOfPrimitivesAsLargeAsItWas) {
  const int before = dnnl::get_primitive_cache_capacity();
  dnnl::set_primitive_cache_capacity(77);
  const auto model = load(two_inputs(), kTwo);
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 77);
  (void)model->program(std::vector{spec("first", {2, 3, 8, 8}), spec("second", {2, 3, 8, 8})});
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 77);
  dnnl::set_primitive_cache_capacity(before);
}

TEST(Context, RunsProgramsOfGrowingSizeOneAfterTheOther) {
  const Graph graph = testing::make_bottleneck_network(16);
  const auto model = load(graph, {spec("data", {1, 3, 64, 64})});
  Context shared;
  for (const std::int64_t size : {64, 128, 64, 160, 64}) {
    const std::vector<TensorSpec> inputs = {spec("data", {1, 3, size, size})};
    Context own;
    EXPECT_TRUE(testing::same_bits(run(**model->program(inputs), shared), run(**model->program(inputs), own))) << size;
  }
}

TEST(Context, ForgetsWhatItBoundForProgramsThatAreGone) {
  const auto kept = load(two_inputs(), kTwo);
  auto dropped = load(two_inputs(), kTwo);
  Context context;
  (void)run(**kept->program(kTwo), context);
  (void)run(**dropped->program(kTwo), context);
  dropped.reset();
  (void)run(**kept->program(kTwo), context);
  EXPECT_EQ(context.state->bindings.size(), 1u) << "the one that is gone was run last";
}

TEST(Context, CountsStepsAndForgetsTheNameAfterwards) {
  const auto model = load(two_inputs(), kTwo);
  const auto program = *model->program(kTwo);
  std::atomic<std::uint64_t> steps{0};
  Progress progress;
  progress.step_counter = &steps;
  Context context;
  context.progress = &progress;
  (void)run(*program, context);
  EXPECT_EQ(steps, program->step_count());
  EXPECT_EQ(progress.step_name, nullptr);
}

TEST(Context, ARunEndsBetweenTwoStepsWhenItIsToldTo) {
  struct AfterTheFirst final : StopCondition {
    bool should_stop() override { return ++asked > 1; }
    int asked = 0;
  } stop;
  const auto model = load(two_inputs(), kTwo, "cpu-reference");
  const auto program = *model->program(kTwo);
  ASSERT_GT(program->step_count(), 1u);
  std::atomic<std::uint64_t> steps{0};
  Progress progress;
  progress.step_counter = &steps;
  progress.stop = &stop;
  Context context;
  context.progress = &progress;
  std::vector<Tensor> tensors;
  std::vector<TensorView> src, dst;
  const auto make = [&](const TensorSpec& each) {
    return tensors.emplace_back(Tensor::create(each.dtype, each.shape).value()).view();
  };
  for (const TensorSpec& each : program->inputs()) src.push_back(make(each));
  for (const TensorSpec& each : program->outputs()) dst.push_back(make(each));
  EXPECT_EQ(program->run(context, src, dst).code(), StatusCode::kCancelled);
  EXPECT_EQ(steps, 1u);
  EXPECT_EQ(progress.step_name, nullptr);
}

/// Before every step, gives all lengths in an output's memory a value that its client might write there.
struct ChangesLengths final : StopCondition {
  bool should_stop() override {
    std::ranges::fill(lengths, 2);
    return false;
  }
  std::span<std::int32_t> lengths;
};

// Outputs lie in memory that their client can write at any time.
TEST(Program, TakesNoBoundsFromWhereAClientCanWrite) {
  GraphBuilder b;
  const ValueId data = b.input("data"), lengths = b.node("Cast", {b.input("lengths")}, CastAttributes{DType::kInt32});
  const ValueId same = b.node("Identity", {lengths});
  b.output(same);
  b.output(b.node("Softmax", {data, same}, SoftmaxAttributes{.axis = 1, .use_length = true}));
  const std::vector<TensorSpec> inputs = {spec("data", {1, 8}), spec("lengths", {1})};
  for (const char* device : {"cpu", "cpu-reference"}) {
    const auto model = load(b.graph(), inputs, device);
    const auto program = *model->program(inputs);
    Tensor zeros = Tensor::create(DType::kFloat32, {1, 8}).value(), eight = Tensor::create(DType::kFloat32, {1}).value();
    eight.values<float>()[0] = 8;
    Tensor length = Tensor::create(DType::kInt32, {1}).value(), shares = Tensor::create(DType::kFloat32, {1, 8}).value();
    ChangesLengths client;
    client.lengths = length.values<std::int32_t>();
    Progress progress;
    progress.stop = &client;
    Context context;
    context.progress = &progress;
    std::vector<TensorView> src{zeros.view(), eight.view()}, dst{length.view(), shares.view()};
    ASSERT_TRUE(program->run(context, src, dst).ok());
    EXPECT_EQ(shares.values<float>()[7], 0.125F) << device << ": a length was read from an output";
    EXPECT_EQ(length.values<std::int32_t>()[0], 8) << device;
  }
}

TEST(Program, TellsWhatItsStepsMoveAndCompute) {
  GraphBuilder b;
  b.output(b.activation(b.conv(b.input("data"), 3, 16, 3)));
  const std::vector<TensorSpec> inputs = {spec("data", {2, 3, 8, 8})};
  const auto model = load(b.graph(), inputs);
  const auto program = *model->program(inputs);
  const auto steps = program->steps();
  ASSERT_EQ(steps.size(), program->step_count());
  EXPECT_EQ(steps[0].name, "Convolution 'Convolution0'");
  EXPECT_EQ(steps[0].flops, 2.0 * (2 * 16 * 8 * 8) * (3 * 3 * 3));
  EXPECT_GE(steps[0].bytes, 4.0 * (2 * 3 * 8 * 8 + 16 * 3 * 3 * 3 + 2 * 16 * 8 * 8));

  std::vector<std::uint64_t> times(steps.size());
  Context context;
  (void)run(*program, context);
  EXPECT_EQ(times[0], 0U);
  context.step_times = times;
  (void)run(*program, context);
  EXPECT_GT(times[0], 0U);
}

TEST(Program, TakesTensorsAtAnyAddress) {
  GraphBuilder b;
  b.output(b.activation(b.conv(b.input("data"), 3, 16, 3)));
  const std::vector<TensorSpec> inputs = {spec("data", {1, 3, 8, 8})};
  const auto model = load(b.graph(), inputs);
  const auto program = *model->program(inputs);
  Context context;
  const auto aligned = run(*program, context);
  const Tensor src = testing::noise({1, 3, 8, 8});
  std::vector<std::byte> src_room(src.size_bytes() + 1), dst_room(aligned[0].size_bytes() + 1);
  std::memcpy(src_room.data() + 1, src.view().data, src.size_bytes());
  const TensorView crooked_src{DType::kFloat32, src.shape(), src_room.data() + 1};
  TensorView crooked_dst{DType::kFloat32, aligned[0].shape(), dst_room.data() + 1};
  ASSERT_TRUE(program->run(context, std::span(&crooked_src, 1), std::span(&crooked_dst, 1)).ok());
  EXPECT_EQ(std::memcmp(crooked_dst.data, aligned[0].view().data, aligned[0].size_bytes()), 0);
}

// What a loop reads where in a row: kept for each size of the picture.
TEST(Program, CountsTheMemoryThatItsLoopsKeep) {
  constexpr std::int64_t kWidth = 1 << 16;
  GraphBuilder b;
  b.output(
      b.node("Resize", {b.input("data")}, ResizeAttributes{.kind = ResizeKind::kLinearCorners, .height = 1, .width = kWidth}));
  const std::vector<TensorSpec> inputs = {spec("data", {1, 1, 1, 7})};
  const auto model = load(b.graph(), inputs);
  EXPECT_GE((*model->program(inputs))->resident_bytes(), kWidth * (2 * sizeof(std::int64_t) + sizeof(float)));
}

TEST(Program, RefusesTensorsItWasNotCompiledFor) {
  const auto model = load(two_inputs(), kTwo);
  const auto program = *model->program(kTwo);
  Context context;
  EXPECT_EQ(program->run(context, {}, {}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::worker
