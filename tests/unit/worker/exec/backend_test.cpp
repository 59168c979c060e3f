// Programs that run partly on a device with memory of its own, an asynchronous queue and faults on demand: the device "fake".
#include "worker/exec/backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "tests/support/fake_backend.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/context.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using namespace std::chrono_literals;
using testing::GraphBuilder;
using testing::spec;
using Refuse = test::FakeSettings::Refuse;

/// A test that may change what the device does.
class Devices : public ::testing::Test {
 protected:
  void SetUp() override {
    test::fake_settings() = {};
    for (auto* counter : {&counters().prepared, &counters().opened, &counters().activated, &counters().parts_run,
                          &counters().copies_in, &counters().copies_out, &counters().dropped})
      *counter = 0;
  }
  void TearDown() override { test::fake_settings() = {}; }
  static test::FakeCounters& counters() { return test::fake_counters(); }
};

const std::vector<TensorSpec> kInputs = {spec("data", {2, 3, 16, 16})};

/// Two parts on the device (64 and 32 channels), with a part of the host (256 channels) between them and one at the end.
Graph make_network() {
  GraphBuilder b;
  ValueId x = b.activation(b.batch_norm(b.conv(b.input("data"), 3, 64, 3), 64));
  const ValueId shortcut = x;
  x = b.activation(b.conv(x, 64, 256, 3));
  x = b.activation(b.add(b.conv(x, 256, 64, 1), shortcut));
  b.output(b.node("Softmax", {b.global_average(x)}, SoftmaxAttributes{}));
  b.output(x);
  return b.graph();
}

Result<std::unique_ptr<Model>> load_on(const std::string& device, const Graph& graph, Fallback fallback = Fallback::kCpu) {
  return Model::load(graph, {.device = device, .fallback = fallback, .input_sets = {kInputs}});
}

std::vector<Tensor> expected(const Graph& graph) {
  Context context;
  return testing::run(**(*load_on("cpu-reference", graph))->program(kInputs), context);
}

std::vector<std::string> step_names(const Program& program) {
  std::vector<std::string> names;
  for (const StepInfo& step : program.steps()) names.push_back(step.implementation == "fake" ? "fake" : step.name);
  return names;
}

std::size_t count_steps(const Program& program, const std::string& implementation) {
  const auto steps = program.steps();
  return static_cast<std::size_t>(std::ranges::count(steps, implementation, &StepInfo::implementation));
}

TEST_F(Devices, AProgramRunsPartlyOnTheDeviceAndIsRight) {
  const Graph graph = make_network();
  const auto model = load_on("fake", graph).value();
  EXPECT_TRUE(model->has_devices());
  EXPECT_EQ(counters().opened, 0) << "before the fork nobody touches the device";
  const auto program = model->program(kInputs).value();
  EXPECT_EQ(count_steps(*program, "fake"), 2u);
  Context context;
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(testing::alike(testing::run(*program, context), expected(graph)));
  EXPECT_EQ(counters().opened, 1);
  EXPECT_EQ(counters().parts_run, 6);
}

TEST_F(Devices, EachValueIsCopiedOnceAndStaysWhereItIsNeeded) {
  const auto model = load_on("fake", make_network()).value();
  const auto program = model->program(kInputs).value();
  // In: data, and the 256 channels. Out: 64 channels for the host's part, the averages for the softmax, and the second output.
  // The shortcut stays where it is.
  EXPECT_EQ(count_steps(*program, "transfer"), 5u);
  EXPECT_EQ(count_steps(*program, "wait"), 2u);
}

TEST_F(Devices, AProgramThatOneHostPartRunsHasTheStepsOfThatPart) {
  const Graph graph = make_network();
  test::fake_settings().takes = [](const Node&) { return false; };
  const auto on_fake = load_on("fake", graph).value(), on_cpu = load_on("cpu", graph).value();
  const auto fake_program = on_fake->program(kInputs).value(), cpu_program = on_cpu->program(kInputs).value();
  EXPECT_EQ(step_names(*fake_program), step_names(*cpu_program));
  EXPECT_EQ(fake_program->arena_bytes(), cpu_program->arena_bytes());
  EXPECT_EQ(on_fake->packed_bytes(), on_cpu->packed_bytes());
  Context context;
  EXPECT_TRUE(testing::same_bits(testing::run(*fake_program, context), testing::run(*cpu_program, context)));
  EXPECT_EQ(counters().opened, 0);
}

