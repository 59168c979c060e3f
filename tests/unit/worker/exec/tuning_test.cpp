#include "worker/exec/tuning.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "shm/base/unique_fd.hpp"
#include "shm/tensor/floats.hpp"
#include "tests/support/custom_operator.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using namespace std::chrono_literals;
using testing::spec;
using Source = TuningInfo::Source;

const std::vector<TensorSpec> kTunedInputs = {spec("data", {1, 16, 28, 28})};

/// 3x3 convolutions that Winograd takes, one that changes the size, a residual addition, a classifier.
Graph tuned_network() {
  testing::GraphBuilder b;
  const ValueId first = b.activation(b.conv(b.input("data"), 16, 64, 3));
  const ValueId sum = b.activation(b.add(b.conv(first, 64, 64, 3), first));
  b.output(b.fully_connected(b.global_average(b.activation(b.conv(sum, 64, 128, 3, 2))), 128, 10));
  return b.graph();
}

class Tuning : public ::testing::Test {
 protected:
  std::unique_ptr<Model> load(Precision precision = Precision::kF32Fast, UniqueFd packed = {}, int threads = 1) {
    return Model::load(tuned_network(),
                       {.threads = threads,
                        .input_sets = {kTunedInputs},
                        .precision = precision,
                        .tuning_budget = 2000ms,
                        .cache_directory = directory_},
                       std::move(packed))
        .value();
  }
  std::vector<Tensor> answer_of(Model& model) {
    model.enter_thread();
    Context context;
    return testing::run(**model.program(kTunedInputs), context);
  }
  std::filesystem::path record_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "tuning")) {
      if (entry.path().extension() == ".tuning") return entry.path();
    }
    return {};
  }
  static std::string content_of(const std::filesystem::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const test::ScratchDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

TEST_F(Tuning, WhoWaitsForAMeasurementHearsHowFarItIs) {
  int calls = 0;
  const ModelOptions options{.input_sets = {kTunedInputs},
                             .precision = Precision::kF32Fast,
                             .tuning_budget = 2000ms,
                             .tuning_progress = [&](auto spent, auto budget) { calls += spent >= 0ms && budget == 2000ms; },
                             .cache_directory = directory_};
  const auto load = [&] { return Model::load(tuned_network(), options).value()->tuning().source; };
  EXPECT_EQ(load(), TuningInfo::Source::kMeasured);
  EXPECT_GT(calls, 0);
  calls = 0;
  EXPECT_EQ(load(), TuningInfo::Source::kRecord);
  EXPECT_EQ(calls, 0);
}

TEST_F(Tuning, TheLoadedModelDropsWhatHearsOfItsProgress) {
  auto heard = std::make_shared<int>(0);
  const auto model = Model::load(tuned_network(), {.input_sets = {kTunedInputs}, .tuning_progress = [heard](auto, auto) {}});
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(heard.use_count(), 1);
}

// Whoever hears may throw; the process that measures is not left behind.
TEST_F(Tuning, AnExceptionOfWhoWaitsEndsTheMeasurement) {
  const ModelOptions options{.input_sets = {kTunedInputs},
                             .tuning_budget = 20'000ms,
                             .tuning_progress = [](auto, auto) { throw std::runtime_error("enough"); },
                             .cache_directory = directory_};
  EXPECT_THROW((void)Model::load(tuned_network(), options), std::runtime_error);
  int status = 0;
  const pid_t left = ::waitpid(-1, &status, WNOHANG);
  EXPECT_TRUE(left == -1 && errno == ECHILD) << "a child is left: waitpid says " << left;
}

TEST_F(Tuning, TheSecondLoadMeasuresNothingAndAnswersTheSame) {
  const auto first = load(), second = load();
  EXPECT_EQ(first->tuning().source, Source::kMeasured) << first->tuning().problem;
  EXPECT_EQ(second->tuning().source, Source::kRecord) << second->tuning().problem;
  EXPECT_TRUE(testing::same_bits(answer_of(*first), answer_of(*second)));
}

TEST_F(Tuning, IsDoneForEachPrecisionAndWidth) {
  (void)load(Precision::kF32);
  EXPECT_EQ(load(Precision::kF32Fast)->tuning().source, Source::kMeasured);
  EXPECT_EQ(load(Precision::kF32, {}, 2)->tuning().source, Source::kMeasured);
  EXPECT_EQ(load(Precision::kF32)->tuning().source, Source::kRecord);
}

TEST_F(Tuning, ADamagedRecordIsIgnoredAndWrittenAnew) {
  (void)load();
  const std::filesystem::path file = record_file();
  const std::string whole = content_of(file);
  ASSERT_FALSE(whole.empty());
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string("x") + whole,
                                     whole.substr(0, whole.size() - 2), whole + whole, std::string()}) {
    std::ofstream(file) << damaged;
    const auto model = load();
    EXPECT_EQ(model->tuning().source, Source::kMeasured);
    EXPECT_NE(model->tuning().problem.find(file.string()), std::string::npos) << model->tuning().problem;
    EXPECT_EQ(load()->tuning().source, Source::kRecord);
  }
}

