// The pool from end to end, on the built-in identity model.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

bool is_same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.size_bytes() == b.size_bytes() &&
         std::memcmp(a.view().data, b.view().data, a.size_bytes()) == 0;
}

TEST(PoolIntegration, TheIdentityModelReturnsItsInput) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  for (const Shape& shape : {Shape{4}, Shape{}, Shape{0, 3}, Shape{1, 3, 224, 224}}) {
    const Tensor input = counting(shape);
    const auto outputs = pool.predict("echo", {{"data", input}});
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(outputs->size(), 1u);
    EXPECT_TRUE(is_same((*outputs)[0].tensor, input)) << shape.to_string();
  }
}

TEST(PoolIntegration, TensorsLargerThanTheArenasTravelAsFrames) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect({.arena_limit_bytes = 4096});
  const Tensor input = counting({500, 500});
  const auto outputs = pool.predict("echo", {{"data", input}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_TRUE(is_same((*outputs)[0].tensor, input));
}

TEST(PoolIntegration, APoolThatWasMovedFromSaysSo) {
  const DaemonFixture daemon;
  Pool first = daemon.connect();
  Pool second = std::move(first);
  EXPECT_TRUE(second.predict("echo", {{"data", counting({4})}}).ok());
  const Prediction prediction = first.submit("echo", {{"data", counting({4})}});  // NOLINT(bugprone-use-after-move)
  prediction.cancel();
  EXPECT_TRUE(prediction.ready() && prediction.wait_for(1h));
  const Status answers[] = {prediction.get().status(),
                            prediction.outcome().outputs.status(),
                            first.describe("echo").status(),
                            first.loan(DType::kFloat32, {4}).status(),
                            first.list().status(),
                            first.stats().status(),
                            first.crashes().status(),
                            first.trace().status(),
                            first.load("more", "builtin:identity").status(),
                            first.reload("echo").status(),
                            first.unload("echo").status(),
                            first.scale("echo", 2).status(),
                            first.drain("echo").status(),
                            first.stop()};
  for (const Status& answer : answers) EXPECT_EQ(answer.code(), StatusCode::kFailedPrecondition) << answer.to_string();
  first.poll_once();
  EXPECT_TRUE(second.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(PoolIntegration, InputsThatAreNoTensorsAreRefusedByName) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  const auto own = std::make_shared<int>();
  constexpr std::int64_t kTooMany = (std::int64_t{1} << 62) + 1;  // elements: the bytes of that many floats are 4, modulo 2^64
  for (const TensorView& view : {TensorView{DType::kFloat32, Shape{4}, nullptr}, TensorView{},
                                 TensorView{DType::kFloat32, Shape{kTooMany}, reinterpret_cast<std::byte*>(own.get())}}) {
    const Status status = pool.predict("echo", {{"data", Tensor(view, own)}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find("'data'"), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(pool.predict("", {{"data", counting({4})}}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.describe("").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pool.predict("echo", {{"", counting({4})}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(pool.load("", "builtin:identity").ok());
  EXPECT_FALSE(pool.load("more", "").ok());
  EXPECT_FALSE(pool.scale("echo", -1).ok());
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}, {.timeout = std::chrono::nanoseconds::max()}).ok());
}

TEST(PoolIntegration, ManyRequestsInFlightAreAllAnswered) {
  // One client may have three quarters of a queue that is more than half full.
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2,contexts=2,queue_limit=2000"}});
  Pool pool = daemon.connect();
  std::vector<Prediction> predictions;
  for (int i = 0; i < 1000; ++i) predictions.push_back(pool.submit("echo", {{"data", counting({8}, static_cast<float>(i))}}));
  for (int i = 0; i < 1000; ++i) {
    const auto& outputs = predictions[static_cast<std::size_t>(i)].get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    EXPECT_EQ((*outputs)[0].tensor.values<float>()[0], static_cast<float>(i));
  }
}

TEST(PoolIntegration, ARequestOfAModelThatWasServedWhenThePoolConnectedLeavesBeforeAnybodyWaits) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  stop_process(daemon.pid());  // so that no answer of the daemon makes the pool send the request
  Prediction prediction = pool.submit("echo", {{"data", counting({4})}});
  ::kill(daemon.pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return daemon.model("echo")["counts"]["ok"] == 1; }));
  EXPECT_TRUE(prediction.get().ok());
}

TEST(PoolIntegration, ARequestOfAModelThatWasLoadedLaterLeavesBeforeAnybodyWaits) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a zygote that loads beside another has ThreadSanitizer's thread, too, and must not fork";
#endif
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(daemon.connect().load("late", "builtin:identity").ok());
  std::vector<Prediction> predictions;  // that the model was loaded may be heard a moment later
  EXPECT_TRUE(eventually([&] {
    predictions.push_back(pool.submit("late", {{"data", counting({4})}}));
    return daemon.model("late")["counts"]["ok"] >= 1;
  }));
  for (const Prediction& prediction : predictions) EXPECT_TRUE(prediction.get().ok());
}

TEST(PoolIntegration, NoWorkerHasTheDaemonsCredentials) {
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "https_proxy"}) ::setenv(name, "user:hunter2@there", 1);
  const DaemonFixture daemon;
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "https_proxy"}) ::unsetenv(name);
  const auto environment_of = [](pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_TRUE(contains(environment_of(daemon.pid()), "hunter2"));
  for (const pid_t pid : daemon.all_processes()) {
    if (pid == daemon.pid()) continue;
    const std::string environment = environment_of(pid);
    EXPECT_TRUE(contains(environment, "SHOAL_DIR=")) << pid;
    EXPECT_FALSE(contains(environment, "hunter2")) << pid;
  }
}