// The parts of the host are compiled one by one, and each converts weights of half types for itself.
TEST_F(Devices, WeightsThatPartsWidenAreToldApart) {
  GraphBuilder b;
  const ValueId half = b.node("Cast", {b.input("data")}, CastAttributes{DType::kFloat16});
  b.output(b.conv(b.activation(b.conv(half, 3, 3, 3)), 3, 3, 3));
  test::fake_settings().takes = [](const Node& node) { return node.op->name == "Activation"; };
  const auto answer = [&](const std::string& device) {
    const auto model = load_on(device, b.graph()).value();
    Context context;
    return testing::run(**model->program(kInputs), context);
  };
  EXPECT_TRUE(testing::same_bits(answer("fake"), answer("cpu")));
  EXPECT_GT(counters().parts_run, 0);
}

// Whether its operators run on the device makes no difference: nobody asks about bodies there.
TEST_F(Devices, NodesWithBodiesRunOnTheHost) {
  GraphBuilder then, otherwise;
  then.output(then.activation(then.conv(then.input("x"), 64, 64, 3)));
  otherwise.output(otherwise.activation(otherwise.input("x")));
  GraphBuilder b;
  const ValueId x = b.activation(b.conv(b.input("data"), 3, 64, 3));
  const ValueId y = b.node_with_bodies("If", {b.number(1), x}, {then.graph(), otherwise.graph()});
  b.output(b.activation(b.add(b.conv(y, 64, 64, 1), x)));
  const auto model = load_on("fake", b.graph()).value();
  const auto program = model->program(kInputs).value();
  EXPECT_EQ(count_steps(*program, "fake"), 2u);
  EXPECT_EQ(count_steps(*program, "bodies"), 1u);
  Context context;
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(testing::alike(testing::run(*program, context), expected(b.graph())));
}

TEST_F(Devices, AProgramMayRunOnTheDeviceAlone) {
  GraphBuilder b;
  b.output(b.activation(b.conv(b.input("data"), 3, 8, 3)));
  const auto model = load_on("fake", b.graph()).value();
  const auto program = model->program(kInputs).value();
  EXPECT_EQ(program->step_count(), 4u) << "in, compute, out, wait";
  Context context;
  EXPECT_TRUE(testing::alike(testing::run(*program, context), expected(b.graph())));
}

TEST_F(Devices, OutputsThatAreInputsOrConstantsOrTwoOfAKindArrive) {
  GraphBuilder b;
  const ValueId data = b.input("data"), constant = b.constant({4});
  const ValueId x = b.activation(b.conv(data, 3, 8, 3));
  for (const ValueId id : {data, x, constant, x}) b.output(id);
  const auto model = load_on("fake", b.graph()).value();
  Context context;
  EXPECT_TRUE(testing::alike(testing::run(**model->program(kInputs), context), expected(b.graph())));
}

/// Memory of both spaces is shared by values that are not alive at the same time, also across parts.
TEST_F(Devices, MemoryIsPlannedPerSpace) {
  const auto chain = [](int length) {
    GraphBuilder b;
    ValueId x = b.input("data");
    for (int i = 0; i < length; ++i) x = b.activation(b.activation(x), ActivationKind::kSigmoid);
    b.output(x);
    return b.graph();
  };
  int number = 0;
  test::fake_settings().takes = [&](const Node&) { return number++ % 2 == 0; };
  const auto short_one = load_on("fake", chain(4)).value();
  number = 0;
  const auto long_one = load_on("fake", chain(12)).value();
  const auto a = short_one->program(kInputs).value(), b = long_one->program(kInputs).value();
  EXPECT_EQ(count_steps(*b, "fake"), 12u);
  EXPECT_EQ(a->arena_bytes(), b->arena_bytes()) << "a longer chain takes no more of the host's memory";
  EXPECT_GT(a->arena_bytes(), 0u);
  Context context;
  EXPECT_TRUE(testing::alike(testing::run(*b, context), expected(chain(12))));
}