TEST_F(Tuning, ARecordThatOthersMayWriteIsNone) {
  (void)load();
  ASSERT_EQ(::chmod(record_file().c_str(), 0666), 0);
  EXPECT_EQ(load()->tuning().source, Source::kMeasured);
  EXPECT_EQ(load()->tuning().source, Source::kRecord);
}

TEST_F(Tuning, PackedWeightsKeepTheChoicesTheyWerePackedFor) {
  const auto first = load();
  std::filesystem::remove_all(directory_ / "tuning");
  const auto second = load(Precision::kF32Fast, duplicate_fd(first->packed_fd()).value());
  EXPECT_EQ(second->tuning().source, Source::kPacked);
  EXPECT_TRUE(testing::same_bits(answer_of(*first), answer_of(*second)));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tuning"));
}

TEST_F(Tuning, WithoutABudgetNothingIsMeasuredOrWritten) {
  const auto model = Model::load(tuned_network(), {.input_sets = {kTunedInputs}, .cache_directory = directory_}).value();
  EXPECT_EQ(model->tuning().source, Source::kOff);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tuning"));
}

TEST_F(Tuning, NothingIsMeasuredWhereNoRecordCanBeWritten) {
  std::ofstream(directory_ / "tuning") << "no directory";
  const auto model = load();
  EXPECT_EQ(model->tuning().source, Source::kFailed);
  EXPECT_EQ(model->tuning().measured_ms, 0);
  EXPECT_NE(model->tuning().problem.find("tuning"), std::string::npos);
  EXPECT_EQ(answer_of(*model).size(), 1U);
}

TEST_F(Tuning, ThatFindsNothingToChooseIsNotRepeated) {
  testing::GraphBuilder b;
  b.output(b.activation(b.input("data")));
  const auto load_it = [&] {
    return Model::load(b.graph(), {.input_sets = {kTunedInputs}, .tuning_budget = 2000ms, .cache_directory = directory_}).value();
  };
  EXPECT_EQ(to_text(load_it()->tuning()).substr(0, 16), "measured default");
  EXPECT_EQ(to_text(load_it()->tuning()), "record default");
}

// All inputs are zero then, and an operator may refuse them.
TEST_F(Tuning, MeasuresTheStepsBeforeOneThatRefusesZeros) {
  testing::GraphBuilder b;
  b.output(b.activation(b.conv(b.input("data"), 16, 64, 3)));
  b.output(b.node("Inverse", {b.input("matrix")}));
  const auto model = Model::load(b.graph(), {.input_sets = {{kTunedInputs[0], spec("matrix", {2, 2})}},
                                             .precision = Precision::kF32Fast,
                                             .tuning_budget = 2000ms,
                                             .cache_directory = directory_})
                         .value();
  EXPECT_EQ(model->tuning().source, Source::kMeasured) << model->tuning().problem;
  EXPECT_EQ(model->tuning().problem, "");
}

Status end_in_a_child(const Node&, std::span<const TensorView>, std::span<TensorView>) {
  static const pid_t parent = ::getpid();  // set by the load below, before it forks
  if (::getpid() != parent) ::raise(SIGKILL);
  return {};
}

