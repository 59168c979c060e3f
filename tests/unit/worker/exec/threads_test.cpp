// Widths, threads and forks: what oneDNN and OpenMP make of them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>

#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(20);

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

double best_run_ms(const Program& program, int runs) {
  Context context;
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const auto start = Clock::now();
    (void)testing::run(program, context);
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

// What `work` makes of the child: its exit code; -1 when it did not end by itself in time.
template <typename Work>
int in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a hang ends it
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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

double spin_ms() {
  const auto start = Clock::now();
  for (volatile int i = 0; i < 20'000'000;) i = i + 1;
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// How much faster two threads are here at what needs nothing but a core: less than 2 when others use the machine.
double speed_of_two_cores() {
  const double alone = spin_ms();
  const auto start = Clock::now();
  std::jthread other([] { (void)spin_ms(); });
  (void)spin_ms();
  other.join();
  return 2 * alone / std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

TEST(Threads, AForkedChildRunsOnTwoCoresWhatWasLoadedForTwo) {
  constexpr int kBusy = 77;
  const int outcome = in_child([] {
    const auto one = testing::load(testing::make_bottleneck_network(), kInputs, "cpu", 1);
    const auto two = testing::load(testing::make_bottleneck_network(), kInputs, "cpu", 2);
    return in_child([&] {
      double ratio = 0, possible = 0;
      for (const auto deadline = Clock::now() + kPatience; ratio < 1.5 && Clock::now() < deadline;) {
        possible = std::max(possible, speed_of_two_cores());
        one->enter_thread();
        const double narrow = best_run_ms(**one->program(kInputs), 10);
        two->enter_thread();
        const double wide = best_run_ms(**two->program(kInputs), 10);
        ratio = std::max(ratio, narrow / wide);
      }
      std::cout << "two cores: " << ratio << " times as fast, an empty loop " << possible << " times" << std::endl;
      if (ratio >= 1.5) return 0;
      return possible < 1.8 ? kBusy : 1;
    });
  });
  if (outcome == kBusy) GTEST_SKIP() << "others use this machine's cores";
  EXPECT_EQ(outcome, 0);
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