/// Any division of a graph is right: every operator, whatever the device takes.
TEST_F(Devices, RandomDivisionsOfRandomGraphsAreRight) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    GraphBuilder b;
    std::vector<ValueId> values{b.input("data")};  // all of 4 channels and one size
    values.push_back(b.conv(values[0], 3, 4, 3));
    values.erase(values.begin());
    for (std::uint64_t i = 0, nodes = 4 + random() % 20; i < nodes; ++i) {
      const ValueId x = values[random() % values.size()], y = values[random() % values.size()];
      const std::uint64_t kind = random() % 7;
      if (kind == 0) values.push_back(b.conv(x, 4, 4, 3));
      if (kind == 1) values.push_back(b.batch_norm(x, 4));
      if (kind == 2) values.push_back(b.activation(x));
      if (kind == 3) values.push_back(b.add(x, y));
      if (kind == 4) values.push_back(b.activation(x, ActivationKind::kSigmoid));
      if (kind == 5) values.push_back(b.pool(x, {.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}}));
      if (kind == 6) values.push_back(b.binary(BinaryKind::kMaximum, x, y));
    }
    for (int i = 0; i < 3; ++i) b.output(values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), 4)]);
    Graph graph = b.graph();
    graph.remove_unneeded_nodes();
    const std::uint64_t seed = random(), share = 1 + random() % 9;
    test::fake_settings().takes = [&](const Node& node) {
      return std::hash<std::string>()(node.name + std::to_string(seed)) % 10 < share;
    };
    const auto model = load_on("fake", graph).value();
    Context context;
    const auto program = model->program(kInputs).value();
    const auto got = testing::run(*program, context);
    EXPECT_TRUE(testing::alike(got, expected(graph), 2e-5));
    EXPECT_TRUE(testing::same_bits(got, testing::run(*program, context))) << "a second run differs";
  }
}

TEST_F(Devices, TheHostFaultsWhenItTouchesTheDevicesMemory) {
  const auto backend = make_backends({.device = "fake"}).value().front();
  const auto queue = backend->open_queue().value();
  std::byte* const memory = queue->reserve(4096).value();
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile std::byte*>(memory)), "");
  EXPECT_DEATH(*static_cast<volatile std::byte*>(memory) = std::byte{1}, "");
  std::vector<std::byte> there(4096, std::byte{7}), back(4096);
  ASSERT_TRUE(queue->copy_in(memory, there).ok());
  ASSERT_TRUE(queue->copy_out(back, memory).ok());
  EXPECT_TRUE(wait_for_device(queue->start(), nullptr));
  EXPECT_TRUE(queue->finish().ok());
  EXPECT_EQ(back, there);
}

std::uint64_t cpu_ns_of_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

TEST_F(Devices, ARunWaitsWithoutProcessorTimeAndItsStatusLineSaysSo) {
  const auto model = load_on("fake", make_network()).value();
  const auto program = model->program(kInputs).value();
  Context context;
  (void)testing::run(*program, context);
  test::fake_settings().latency_us = 50'000;
  Progress progress;
  std::atomic<std::uint64_t> waits{0};
  progress.waits_for_device = &waits;
  context.progress = &progress;
  std::atomic<bool> was_seen{false}, is_over{false};
  std::thread watcher([&] {
    while (!is_over) was_seen = was_seen || (waits != 0 && progress.step_name != nullptr);
  });
  const std::uint64_t before_ns = cpu_ns_of_thread();
  const auto start = std::chrono::steady_clock::now();
  (void)testing::run(*program, context);
  const auto took = std::chrono::steady_clock::now() - start;
  const auto used = std::chrono::nanoseconds(cpu_ns_of_thread() - before_ns);
  is_over = true;
  watcher.join();
  EXPECT_GT(took, 250ms) << "six commands";
  EXPECT_LT(used, took / 2);
  EXPECT_TRUE(was_seen);
  EXPECT_EQ(waits, 0u);
}

class StopAtOnce final : public StopCondition {
 public:
  bool should_stop() override { return is_wanted_; }
  std::atomic<bool> is_wanted_{false};
};