TEST_F(Tuning, ThatKillsItsChildIsToldOnceAndNotRepeated) {
  ASSERT_TRUE(end_in_a_child({}, {}, {}).ok());
  test::register_custom_operator({.name = "_end_in_a_child", .oracle = end_in_a_child});
  testing::GraphBuilder b;
  b.output(b.node("_end_in_a_child", {b.conv(b.input("data"), 16, 64, 3)}, CustomAttributes{}));
  const auto load_it = [&] {
    return Model::load(b.graph(), {.input_sets = {kTunedInputs}, .tuning_budget = 2000ms, .cache_directory = directory_}).value();
  };
  const TuningInfo first = load_it()->tuning();
  EXPECT_EQ(first.source, Source::kFailed);
  EXPECT_NE(first.problem.find("signal 9 (Killed)"), std::string::npos) << first.problem;
  EXPECT_NE(first.problem.find(record_file().string()), std::string::npos) << first.problem;
  EXPECT_EQ(to_text(load_it()->tuning()), "record default");
}

/// A node that is run in two parts, as for two images: its second algorithm is the faster one, but not in the last part.
class InTwoParts : public Backend {
 public:
  std::string identity() const override { return "in two parts"; }
  Claims claim(const Graph& graph) const override { return Claims::of_all(graph); }
  std::vector<Choices> variants() const override { return {{.layout = "one"}, {.layout = "one", .preference = 1}}; }
  Result<Plan> prepare(const Graph&, WeightStore&, const Choices& choices) const override {
    Plan plan;
    for (const int microseconds : choices.preference == 0 ? std::array{900, 100} : std::array{100, 300}) {
      plan.tunables.push_back({plan.steps.size(), "n0", choices.preference == 0 ? "first" : "second"});
      plan.steps.push_back(std::make_unique<Spin>(microseconds));
    }
    return plan;
  }

 private:
  struct Spin : Step, BoundStep {
    explicit Spin(int time_us) : Step("Spin", {}), microseconds(time_us) {}
    std::string implementation() const override { return "spin"; }
    std::unique_ptr<BoundStep> bind() const override { return std::make_unique<Spin>(microseconds); }
    void set_addresses(std::span<std::byte* const>) override {}
    Status run() override {  // processor time, as it is measured
      const auto now = [] { return std::clock() * (1'000'000 / CLOCKS_PER_SEC); };
      for (const auto end = now() + microseconds; now() < end;) {
      }
      return {};
    }
    int microseconds;
  };
};

TEST(Measuring, AddsUpThePartsOfANode) {
  const Choices chosen = measure_choices(Graph(), InTwoParts(), 2000ms).value();
  EXPECT_EQ(chosen.to_text(), Choices({.layout = "one", .algorithms = {{"n0", "second"}}}).to_text());
}

/// f32-fast takes no time, and adds 0.25 to the result, or refuses its inputs.
class FastAndWrong : public InTwoParts {
 public:
  explicit FastAndWrong(bool refuses = false) : refuses_(refuses) {}
  std::vector<Choices> variants() const override { return {{.precision = Precision::kF32}, {.precision = Precision::kF32Fast}}; }
  Result<Plan> prepare(const Graph& graph, WeightStore&, const Choices& choices) const override {
    Plan plan;
    plan.outputs.push_back(spec(graph.outputs[0].name, {1}));
    const BufferId result = plan.add_buffer(sizeof(float), Buffer::Home::kOutput, 0);
    const bool is_fast = choices.precision == Precision::kF32Fast;
    plan.tunables.push_back({0, "n0", is_fast ? "fast" : "exact"});
    plan.steps.push_back(std::make_unique<Give>(result, is_fast, refuses_));
    return plan;
  }

 private:
  struct Give : Step, BoundStep {
    Give(BufferId result, bool is_fast, bool refuses) : Step("Give", {result}), is_fast(is_fast), refuses(refuses) {}
    std::string implementation() const override { return "give"; }
    std::unique_ptr<BoundStep> bind() const override { return std::make_unique<Give>(operands()[0], is_fast, refuses); }
    void set_addresses(std::span<std::byte* const> operands) override { result = reinterpret_cast<float*>(operands[0]); }
    Status run() override {
      *result = is_fast ? 0.75F : 0.5F;
      for (const auto end = std::clock() + CLOCKS_PER_SEC / 500; !is_fast && std::clock() < end;) {
      }
      return is_fast && refuses ? Status(StatusCode::kInvalidArgument, "not these inputs") : Status();
    }
    bool is_fast, refuses;
    float* result = nullptr;
  };
  bool refuses_;
};