TEST(PoolIntegration, RequestsSubmittedWhileTheModelLoadsWaitForIt) {
  const DaemonFixture daemon({.wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return Pool::connect({.directory = daemon.directory()}).ok(); }));
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(PoolIntegration, TheSupervisorReadsAsManyBytesForALargeInputAsForASmallOne) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  const auto bytes_read = [&](const Shape& shape) {
    constexpr int kRequests = 20;
    (void)pool.predict("echo", {{"data", counting(shape)}});  // the client learns the output's size
    const auto read = [&] {
      const auto supervisor = daemon.stats().at("supervisor");
      return supervisor.at("bytes_read").get<std::int64_t>();
    };
    const std::int64_t before = read();
    for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(pool.predict("echo", {{"data", counting(shape)}}).ok());
    return read() - before;
  };
  EXPECT_EQ(bytes_read({1, 256}), bytes_read({1, 150'000}));
}

TEST(PoolIntegration, AFullQueueSaysOverloadedAtOnceAndWhenToComeBack) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,queue_limit=3"}});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("echo").ok());
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);
  std::vector<Prediction> predictions;
  for (int i = 0; i < 20; ++i) predictions.push_back(pool.submit("echo", {{"data", counting({4})}}));
  // The lane takes two requests and the queue three. The others are refused while the worker is stopped.
  EXPECT_TRUE(predictions[19].wait_for(2s));
  ::kill(worker, SIGCONT);
  int ok = 0, overloaded = 0;
  for (const Prediction& prediction : predictions) {
    const Outcome& outcome = prediction.outcome();
    ok += outcome.outputs.ok();
    if (outcome.outputs.status().code() != StatusCode::kOverloaded) continue;
    ++overloaded;
    EXPECT_GT(outcome.retry_after.count(), 0);
    EXPECT_EQ(outcome.ran, Ran::kNo);
  }
  EXPECT_EQ(ok, 5);
  EXPECT_EQ(overloaded, 15);
}