TEST_F(Devices, ACancelledRunLeavesNothingInTheQueue) {
  GraphBuilder b;
  b.output(b.activation(b.conv(b.input("data"), 3, 8, 3)));  // the device writes into the caller's memory
  const auto model = load_on("fake", b.graph()).value();
  const auto program = model->program(kInputs).value();
  Context context;
  const auto want = testing::run(*program, context);
  test::fake_settings().latency_us = 100'000;
  Progress progress;
  StopAtOnce stop;
  std::atomic<std::uint64_t> waits{0};
  progress.stop = &stop;
  progress.waits_for_device = &waits;
  context.progress = &progress;
  std::vector<Tensor> inputs, outputs;
  std::vector<TensorView> src, dst;
  inputs.push_back(testing::noise(kInputs[0].shape));
  src.push_back(inputs[0].view());
  for (const auto& output : program->outputs()) {
    outputs.push_back(Tensor::create(output.dtype, output.shape).value());
    dst.push_back(outputs.back().view());
  }
  std::thread canceller([&] {
    while (waits == 0) std::this_thread::yield();
    stop.is_wanted_ = true;
  });
  const Status status = program->run(context, src, dst);
  canceller.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  EXPECT_GT(counters().dropped, 0) << "what had not begun did not run";
  // The caller's memory is its own again: nothing writes there any more.
  for (TensorView& view : dst) std::memset(view.data, 0x5a, view.size_bytes());
  std::this_thread::sleep_for(300ms);
  for (const TensorView& view : dst) {
    for (const std::byte byte : view.bytes()) ASSERT_EQ(byte, std::byte{0x5a});
  }
  test::fake_settings().latency_us = 0;
  stop.is_wanted_ = false;
  EXPECT_TRUE(testing::same_bits(testing::run(*program, context), want)) << "and the next run is right";
}

