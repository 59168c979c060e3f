#include "worker/serve/program_compiler.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {
namespace {

/// The identity model, whose compilations take as long as the test says.
class SlowModel final : public IdentityModel {
 public:
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    if (++compilations == 1) {
      begun.count_down();
      go_on.wait();
    }
    order.push_back(inputs[0].shape[0]);
    if (inputs[0].shape[0] == 13) return invalid_argument("13 is no size");
    return IdentityModel::program(inputs);
  }
  std::atomic<int> compilations{0};
  std::vector<std::int64_t> order;  // sizes; may be read when nothing is compiled
  std::latch begun{1}, go_on{1};
};

class ProgramCompilerTest : public ::testing::Test {
 protected:
  static std::vector<TensorSpec> shape(std::int64_t size) { return {{"data", DType::kFloat32, Shape{size}}}; }
  std::shared_ptr<const PendingProgram> order(std::int64_t size, std::uint64_t request_id = 1, Asker asker = {1, 0}) {
    return compiler_.compile(shape(size), {request_id, asker, &lane_, &bell_});
  }
  /// `first` orders many, and then `other` one.
  void expect_second(const Asker& first, const Asker& other) {
    std::vector<std::shared_ptr<const PendingProgram>> all;
    for (int i = 0; i < 64; ++i) all.push_back(order(100 + i, 1, first));
    model_.begun.wait();
    all.push_back(order(1000, 2, other));
    model_.go_on.count_down();
    for (const auto& pending : all) wait_for(pending);
    ASSERT_EQ(model_.order.size(), 65u);
    EXPECT_EQ(model_.order[0], 100);
    EXPECT_EQ(model_.order[1], 1000);
    for (std::size_t i = 2; i < 65; ++i) EXPECT_EQ(model_.order[i], 99 + static_cast<std::int64_t>(i)) << "as they came";
  }
  // Reads the eventfd, as a lane does when it has nothing else to do.
  void wait_for(const std::shared_ptr<const PendingProgram>& pending) {
    eventfd_t ignored = 0;
    while (!pending->is_ready()) ::eventfd_read(bell_.fd.get(), &ignored);
  }

  SlowModel model_;
  CancelledRequests cancelled_;
  MemoryLimit memory_;
  wire::FlightRing ring_{};
  FlightRecorder flight_{ring_};
  wire::ProgramLine line_{};
  wire::LaneLine lane_{};
  ReadyBell bell_{.fd = UniqueFd(::eventfd(0, EFD_CLOEXEC))};
  ProgramCompiler compiler_{model_, cancelled_, memory_, flight_, line_};
};

TEST_F(ProgramCompilerTest, CompilesOnceForAllThatWantTheSameInputs) {
  const auto first = order(1);
  model_.begun.wait();
  EXPECT_EQ(lane_.compiling_request, 1u);  // should the process be killed now
  const auto other = order(2), same = order(1);
  EXPECT_FALSE(first->is_ready());
  EXPECT_EQ(line_.compiling, 3u);
  model_.go_on.count_down();
  for (const auto& pending : {first, same, other}) wait_for(pending);
  EXPECT_EQ(lane_.compiling_request, 0u);
  EXPECT_EQ(model_.compilations, 2);
  EXPECT_EQ(first->outcome().value(), same->outcome().value());
  EXPECT_EQ(other->outcome().value()->inputs()[0].shape, Shape{2});
  EXPECT_EQ(line_.compiling, 0u);
  EXPECT_EQ(line_.misses, 3u);
}

TEST_F(ProgramCompilerTest, AClientWithManyNewShapesLetsAnotherOnesBeCompiledSecond) { expect_second({1, 0}, {2, 0}); }

TEST_F(ProgramCompilerTest, AFlowWithManyNewShapesLetsAnotherOfItsGatewayBeCompiledSecond) { expect_second({1, 1}, {1, 2}); }