TEST(Measuring, TakesFastAlgorithmsOnlyWithinTheLimitOfTheError) {
  testing::GraphBuilder b;
  b.output(b.input("data"));
  const auto chosen = [&](double max_error, bool refuses = false) {
    return measure_choices(b.graph(), FastAndWrong(refuses), 2000ms, {}, {.max_error = max_error}).value().precision;
  };
  EXPECT_EQ(chosen(0.3), Precision::kF32Fast);
  EXPECT_EQ(chosen(0.2), Precision::kF32);
  EXPECT_EQ(chosen(0.3, true), Precision::kF32) << "what cannot be measured is above the limit";
}

TEST_F(Tuning, LeavesTheProcessWithTheThreadsItHad) {
  const auto count = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = count();
  (void)load(Precision::kF32Fast, {}, 2);
  EXPECT_EQ(count(), before);
}

TEST_F(Tuning, OtherShapesAreCompiledAgainstWeightsPackedForWinograd) {
  const auto model = load();
  model->enter_thread();
  for (const Shape& shape : {Shape{2, 16, 28, 28}, Shape{1, 16, 40, 31}}) {
    const std::vector<TensorSpec> inputs = {spec("data", shape)};
    Context context, reference_context;
    const auto program = model->program(inputs);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    const auto got = testing::run(**program, context);
    const auto want = testing::run(**testing::load(tuned_network(), inputs, "cpu-reference")->program(inputs), reference_context);
    EXPECT_LE(testing::relative_error(got[0], want[0]), 1e-5) << shape.to_string();
  }
}

/// Every variant of the device, taken for the whole network, is right, whichever is fastest today.
TEST(Variants, AllAnswerAlike) {
  constexpr double kWinogradBound = 1e-5;  // docs/performance.md
  const auto inputs = kTunedInputs;
  Graph graph = tuned_network();
  ASSERT_TRUE(infer(graph, inputs).ok());
  Context reference_context;
  const auto want = testing::run(**testing::load(tuned_network(), inputs, "cpu-reference")->program(inputs), reference_context);
  const auto backend = make_backends({.precision = Precision::kF32Fast}).value().front();
  ASSERT_GT(backend->variants().size(), 2U);
  for (const Choices& variant : backend->variants()) {
    const auto weights = std::make_shared<WeightStore>(WeightIdentity{});
    Plan plan = backend->prepare(graph, *weights, variant).value();
    std::string used;
    for (const Plan::Tunable& tunable : plan.tunables) used += tunable.implementation + " ";
    ASSERT_TRUE(weights->seal().ok());
    const PlannedProgram program(std::move(plan), weights);
    Context context;
    EXPECT_LE(testing::relative_error(testing::run(program, context)[0], want[0]), kWinogradBound)
        << variant.layout << ": " << used;
  }
}

class Record : public Tuning {};

TEST_F(Record, ComesBackAsItWasWritten) {
  const Choices choices{.layout = "blocked", .algorithms = {{"n1", "jit:avx512_core"}, {"n12", "x64:gemm:jit"}}};
  const TuningRecord record(directory_ / "a" / "tuning", "a machine; a model");
  EXPECT_EQ(record.read().status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(record.write(choices).ok());
  EXPECT_EQ(record.read().value().to_text(), choices.to_text());
}

TEST_F(Record, OfAnotherMachineIsNone) {
  const TuningRecord mine(directory_, "this machine"), other(directory_, "that machine");
  ASSERT_TRUE(other.write({.layout = "blocked"}).ok());
  EXPECT_EQ(mine.read().status().code(), StatusCode::kNotFound);
  std::filesystem::copy_file(other.file(), mine.file());
  EXPECT_EQ(mine.read().status().code(), StatusCode::kDataLoss);
}

TEST_F(Record, OfTheFirstWriterStays) {
  const TuningRecord one(directory_, "this machine"), two(directory_, "this machine");
  ASSERT_TRUE(one.write({.layout = "blocked"}).ok());
  EXPECT_EQ(two.write({.layout = "channels_last"}).value().layout, "blocked");
  EXPECT_EQ(two.read().value().layout, "blocked");
}

// A writer that died has left one, or somebody who wants the other file to be emptied, or the writer to wait.
TEST_F(Record, IsWrittenToAFileOfItsOwn) {
  const TuningRecord record(directory_, "this machine");
  const std::filesystem::path beside = record.file().string() + ".new", diary = directory_ / "diary";
  for (const std::string what : {"a hard link", "a link", "a pipe"}) {
    std::ofstream(diary) << "dear diary";
    if (what == "a hard link") std::filesystem::create_hard_link(diary, beside);
    if (what == "a link") std::filesystem::create_symlink(diary, beside);
    if (what == "a pipe") {
      ASSERT_EQ(::mkfifo(beside.c_str(), 0600), 0);
    }
    EXPECT_TRUE(record.prepare().ok()) << what;
    EXPECT_EQ(content_of(diary), "dear diary") << what;
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(beside))) << what;
  }
  EXPECT_TRUE(record.write({.layout = "blocked"}).ok());
}