struct Refusal {
  Refuse refuse;
  const char* name;
  const char* says;
  friend std::ostream& operator<<(std::ostream& to, const Refusal& refusal) { return to << refusal.name; }
};
class Refusals : public Devices, public ::testing::WithParamInterface<Refusal> {};
INSTANTIATE_TEST_SUITE_P(, Refusals,
                         ::testing::Values(Refusal{Refuse::kPrepare, "AtPrepare", "not to its taste"},
                                           Refusal{Refuse::kOpen, "AtOpen", "the device is gone"},
                                           Refusal{Refuse::kActivate, "AtActivate", "no room on the device"},
                                           Refusal{Refuse::kRun, "AtRun", "failed"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Devices, AGraphWithSizesBehindDataRunsOnTheHostAlone) {
  test::register_dynamic_operators();
  GraphBuilder b;
  const ValueId x = b.activation(b.fully_connected(b.input("data"), 5, 5));
  b.output(b.node("_dynamic_nms", {x}, CustomAttributes{0.5}));
  b.output(b.activation(b.fully_connected(x, 5, 5)));
  const auto load = [&](Fallback fallback) {
    return Model::load(b.graph(), {.device = "fake", .fallback = fallback, .input_sets = {{spec("data", {4, 5})}}});
  };
  const auto model = load(Fallback::kCpu).value();
  ASSERT_EQ(model->notes().size(), 1u);
  EXPECT_NE(model->notes()[0].find("depends on data"), std::string::npos) << model->notes()[0];
  EXPECT_EQ(counters().prepared, 0);
  const Status refused = load(Fallback::kError).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("depends on data"), std::string::npos) << refused.message();
}

TEST_F(Devices, ADeviceThatRefusedIsAskedAgain) {
  const auto model = load_on("fake", make_network(), Fallback::kError).value();
  const auto program = model->program(kInputs).value();
  const Tensor input = testing::noise(kInputs[0].shape);
  const TensorView src[] = {input.view()};
  auto outputs = OwnedOutputs::make(program->outputs()).value();
  Context context;
  test::fake_settings().refuse = Refuse::kOpen;
  const int asked = counters().asked;
  EXPECT_FALSE(program->run(context, src, outputs.views()).ok());
  EXPECT_EQ(counters().asked, asked + 1);
  Binding& binding = context.state->bindings.front();
  EXPECT_EQ(binding.pause_ns, 1'000'000'000u);
  EXPECT_FALSE(program->run(context, src, outputs.views()).ok());
  if (monotonic_now_ns() < binding.asked_again_ns) EXPECT_EQ(counters().asked, asked + 1) << "not in each run";
  binding.asked_again_ns = 0;
  EXPECT_FALSE(program->run(context, src, outputs.views()).ok());
  EXPECT_EQ(counters().asked, asked + 2);
  EXPECT_EQ(context.state->bindings.front().pause_ns, 2'000'000'000u) << "the pause doubles";
  EXPECT_EQ(context.state->bindings.size(), 1u);
  test::fake_settings().refuse = Refuse::kNothing;
  const auto give_up = std::chrono::steady_clock::now() + 20s;
  Status status = program->run(context, src, outputs.views());
  while (!status.ok() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(10ms);
    status = program->run(context, src, outputs.views());
  }
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(Refusals, AreErrorsIfSoConfigured) {
  const Graph graph = make_network();
  test::fake_settings().refuse = GetParam().refuse;
  auto model = load_on("fake", graph, Fallback::kError);
  Status status = model.status();
  if (GetParam().refuse != Refuse::kPrepare) {
    ASSERT_TRUE(model.ok()) << status.to_string();
    Context context;
    status = (*model)->activate(context);
    EXPECT_EQ(status.ok(), GetParam().refuse == Refuse::kRun) << status.to_string();
    const auto program = (*model)->program(kInputs).value();
    std::vector<Tensor> outputs;
    std::vector<TensorView> dst;
    const Tensor input = testing::noise(kInputs[0].shape);
    const TensorView src[] = {input.view()};
    for (const auto& output : program->outputs()) {
      outputs.push_back(Tensor::create(output.dtype, output.shape).value());
      dst.push_back(outputs.back().view());
    }
    status = program->run(context, src, dst);
    test::fake_settings().refuse = Refuse::kNothing;
    Context later;
    EXPECT_TRUE(program->run(later, src, dst).ok()) << "the next lane may have more luck";
  }
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("fake: "), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(GetParam().says), std::string::npos) << status.message();
}

TEST_P(Refusals, MakeTheCpuDoItIfSoConfiguredAndAreTold) {
  const Graph graph = make_network();
  test::fake_settings().refuse = GetParam().refuse;
  const auto model = load_on("fake", graph, Fallback::kCpu).value();
  Context context;
  Progress progress;
  std::vector<std::string> told(model->notes());
  progress.on_fallback = [&](const Status& why) { told.push_back(why.message()); };
  context.progress = &progress;
  ASSERT_TRUE(model->activate(context).ok());
  const auto program = model->program(kInputs).value();
  EXPECT_TRUE(testing::alike(testing::run(*program, context), expected(graph)));
  ASSERT_FALSE(told.empty());
  for (const std::string& why : told) EXPECT_NE(why.find(GetParam().says), std::string::npos) << why;
  const bool is_at_prepare = GetParam().refuse == Refuse::kPrepare;
  EXPECT_EQ(model->notes().size(), is_at_prepare ? 2u : 0u) << "a note for each part";
  EXPECT_EQ(count_steps(*program, "fake"), is_at_prepare ? 0u : 2u);
}

TEST_F(Devices, AnUnknownOneIsRefusedWithTheNamesOfTheOthers) {
  const Status status = make_backends({.device = "tpu"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "device 'tpu' is not known: this build has cpu, cpu-reference, fake");
}

TEST_F(Devices, ShapesThatComeLaterArePartitionedToo) {
  const Graph graph = make_network();
  const auto model = load_on("fake", graph).value();
  const std::vector<TensorSpec> later = {spec("data", {1, 3, 24, 24})};
  const auto program = model->program(later).value();
  EXPECT_EQ(count_steps(*program, "fake"), 2u);
  Context context, other;
  const auto reference = Model::load(graph, {.device = "cpu-reference", .input_sets = {later}}).value();
  EXPECT_TRUE(testing::alike(testing::run(*program, context), testing::run(**reference->program(later), other)));
  // A larger arena on the device has other addresses: programs that ran before are bound again.
  const auto first = model->program(kInputs).value();
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(testing::alike(testing::run(*first, context), expected(graph)));
    EXPECT_TRUE(testing::alike(testing::run(*program, context), testing::run(**reference->program(later), other)));
  }
}

}  // namespace
}  // namespace shoal::worker