TEST(PoolIntegration, ADeadlineIsKeptWhileTheWorkerStandsStillAndItsSlotsComeBack) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("echo").ok());
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);
  const auto begin = std::chrono::steady_clock::now();
  const auto outputs = pool.predict("echo", {{"data", counting({4})}}, {.timeout = 50ms});
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(outputs.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(took, 1s);
  ::kill(worker, SIGCONT);
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(PoolIntegration, AModelThatCannotBeServedSaysWhyAndOthersAreServed) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity", "gone=/nowhere/model"}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.workers().size() == 1; }));
  Pool pool = daemon.connect();
  const auto outputs = pool.predict("gone", {{"data", counting({4})}});
  EXPECT_EQ(outputs.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(outputs.status().message().find("/nowhere/model"), std::string::npos) << outputs.status().message();
  EXPECT_EQ(daemon.model("gone").at("state"), "failed");
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  EXPECT_EQ(pool.predict("unknown", {{"data", counting({4})}}).status().code(), StatusCode::kNotFound);
}

TEST(PoolIntegration, WrongInputsAreRefusedByName) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  EXPECT_EQ(pool.predict("echo", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.predict("echo", {{"other", counting({4})}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.predict("echo", {{"data", Tensor::create(DType::kInt8, {4}).value()}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

// A client must not do this. One that does gets some answer and hurts nobody else.
TEST(PoolIntegration, AnInputThatItsClientChangesWhileItIsReadHurtsNobody) {
  const char* source = std::getenv("SHOAL_SOURCE_DIR");
  const std::string model = std::string(source ? source : ".") + "/tools/shapes/model";
  const DaemonFixture daemon({.models = {"shapes=" + model + ",workers=2"}});
  Pool good = daemon.connect(), bad = daemon.connect();
  const Tensor quiet_input = counting({1, 3, 64, 64});
  const auto quiet = good.predict("shapes", {{"data", quiet_input}});
  ASSERT_TRUE(quiet.ok()) << quiet.status().to_string();
  const auto workers_before = daemon.workers("shapes");

  auto changing = bad.loan(DType::kFloat32, {1, 3, 64, 64});
  ASSERT_TRUE(changing.ok());
  std::jthread scribbler([bytes = changing->view().bytes()](const std::stop_token& stop) {
    for (unsigned char value = 0; !stop.stop_requested(); ++value)
      std::memset(bytes.data(), value, bytes.size());  // NaN and infinities among them
  });
  for (int i = 0; i < 300; ++i) {
    const auto answer = bad.predict("shapes", {{"data", *changing}});
    ASSERT_TRUE(answer.ok()) << answer.status().to_string();
    const auto outputs = good.predict("shapes", {{"data", quiet_input}});
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_TRUE(is_same((*outputs)[0].tensor, (*quiet)[0].tensor));
  }
  EXPECT_EQ(daemon.workers("shapes"), workers_before);
}

TEST(PoolIntegration, TellsOfItself) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2,contexts=3"}});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  const auto model = daemon.model();
  EXPECT_EQ(model.at("state"), "ready");
  EXPECT_EQ(model.at("version"), 1);
  EXPECT_EQ(model.at("workers").size(), 2u);
  EXPECT_EQ(model.at("workers")[0].at("lanes").size(), 3u);
  EXPECT_EQ(model.at("counts").at("ok"), 1);
  const auto& total = model.at("latency_ms").at("total");
  EXPECT_GT(total.at("p50").get<double>(), 0.0);
  EXPECT_EQ(total.at("sum"), total.at("max")) << "of one request";
  EXPECT_EQ(pool.list().value(), std::vector<std::string>{"echo"});
  // Each process has a name that begins with shoal.
  for (const pid_t pid : daemon.all_processes()) {
    FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/comm").c_str(), "r");
    ASSERT_NE(file, nullptr);
    char name[32] = {};
    ASSERT_NE(std::fgets(name, sizeof name, file), nullptr);
    std::fclose(file);
    EXPECT_EQ(std::string(name).rfind("shoal", 0), 0u) << name;
  }
}

TEST(Shoald, RefusesToServeWhereAnotherDaemonDoes) {
  const DaemonFixture daemon;
  const CommandResult second = run_shoald("--model echo=builtin:identity", daemon.directory());
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.output.find(daemon.directory()), std::string::npos) << second.output;
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(Shoald, TeachesItsUsage) {
  const std::string directory = "/tmp/shoal-test-nothing";
  EXPECT_EQ(run_shoald("", directory).exit_code, 2);
  EXPECT_EQ(run_shoald("--model nonsense", directory).exit_code, 2);
  EXPECT_EQ(run_shoald("--model a=x --model a=y", directory).exit_code, 2);
  EXPECT_EQ(run_shoald("--no-such-option", directory).exit_code, 2);
  EXPECT_EQ(run_shoald("--config /nowhere.toml", directory).exit_code, 1);
  const CommandResult help = run_shoald("--help", directory);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("Examples"), std::string::npos);
}

TEST(Shoald, DrainsOnSigtermAndLeavesNothing) {
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  Pool pool = daemon.connect({.reconnect_timeout = 100ms});
  ASSERT_TRUE(pool.describe("echo").ok());
  std::vector<Prediction> predictions;
  for (int i = 0; i < 300; ++i) predictions.push_back(pool.submit("echo", {{"data", counting({4}, static_cast<float>(i))}}));
  ::kill(daemon.pid(), SIGTERM);
  EXPECT_EQ(daemon.wait_for_exit(), 0);
  for (const Prediction& prediction : predictions) {
    ASSERT_TRUE(prediction.wait_for(5s));
    const Status& status = prediction.get().status();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status.to_string();
  }
  EXPECT_TRUE(eventually([&] { return daemon.all_processes().empty(); }, 2s));
  EXPECT_FALSE(std::filesystem::exists(daemon.directory() + "/attach"));
}

TEST(Shoald, StopsWhenAClientAsks) {
  DaemonFixture daemon;
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.stop().ok());
  EXPECT_EQ(daemon.wait_for_exit(), 0);
  EXPECT_EQ(Pool::connect({.directory = daemon.directory()}).status().code(), StatusCode::kUnavailable);
}

// The caller's own owners of loans and of inputs that travel as frames. What they do at the end may use the pool.
TEST(Pool, TheDeleterOfAnInputMayUseThePool) {
  const DaemonFixture daemon;
  for (const std::uint64_t arena_bytes : {std::uint64_t{1} << 20, std::uint64_t{4096}}) {
    Pool pool = daemon.connect({.arena_limit_bytes = arena_bytes});
    int released = 0;
    const auto give_back = [&](Tensor* tensor) {
      (void)pool.usage();
      ++released;
      delete tensor;
    };
    auto tensor = arena_bytes > 4096 ? pool.loan(DType::kFloat32, {4}) : Tensor::create(DType::kFloat32, {4096});
    ASSERT_TRUE(tensor.ok());
    Tensor mine = *std::move(tensor);
    const TensorView view = mine.view();
    std::shared_ptr<void> owner(new Tensor(std::move(mine)), give_back);
    auto answered = std::async(std::launch::async, [&, owner = std::move(owner)]() mutable {
      return pool.predict("echo", {{"data", Tensor(view, std::move(owner))}}).ok();
    });
    ASSERT_EQ(answered.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "it waits for itself";
    EXPECT_TRUE(answered.get());
    answered = {};
    EXPECT_EQ(released, 1);
  }
}

// The deleter runs in the thread that would poll next.
TEST(Pool, TheDeleterOfAnInputMayWaitForAnAnswer) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  StatusCode asked = StatusCode::kInternal;
  const auto ask = [&](Tensor* tensor) {
    asked = pool.submit("echo", {{"data", counting({4})}}, {.timeout = 5s}).get().status().code();
    delete tensor;
  };
  Tensor loan = pool.loan(DType::kFloat32, {4}).value();
  const TensorView view = loan.view();
  std::shared_ptr<void> owner(new Tensor(std::move(loan)), ask);
  const Prediction first = pool.submit("echo", {{"data", Tensor(view, std::move(owner))}});
  std::this_thread::sleep_for(200ms);  // its answer lies in the socket
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);
  Prediction second = pool.submit("echo", {{"data", counting({4})}});
  const std::jthread goes_on([&] {
    std::this_thread::sleep_for(100ms);  // the watchdog leaves it alone for so long
    ::kill(worker, SIGCONT);
  });
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(asked, StatusCode::kOk);
}

}  // namespace
}  // namespace shoal::test
