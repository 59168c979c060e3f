#include "shoal/engine.hpp"

#include <gtest/gtest.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <omp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"

#include "tests/support/checkpoint.hpp"
#include "tests/support/custom_operator.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal {
namespace {

Tensor tensor_of(const Shape& shape, std::vector<float> values) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() { test::write_checkpoint(directory_, "net", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 2]"); }
  const test::ScratchDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

TEST_F(EngineTest, RunsOnTheCallersThreadAndOnItsOwn) {
  Engine engine = Engine::load(directory_, {.contexts = 2}).value();
  const Tensors inputs{{"data", tensor_of(Shape{2, 2}, {1, 2, 3, 4})}};
  const auto outputs = engine.run(inputs).value();
  EXPECT_EQ(outputs.at(0).name, "times3_output");
  EXPECT_EQ(outputs[0].tensor.values<float>()[3], 12);
  std::vector<Prediction> predictions;
  for (int i = 0; i < 50; ++i) predictions.push_back(engine.submit("net", inputs));
  for (const Prediction& prediction : predictions) EXPECT_EQ(prediction.get().value()[0].tensor.values<float>()[2], 9);
}

TEST_F(EngineTest, AnEngineThatWasMovedFromSaysSo) {
  Engine first = Engine::load(directory_).value();
  Engine second = std::move(first);
  EXPECT_EQ(first.run({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(first.submit("net", {}).get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(first.describe().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(first.warnings().empty());
  EXPECT_EQ(first.packed_bytes() + first.arena_bytes(), 0u);
  EXPECT_TRUE(second.describe("net").ok());
}

TEST_F(EngineTest, DescribesOutputsWithTheDimensionsThatFollowFromTheInputsOpen) {
  const ModelInfo info = Engine::load(directory_).value().describe().value();
  EXPECT_EQ(info.inputs.at(0), (TensorSpec{"data", DType::kFloat32, Shape{-1, 2}}));
  EXPECT_EQ(info.outputs.at(0), (TensorSpec{"times3_output", DType::kFloat32, Shape{-1, 2}}));
}

// Four layers that halve: one pixel more changes nothing behind them.
TEST_F(EngineTest, DescribesDimensionsOpenThatFewerPixelsDoNotChange) {
  std::vector<test::ChainNode> chain;
  for (int i = 0; i < 4; ++i) {
    chain.push_back(
        {"Pooling", "pool" + std::to_string(i), {{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}}, {}});
  }
  const auto described = [&](const std::string& shape, const std::string& line) {
    test::write_checkpoint(directory_, "net", chain, shape);
    std::ofstream(directory_ / "model.toml", std::ios::app) << line;
    return Engine::load(directory_).value().describe().value().outputs.at(0).shape;
  };
  const std::string compiled = "shapes = [{data = [1, 3, 64, 32]}]\n";
  EXPECT_EQ(described("[-1, 3, -1, -1]", compiled), (Shape{-1, 3, -1, -1}));
  EXPECT_EQ(described("[-1, 3, -1, 32]", compiled), (Shape{-1, 3, -1, 2}));
  EXPECT_EQ(described(R"([1, 3, "32..64", "32..47"])", compiled), (Shape{1, 3, -1, 2})) << "within the ranges";
}

// Twice the size is more than the layer behind takes; one more is not.
TEST_F(EngineTest, DescribesWhatStaysThatWayWhereLargerInputsAreRefused) {
  const std::map<std::string, std::string> halving{{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}};
  test::write_checkpoint(directory_, "net",
                         {{"Pooling", "pool", halving, {}}, {"broadcast_add", "sum", {}, {{"row", {1, 2, 3, 4}}}}},
                         "[-1, 3, 8, -1]");
  std::ofstream(directory_ / "model.toml", std::ios::app) << "shapes = [{data = [1, 3, 8, 8]}]\n";
  EXPECT_EQ(Engine::load(directory_).value().describe().value().outputs.at(0).shape, (Shape{-1, 3, 4, 4}));
}

TEST_F(EngineTest, MistakesAreNamed) {
  Engine engine = Engine::load(directory_).value();
  const Tensor good = tensor_of(Shape{1, 2}, {1, 2});
  EXPECT_EQ(engine.run({{"dato", good}}).status().message(), "model 'net' has no input 'dato'");
  EXPECT_EQ(engine.run({}).status().message(), "model 'net': input 'data' is missing");
  EXPECT_EQ(engine.run({{"data", good}, {"data", good}}).status().message(), "model 'net': input 'data' is given twice");
  EXPECT_EQ(engine.run({{"data", Tensor::create(DType::kInt32, Shape{1, 2}).value()}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.submit("other", {{"data", good}}).get().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Engine::load("/nowhere").status().code(), StatusCode::kNotFound);
}

TEST_F(EngineTest, ACheckpointThatLacksAParameterIsNotLoaded) {
  const std::string graph = R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
      {"op": "null", "name": "fc_weight", "attrs": {"__shape__": "(2, 2)"}, "inputs": []},
      {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "2", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]}],
    "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json";
  std::ofstream(directory_ / "net-symbol.json") << graph;
  const auto refused = Engine::load(directory_);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"net-0000.params holds no 'fc_weight'", "FullyConnected 'fc' reads as its weight"})
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().to_string();
  std::ofstream(directory_ / "model.toml", std::ios::app) << "shapes = [{data = [1, 2], fc_weight = [2, 2]}]\n";
  EXPECT_TRUE(Engine::load(directory_).ok()) << "a model whose weights come with the request";
}

// SageMaker's files name the label, as training binds it.
TEST_F(EngineTest, SettingsOfALabelAreIgnored) {
  const std::string graph = R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
      {"op": "null", "name": "softmax_label", "inputs": []},
      {"op": "SoftmaxOutput", "name": "softmax", "inputs": [[0, 0, 0], [1, 0, 0]]}], "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json";
  std::ofstream(directory_ / "net-symbol.json") << graph;
  std::ofstream(directory_ / "model.toml")
      << "inputs = [{name = \"data\", shape = [-1, 2]}, {name = \"softmax_label\", shape = [-1]}]\n"
         "shapes = [{data = [4, 2], softmax_label = [4]}]\n";
  auto engine = Engine::load(directory_);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_EQ(engine->describe().value().inputs, (std::vector<TensorSpec>{{"data", DType::kFloat32, {-1, 2}}}));
  ASSERT_EQ(engine->warnings().size(), 1u);
  EXPECT_NE(engine->warnings()[0].find("'softmax_label' is a label"), std::string::npos) << engine->warnings()[0];
}

Status throw_it(const worker::Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (src[0].values<float>()[0] < 0) throw std::runtime_error("a negative number");
  std::ranges::copy(src[0].bytes(), dst[0].bytes().begin());
  return {};
}

// No exception may leave a thread of the engine, and none may cost it a context.
TEST_F(EngineTest, AnExceptionInARunIsThatRunsError) {
  test::register_custom_mxnet_operator({.name = "_throw_it"}, throw_it);
  test::write_checkpoint(directory_, "throwing", {{"_throw_it", "it", {}, {}}}, "[-1, 2]");
  Engine engine = Engine::load(directory_ / "throwing").value();
  const Tensors good{{"data", tensor_of(Shape{1, 2}, {1, 2})}}, bad{{"data", tensor_of(Shape{1, 2}, {-1, 2})}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.run(bad).status(), Status(StatusCode::kInternal, "model 'throwing': a negative number"));
    const Prediction submitted = engine.submit("", bad), misnamed = engine.submit("", {{"dato", good[0].tensor}});
    EXPECT_EQ(submitted.get().status().code(), StatusCode::kInternal);
    EXPECT_EQ(submitted.outcome().ran, Ran::kMaybe) << "a worker says so, too";
    EXPECT_EQ(misnamed.get().status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(misnamed.outcome().ran, Ran::kNo);
    EXPECT_EQ(engine.run(good).value()[0].tensor.values<float>()[1], 2);
  }
}

// Nor may one leave the loading: who loads a model goes on without it.
TEST_F(EngineTest, AnExceptionInLoadingIsItsError) {
  worker::register_mxnet_operator(
      {.name = "_no_memory", .min_inputs = 1, .max_inputs = 1, .lower = [](auto&) -> std::vector<worker::ValueId> {
         throw std::bad_alloc();
       }});
  test::write_checkpoint(directory_, "large", {{"_no_memory", "it", {}, {}}}, "[-1, 2]");
  EXPECT_EQ(
      Engine::load(directory_ / "large").status(),
      Status(StatusCode::kFailedPrecondition, "model 'large': out of memory: loading it needs more than this machine has left"));
}

Status find_no_memory(const worker::Node&, std::span<const TensorView>, std::span<TensorView>) { throw std::bad_alloc(); }

// As a worker answers it.
TEST_F(EngineTest, ARunWithoutMemoryIsAnsweredAsInThePool) {
  worker::register_operator({.name = "_find_no_memory", .infer = [](const worker::Node&, auto src, auto dst) {
                               dst[0]->dtype = src[0]->dtype;
                               dst[0]->shape = src[0]->shape;
                               return Status();
                             }});
  worker::register_reference_kernel("_find_no_memory", find_no_memory);
  worker::register_mxnet_operator({.name = "_find_no_memory", .min_inputs = 1, .max_inputs = 1, .lower = [](auto& lowering) {
                                     return lowering.add(lowering.node.op, worker::CustomAttributes{});
                                   }});
  test::write_checkpoint(directory_, "hungry", {{"_find_no_memory", "it", {}, {}}}, "[-1, 2]");
  Engine engine = Engine::load(directory_ / "hungry", {.tuning_ms = 0}).value();
  const Tensors inputs{{"data", tensor_of(Shape{1, 2}, {1, 2})}};
  const Status as_in_a_worker(StatusCode::kFailedPrecondition,
                              "model 'hungry': out of memory: the request needs more than this machine has left");
  EXPECT_EQ(engine.run(inputs).status(), as_in_a_worker);
  const Prediction submitted = engine.submit("", inputs);
  EXPECT_EQ(submitted.get().status(), as_in_a_worker);
  EXPECT_EQ(submitted.outcome().ran, Ran::kMaybe);
  const std::int64_t many = std::int64_t{1} << 43;  // more bytes than there are addresses for
  EXPECT_EQ(Tensor::create(DType::kFloat32, Shape{many}).status().code(), StatusCode::kFailedPrecondition);
}

/// The application's thread as no thread of ours is: three cores, rounding upwards. Restored at the end.
class UnusualThread {
 public:
  UnusualThread() {
    std::fegetenv(&floating_point_);
    ::omp_set_num_threads(kWidth);
    std::fesetround(FE_UPWARD);
    std::feclearexcept(FE_ALL_EXCEPT);
  }
  ~UnusualThread() {
    std::fesetenv(&floating_point_);
    ::omp_set_num_threads(width_);
  }
  static void expect_unchanged(const char* when) {
    EXPECT_EQ(::omp_get_max_threads(), kWidth) << when;
    EXPECT_EQ(std::fegetround(), FE_UPWARD) << when;
    EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0) << when;
  }

 private:
  static constexpr int kWidth = 3;
  std::fenv_t floating_point_{};
  const int width_ = ::omp_get_max_threads();
};

TEST_F(EngineTest, LeavesItsCallersThreadAsItWas) {
  const Tensors inputs{{"data", tensor_of(Shape{1, 2}, {0.1F, 1e-40F})}};
  Tensors usual, unusual;
  for (const char* device : {"cpu", "cpu-reference"}) {
    const EngineOptions options{.device = device, .threads = 1, .tuning_ms = 0};
    usual = Engine::load(directory_, options).value().run(inputs).value();
    {
      const UnusualThread thread;
      Engine engine = Engine::load(directory_, options).value();
      thread.expect_unchanged("after load()");
      unusual = engine.run(inputs).value();
      thread.expect_unchanged("after run()");
      (void)engine.run({});
      thread.expect_unchanged("after a run() that failed");
      EXPECT_FALSE(Engine::load("/nowhere").ok());
      thread.expect_unchanged("after a load() that failed");
    }
    EXPECT_EQ(std::memcmp(usual[0].tensor.view().data, unusual[0].tensor.view().data, usual[0].tensor.size_bytes()), 0)
        << device << ": the answer depends on how the caller's thread rounds";
  }
}

constexpr int kTeam = 2;

/// Calls `visit` on each of the OpenMP threads that the calling thread's parallel regions have.
void on_team(const std::function<void()>& visit) {
#pragma omp parallel num_threads(kTeam)
  visit();
}

/// How this thread computes: rounding, and where the processor can be asked, traps and what becomes of denormal numbers.
unsigned control_word() {
#ifdef __SSE2__
  return _mm_getcsr() & ~0x3FU;  // without the exceptions that were seen
#else
  return static_cast<unsigned>(std::fegetround());
#endif
}

/// Sets both; denormal numbers become 0.
void compute_unusually(int rounding) {
  std::fesetround(rounding);
#ifdef __SSE2__
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

/// control_word() of each thread of the team.
std::vector<unsigned> states_of_team() {
  std::vector<unsigned> states(kTeam);
  on_team([&] { states[static_cast<std::size_t>(::omp_get_thread_num())] = control_word(); });
  return states;
}

// The application's OpenMP threads run the model, too: under the engine's settings, and then they get their own back.
TEST_F(EngineTest, LeavesItsCallersOpenMpThreadsAsTheyWere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see the barriers of libgomp";
#endif
  Tensor many = Tensor::create(DType::kFloat32, Shape{512, 1024}).value();
  const auto values = many.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F + 1e-3F * static_cast<float>(i % 997);
  test::write_checkpoint(directory_ / "wide", "wide", {{"_mul_scalar", "times", {{"scalar", "0.1"}}, {}}}, "[-1, 1024]");
  const Tensors inputs{{"data", many}};
  const EngineOptions options{
      .device = "cpu", .threads = kTeam, .tuning_ms = 0, .shapes = {{{"data", many.dtype(), many.shape()}}}};
  const auto run = [&] { return Engine::load(directory_ / "wide", options).value().run(inputs).value(); };
  const Tensors usual = run();
  const auto expect_usual = [&](const Tensors& outputs, const char* when) {
    EXPECT_EQ(std::memcmp(usual[0].tensor.view().data, outputs[0].tensor.view().data, usual[0].tensor.size_bytes()), 0)
        << when << ": the answer depends on how the caller's OpenMP threads round";
  };
  // Each in a thread of its own, which has a team of its own.
  std::thread([&] {
    compute_unusually(FE_UPWARD);
    const std::vector<unsigned> before(kTeam, control_word());
    expect_usual(run(), "a team that the engine's run makes");
    EXPECT_EQ(states_of_team(), before);
  }).join();
  std::thread([&] {
    on_team([] { compute_unusually(::omp_get_thread_num() == 0 ? FE_UPWARD : FE_DOWNWARD); });
    const std::vector<unsigned> before = states_of_team();
    EXPECT_NE(before[0], before[1]);
    for (int i = 0; i < 2; ++i) {
      expect_usual(run(), "a team that the application has made");
      EXPECT_EQ(states_of_team(), before);
    }
  }).join();
}

/// While it lives, records of algorithms are kept in this directory.
class CacheDirectory {
 public:
  explicit CacheDirectory(const std::filesystem::path& directory) {
    EXPECT_EQ(::setenv("SHOAL_CACHE_DIR", directory.c_str(), 1), 0);
  }
  ~CacheDirectory() { before_ ? ::setenv("SHOAL_CACHE_DIR", before_->c_str(), 1) : ::unsetenv("SHOAL_CACHE_DIR"); }
  CacheDirectory(const CacheDirectory&) = delete;
  CacheDirectory& operator=(const CacheDirectory&) = delete;

 private:
  const char* const given_ = std::getenv("SHOAL_CACHE_DIR");
  const std::optional<std::string> before_ = given_ ? std::optional<std::string>(given_) : std::nullopt;
};

/// A model whose algorithms can be measured.
std::string shipped_model() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  EXPECT_TRUE(source) << "ctest sets SHOAL_SOURCE_DIR";
  return std::string(source ? source : "") + "/tools/shapes/model";
}

TEST_F(EngineTest, CallsItsCallerBackInTheCallersSettings) {
  const CacheDirectory cache(directory_);
  const UnusualThread thread;
  int calls = 0;
  const auto engine = Engine::load(shipped_model(), {.threads = 1, .tuning_ms = 300, .on_measuring = [&](auto, auto) {
                                                       if (calls++ == 0) UnusualThread::expect_unchanged("in on_measuring()");
                                                       std::feraiseexcept(FE_INEXACT);  // its own affair
                                                     }});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_GT(calls, 0);
  std::feclearexcept(FE_ALL_EXCEPT);
}

TEST_F(EngineTest, AnExceptionOfTheCallbackEndsTheLoadAndIsItsError) {
  const CacheDirectory cache(directory_);
  const auto engine =
      Engine::load(shipped_model(),
                   {.threads = 1, .tuning_ms = 20'000, .on_measuring = [](auto, auto) { throw std::runtime_error("enough"); }});
  EXPECT_EQ(engine.status().code(), StatusCode::kInternal);
  EXPECT_NE(engine.status().message().find("enough"), std::string::npos) << engine.status().message();
}

// They are for the application's own threads, which may block them to take them one by one.
TEST_F(EngineTest, ItsThreadsTakeNoSignalsOfTheApplications) {
  Engine engine = Engine::load("builtin:identity").value();
  const Prediction first = engine.submit("", {{"data", tensor_of(Shape{1}, {1})}});
  ASSERT_TRUE(first.get().ok());
  const auto ignored = ::signal(SIGUSR2, [](int) {});
  sigset_t wanted, before;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before);
  ::kill(::getpid(), SIGUSR2);
  const timespec limit{5, 0};
  EXPECT_EQ(::sigtimedwait(&wanted, nullptr, &limit), SIGUSR2) << "a thread of the engine's took it";
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGUSR2, ignored);
}

/// Runs of the operator `_hold` say that they have begun, and wait.
struct Hold {
  std::latch begun{1}, go_on{1};
};
Hold* hold = nullptr;

Status hold_it(const worker::Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (src[0].values<float>()[0] == 0) {
    hold->begun.count_down();
    hold->go_on.wait();
  }
  std::ranges::copy(src[0].bytes(), dst[0].bytes().begin());
  return {};
}

/// An engine whose one context is busy with its first request, `held`, until `hold` lets it go on.
class BusyEngineTest : public EngineTest {
 protected:
  BusyEngineTest() {
    test::register_custom_mxnet_operator({.name = "_hold"}, hold_it);
    hold = &hold_;
    test::write_checkpoint(directory_ / "holding", "holding", {{"_hold", "it", {}, {}}}, "[-1]");
  }
  Engine busy_engine(EngineOptions options = {}) {
    options.tuning_ms = 0;  // a run on blank inputs never ends
    Engine engine = Engine::load(directory_ / "holding", std::move(options)).value();
    held_ = engine.submit("", {{"data", tensor_of(Shape{1}, {0})}});
    hold_.begun.wait();
    return engine;
  }
  const Tensors one_{{"data", tensor_of(Shape{1}, {1})}};
  Hold hold_;
  Prediction held_;
};

TEST_F(BusyEngineTest, RefusesAtOnceWhenItsQueueIsFull) {
  Engine engine = busy_engine();
  std::vector<Prediction> waiting;
  for (int i = 0; i < 1024; ++i) waiting.push_back(engine.submit("", one_));
  const Prediction one_more = engine.submit("", one_);
  const bool is_refused = one_more.ready();
  EXPECT_FALSE(waiting.back().ready());
  EXPECT_TRUE(is_refused) << "1025 requests wait";
  if (is_refused) {
    EXPECT_EQ(one_more.get().status().code(), StatusCode::kOverloaded);
    EXPECT_NE(one_more.get().status().message().find("EngineOptions::queue_limit"), std::string::npos);
    EXPECT_EQ(one_more.outcome().ran, Ran::kNo);
  }
  waiting[3].cancel();
  const Prediction in_its_place = engine.submit("", one_);
  EXPECT_FALSE(in_its_place.ready());
  hold_.go_on.count_down();
  EXPECT_TRUE(in_its_place.get().ok());
}

TEST_F(BusyEngineTest, ItsQueueIsAsLongAsItsOptionsSay) {
  Engine engine = busy_engine({.queue_limit = 1});
  const Prediction waiting = engine.submit("", one_), refused = engine.submit("", one_);
  EXPECT_FALSE(waiting.ready());
  ASSERT_TRUE(refused.ready());
  EXPECT_EQ(refused.get().status().code(), StatusCode::kOverloaded);
  hold_.go_on.count_down();
  EXPECT_TRUE(waiting.get().ok());
}

// As a worker says it.
TEST_F(BusyEngineTest, ARequestThatIsCancelledWhileItRunsMayHaveRun) {
  Engine engine = busy_engine();
  const Prediction waiting = engine.submit("", one_);
  held_.cancel();
  waiting.cancel();
  hold_.go_on.count_down();
  EXPECT_EQ(held_.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(held_.outcome().ran, Ran::kMaybe);
  EXPECT_EQ(waiting.outcome().ran, Ran::kNo);
}

TEST_F(EngineTest, WaitingRequestsAreCancelledWhenItIsDestroyed) {
  std::vector<Prediction> predictions;
  {
    Engine engine = Engine::load("builtin:identity").value();
    for (int i = 0; i < 1000; ++i) predictions.push_back(engine.submit("", {{"data", tensor_of(Shape{2}, {1, 2})}}));
  }
  for (const Prediction& prediction : predictions) {
    const auto& outputs = prediction.get();
    EXPECT_TRUE(outputs.ok() || outputs.status().code() == StatusCode::kCancelled);
  }
}

TEST_F(EngineTest, TheHashChangesWithTheFiles) {
  const worker::ModelSource source{.name = "net",
                                   .path = directory_,
                                   .symbol_file = directory_ / "net-symbol.json",
                                   .params_file = directory_ / "net-0000.params"};
  const std::string before = worker::hash_files(source).value();
  EXPECT_EQ(worker::hash_files(source).value(), before);
  std::ofstream(source.params_file, std::ios::app) << 'x';
  EXPECT_NE(worker::hash_files(source).value(), before);
}

// A zygote is compared with the one before it, which may be of another build.
TEST_F(EngineTest, TheHashOfFilesStaysTheSame) {
  const worker::ModelSource source{.name = "net", .symbol_file = directory_ / "a", .params_file = directory_ / "b"};
  std::ofstream(source.symbol_file) << "a short one";
  std::ofstream(source.params_file) << std::string(700'001, 'x');
  EXPECT_EQ(worker::hash_files(source).value(), "9d4e36db6aa3f018");
}

// Whoever opens a pipe waits for its other end; a device never ends.
TEST_F(EngineTest, OnlyFilesAreHashed) {
  worker::ModelSource source{.name = "net", .symbol_file = directory_ / "pipe", .params_file = directory_ / "net-0000.params"};
  ASSERT_EQ(::mkfifo(source.symbol_file.c_str(), 0600), 0);
  EXPECT_EQ(worker::hash_files(source).status().code(), StatusCode::kInvalidArgument);
  source.symbol_file = "/dev/zero";
  EXPECT_EQ(worker::hash_files(source).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
