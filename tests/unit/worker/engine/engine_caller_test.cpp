// What an engine leaves to the application: its threads and how they compute, its signals, its callback.
#include <gtest/gtest.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/engine.hpp"
#include "tests/unit/worker/engine/engine_fixture.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"

namespace shoal {
namespace {

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
    if (before[0] == before[1]) GTEST_SKIP() << "this OpenMP gives a team the settings of its caller";  // clang's does
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
  const auto engine = Engine::load(shipped_model(), {.threads = 1, .tuning_ms = 300}, [&](auto, auto) {
    if (calls++ == 0) UnusualThread::expect_unchanged("in on_measuring()");
    std::feraiseexcept(FE_INEXACT);  // its own affair
  });
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_GT(calls, 0);
  std::feclearexcept(FE_ALL_EXCEPT);
}

const OnMeasuring kThrowing = [](auto, auto) { throw std::runtime_error("enough"); };

TEST_F(EngineTest, AnExceptionOfTheCallbackEndsTheLoadAndIsItsError) {
  const CacheDirectory cache(directory_);
  const auto engine = Engine::load(shipped_model(), {.threads = 1, .tuning_ms = 20'000}, kThrowing);
  EXPECT_EQ(engine.status().code(), StatusCode::kInternal);
  EXPECT_NE(engine.status().message().find("enough"), std::string::npos) << engine.status().message();
}

std::atomic<int> forks = 0;

// Another thread may hold a lock at that moment, which the child would wait for.
TEST_F(EngineTest, AProcessWithThreadsIsNotForkedToMeasure) {
  ASSERT_EQ(::pthread_atfork([] { ++forks; }, nullptr, nullptr), 0);
  const CacheDirectory cache(directory_);
  std::promise<void> end;
  const std::jthread other([ended = end.get_future()] { ended.wait(); });
  int calls = 0;
  EngineOptions options{.threads = 1, .tuning_ms = 300};
  for (const bool is_measured : {false, true}) {
    const auto engine = Engine::load(shipped_model(), options, [&](auto, auto) { ++calls; });
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    EXPECT_EQ(engine->warnings(), std::vector<std::string>());
    EXPECT_EQ(std::exchange(calls, 0) == 0, is_measured);  // the other process has left its record here
  }
  options.threads = 2;  // has a record of its own
  EXPECT_EQ(Engine::load(shipped_model(), options, kThrowing).status().code(), StatusCode::kInternal);
  int status = 0;
  EXPECT_TRUE(::waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD) << "a child is left";
  EXPECT_EQ(forks, 0);
  end.set_value();
}

TEST_F(EngineTest, AnotherProcessMeasuresNoLongerThanALoadMayTake) {
  const CacheDirectory cache(directory_ / "cache");
  const std::filesystem::path model = directory_ / "shipped";
  std::filesystem::copy(shipped_model(), model);
  scratch_.write("shipped/model.toml", "inputs = [{name = \"data\", shape = [-1, 3, 64, 64]}]\nload_timeout_s = 1\n");
  std::promise<void> end;
  const std::jthread other([ended = end.get_future()] { ended.wait(); });
  std::chrono::milliseconds waited{0};
  const auto stop_the_other = [&](std::chrono::milliseconds spent, auto) {
    waited = spent;
    std::ifstream children("/proc/thread-self/children");
    for (pid_t child = 0; children >> child;) ::kill(child, SIGSTOP);
  };
  const auto engine = Engine::load(model, {.threads = 1, .tuning_ms = 300}, stop_the_other);
  end.set_value();
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_LT(waited, std::chrono::seconds(10)) << "30 s and three times tuning_ms are more";
  ASSERT_EQ(engine->warnings().size(), 1u);
  EXPECT_NE(engine->warnings()[0].find("took too long"), std::string::npos) << engine->warnings()[0];
}

// The other process is started in the working directory of this one.
TEST_F(EngineTest, AnotherProcessMeasuresWithAGoldenCaseOfARelativePath) {
  const CacheDirectory cache(directory_ / "cache");
  const std::filesystem::path model = directory_ / "shipped";
  std::filesystem::copy(shipped_model(), model);
  std::ofstream(model / "golden.npz", std::ios::binary)
      << test::archive({{"data.npy", test::npy("<f4", "False", "(1, 3, 64, 64)", test::floats(3 * 64 * 64))}}).bytes;
  scratch_.write("shipped/model.toml",
                 "inputs = [{name = \"data\", shape = [-1, 3, 64, 64]}]\nprecision = \"auto\"\ngolden = \"golden.npz\"\n");
  std::promise<void> end;
  const std::jthread other([ended = end.get_future()] { ended.wait(); });
  int calls = 0;
  const auto engine =
      Engine::load(std::filesystem::relative(model), {.threads = 1, .tuning_ms = 300}, [&](auto, auto) { ++calls; });
  end.set_value();
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_EQ(engine->warnings(), std::vector<std::string>());
  EXPECT_GT(calls, 0);
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

}  // namespace
}  // namespace shoal