// Both have an order at each time, and none of them more than two.
TEST_F(ProgramCompilerTest, ClientsThatOrderAgainAndAgainDoNotOvertakeTheOthers) {
  std::vector<std::shared_ptr<const PendingProgram>> all;
  for (int i = 0; i < 3; ++i) all.push_back(order(100 + i, 1, {1, 0}));
  model_.begun.wait();
  for (int i = 0; i < 9; ++i) {
    for (const std::uint64_t client : {2u, 3u})
      all.push_back(order(static_cast<std::int64_t>(client) * 1000 + i, client, {client, 0}));
  }
  model_.go_on.count_down();
  for (const auto& pending : all) wait_for(pending);
  const auto at = [&](std::int64_t size) { return std::ranges::find(model_.order, size) - model_.order.begin(); };
  EXPECT_EQ(at(101), 3) << "after one of each of the others";
  EXPECT_EQ(at(102), 6);
}

TEST_F(ProgramCompilerTest, TellsAFailureToThoseWhoWaited) {
  model_.go_on.count_down();
  const auto bad = order(13);
  wait_for(bad);
  EXPECT_EQ(bad->outcome().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ProgramCompilerTest, SkipsWhatWasCancelledWhileItWaited) {
  const auto first = order(1);
  model_.begun.wait();
  const auto gone = order(2, 77), wanted = order(2, 78);
  cancelled_.add(77);
  model_.go_on.count_down();
  for (const auto& pending : {first, gone, wanted}) wait_for(pending);
  EXPECT_EQ(gone->outcome().status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(wanted->outcome().ok());
}

/// Programs whose destructor finds out whether another thread can order one meanwhile.
class LookingBackModel final : public IdentityModel {
 public:
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    if (inputs[0].shape[0] != 1) return IdentityModel::program(inputs);
    begun.count_down();
    go_on.wait();
    return std::shared_ptr<const Program>(std::make_shared<LookingBack>(*this));
  }
  std::function<void()> order_another;
  std::latch begun{1}, go_on{1};
  std::promise<bool> could_order;

 private:
  struct LookingBack final : Program {
    explicit LookingBack(LookingBackModel& model) : model_(model) {}
    ~LookingBack() override {
      model_.other_ = std::async(std::launch::async, model_.order_another);
      model_.could_order.set_value(model_.other_.wait_for(std::chrono::seconds(3)) == std::future_status::ready);
    }
    Status run(Context&, std::span<const TensorView>, std::span<TensorView>) const override { return {}; }
    LookingBackModel& model_;
  };
  std::future<void> other_;
};

// It has a low priority: no lane may wait for it.
TEST_F(ProgramCompilerTest, DestroysWhatNobodyWantsAnyMoreAfterItsLockIsOpen) {
  LookingBackModel model;
  ProgramCompiler compiler(model, cancelled_, memory_, flight_, line_);
  model.order_another = [&] { (void)compiler.compile(shape(2), {2, {1, 0}, &lane_, &bell_}); };
  auto given_up = compiler.compile(shape(1), {1, {1, 0}, &lane_, &bell_});
  model.begun.wait();
  given_up.reset();
  model.go_on.count_down();
  auto could_order = model.could_order.get_future();
  ASSERT_EQ(could_order.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_TRUE(could_order.get()) << "a program is destroyed under the lock that lanes order programs with";
}

TEST_F(ProgramCompilerTest, AccusesTheRequestThatBroughtTheShapeWhenACompilationCrashes) {
  class CrashingModel final : public IdentityModel {
   public:
    Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec>) override { std::abort(); }
  };
  void* memory = ::mmap(nullptr, wire::status_page_bytes(2), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* lines = new (memory) wire::LaneLine[2]{};
  const pid_t pid = ::fork();
  if (pid == 0) {
    install_crash_handler(lines);
    CrashingModel model;
    ProgramCompiler compiler(model, cancelled_, memory_, flight_, line_);
    lines[1].running_request = 5;  // the lane runs another request meanwhile
    (void)compiler.compile(shape(1), {42, {1, 0}, &lines[1], &bell_});
    ::pause();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(lines[1].crash.valid, 1u);
  EXPECT_EQ(lines[1].crash.request_id, 42u);
  EXPECT_EQ(lines[1].crash.on_lane, 1u);
  EXPECT_STREQ(lines[1].crash.operator_name, "the compilation of its program");
  ::munmap(memory, wire::status_page_bytes(2));
}

}  // namespace
}  // namespace shoal::worker