TEST_F(Record, WaitsForALockOnlyUntilItsDeadline) {
  const TuningRecord record(directory_, "this machine");
  const UniqueFd other(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const Status late = record.prepare();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late.to_string();
  EXPECT_NE(late.message().find(directory_.string()), std::string::npos) << late.message();
}

TEST_F(Record, OfAWriterKilledInTheMiddleIsWholeOrNotThere) {
  Choices choices{.layout = "blocked"};
  for (int i = 0; i < 2000; ++i) choices.algorithms["n" + std::to_string(i)] = "jit_fp32_wino_2x3:avx512_core";
  const TuningRecord record(directory_, "this machine");
  for (int round = 0; round < 40; ++round) {
    const pid_t writer = ::fork();
    if (writer == 0) {
      while (true) {
        (void)record.write(choices);
        std::filesystem::remove(record.file());
      }
    }
    ::usleep(static_cast<useconds_t>(500 + 317 * round % 4000));
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    const auto found = record.read();
    ASSERT_TRUE(found.ok() || found.status().code() == StatusCode::kNotFound) << found.status().to_string();
    const auto standing = record.write(choices);  // nothing that the dead one left is in the way
    ASSERT_TRUE(standing.ok()) << standing.status().to_string();
    EXPECT_EQ(record.read().value().to_text(), choices.to_text());
  }
}

template <typename T>
Tensor tensor_of(DType dtype, const std::vector<T>& values) {
  Tensor tensor = Tensor::create(dtype, {static_cast<std::int64_t>(values.size())}).value();
  std::ranges::copy(values, reinterpret_cast<T*>(tensor.view().data));
  return tensor;
}

TEST(OutputError, CountsOutputsOfEveryType) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const auto of_doubles = [](const std::vector<double>& got, const std::vector<double>& want) {
    return output_error(tensor_of(DType::kFloat64, got), tensor_of(DType::kFloat64, want));
  };
  EXPECT_EQ(of_doubles({1, 2}, {1, 4}), 0.5);
  EXPECT_EQ(of_doubles({0.5}, {0.25}), 0.25) << "of max(1, |want|)";
  EXPECT_EQ(of_doubles({kInfinity, kNan}, {kInfinity, kNan}), 0);
  EXPECT_EQ(of_doubles({kInfinity}, {-kInfinity}), kInfinity);
  EXPECT_EQ(of_doubles({kNan}, {kInfinity}), kInfinity);
  EXPECT_EQ(of_doubles({1}, {1, 1}), kInfinity);
  EXPECT_EQ(output_error(tensor_of<Half>(DType::kFloat16, {Half(3)}), tensor_of<Half>(DType::kFloat16, {Half(4)})), 0.25);
  EXPECT_EQ(
      output_error(tensor_of<std::int64_t>(DType::kInt64, {7, 8, 9, 1}), tensor_of<std::int64_t>(DType::kInt64, {7, 9, 9, 1})),
      0.25);
  EXPECT_EQ(output_error(tensor_of<int>(DType::kInt32, {}), tensor_of<int>(DType::kInt32, {})), 0);
}

}  // namespace
}  // namespace shoal::worker
