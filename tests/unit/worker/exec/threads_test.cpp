// Widths, threads and forks: what oneDNN and OpenMP make of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string_view>
#include <thread>

#include "tests/support/child_process.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker {
namespace {

const std::vector<TensorSpec> kInputs = {testing::spec("data", {1, 3, 128, 128})};

int thread_count() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:") {
      int count = 0;
      status >> count;
      return count;
    }
  }
  return -1;
}

/// Milliseconds of processor time that each thread of this process has had, the first thread's first.
std::vector<double> processor_ms() {
  std::map<pid_t, double> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    double nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    threads[std::stoi(task.path().filename())] = nanoseconds / 1e6;
  }
  std::vector<double> values;
  for (const auto& [thread, milliseconds] : threads) values.push_back(milliseconds);
  return values;
}

/// What some runs of the program took of each thread.
std::vector<double> processor_ms_of_runs(const Program& program) {
  Context context;
  (void)testing::run(program, context);  // starts the threads
  std::vector<double> before = processor_ms(), after;
  for (int i = 0; i < 20; ++i) (void)testing::run(program, context);
  after = processor_ms();
  before.resize(after.size());
  std::ranges::transform(after, before, after.begin(), std::minus());
  return after;
}

// What `work` makes of a child: its exit code.
int in_child(const std::function<int()>& work) {
  return test::exit_code_of([&] {
    ::alarm(60);  // a hang ends it
    return work();
  });
}

// The zygote's rule: loading, at any width, leaves one thread behind; so every test here forks first and loads in the child.
TEST(Threads, LoadingLeavesTheProcessSingleThreaded) {
  EXPECT_EQ(in_child([] {
              const auto model = testing::load(testing::make_bottleneck_network(), kInputs, "cpu", 2);
              return thread_count();
            }),
            1);
}

TEST(Threads, ARunOfWidthOneStartsNoThread) {
  EXPECT_EQ(in_child([] {
              const auto model = testing::load(testing::make_bottleneck_network(), kInputs);
              model->enter_thread();
              Context context;
              (void)testing::run(**model->program(kInputs), context);
              (void)testing::run(**model->program(std::vector{testing::spec("data", {2, 3, 96, 96})}), context);  // compiled here
              return thread_count();
            }),
            1);
}

// That this is also faster is measured by `tools/bench threads`: how much depends on who else uses the cores. Processor time
// depends on them too (a thread beside its hyperthread's sibling takes up to twice as much), so the shares may differ widely:
// what must not be is a thread that only waits.
TEST(Threads, AForkedChildSharesTheWorkOfWhatWasLoadedForTwo) {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (!policy || std::string_view(policy) != "passive")
    GTEST_SKIP() << "waiting counts as work: set OMP_WAIT_POLICY=passive, as ctest does";
  EXPECT_EQ(in_child([] {
              const auto two = testing::load(testing::make_bottleneck_network(), kInputs, "cpu", 2);
              return in_child([&] {
                two->enter_thread();
                const auto shares = processor_ms_of_runs(**two->program(kInputs));
                std::cout << "processor time of each thread:";
                for (const double milliseconds : shares) std::cout << ' ' << milliseconds << " ms";
                std::cout << std::endl;
                if (shares.size() != 2) return 1;
                return std::ranges::min(shares) < 0.2 * (shares[0] + shares[1]) ? 2 : 0;
              });
            }),
            0);
}

TEST(Threads, AChildCompilesNewShapesAtTheModelsWidth) {
  EXPECT_EQ(in_child([] {
              const auto model = testing::load(testing::make_bottleneck_network(16), kInputs, "cpu", 2);
              return in_child([&] {
                model->enter_thread();
                Context context;
                (void)testing::run(**model->program(std::vector{testing::spec("data", {1, 3, 96, 96})}), context);
                return thread_count();
              });
            }),
            2);
}

TEST(Threads, ManyRunOneProgramAndAnswerTheSameBits) {
  const auto model = testing::load(testing::make_bottleneck_network(16), kInputs);
  const auto program = *model->program(kInputs);
  Context context;
  const auto expected = testing::run(*program, context);
  std::atomic<int> differences{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      model->enter_thread();
      Context own;
      for (int round = 0; round < 10; ++round) differences += testing::same_bits(testing::run(*program, own), expected) ? 0 : 1;
    });
  }
  threads.clear();
  EXPECT_EQ(differences, 0);
}

}  // namespace
}  // namespace shoal::worker
