// The example programs do what they promise.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

/// What an example prints. It must end with 0.
std::string output_of(const DaemonFixture& daemon, const std::string& example, const std::string& arguments,
                      const std::string& before = "") {
  const std::string command = before + "SHOAL_DIR=" + daemon.directory() + " " +
                              (binary_directory() / ("example_" + example)).string() + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return text;
}

TEST(Example, PredictPrintsWhatTheModelAnswered) {
  const DaemonFixture daemon;
  EXPECT_EQ(output_of(daemon, "predict", "echo"), "data_output: float32 of shape 4\n");
}

TEST(Example, HelloSendsOneRequest) {
  const DaemonFixture daemon;
  EXPECT_EQ(output_of(daemon, "hello", ""), "data_output: 42\n");
}

TEST(Example, TheFrameLoopNeverWaitsAndLosesHardlyAnyFrame) {
  const ScratchDirectory models;
  write_checkpoint(models.path(), "m", {{"_fault_slow", "slow", {{"scalar", "25"}}, {}}}, "[-1, -1]");
  const DaemonFixture daemon(
      {.models = {"m=" + models.path() + ",shape=data:1x4,workers=2,tuning_ms=0"}, .worker = "shoal-worker-faulty"});
  int frames = 0, finished = 0, failed = 0, dropped = 0;
  double seconds = 0, rate = 0;
  std::string text;
  // A loop that waits for each answer reaches 40 a second. On a busy machine a run may be late, but not three of them.
  for (int run = 0; run < 3 && (rate < 50 || dropped > 6); ++run) {
    text = output_of(daemon, "frame_loop", "m 60");
    ASSERT_EQ(std::sscanf(text.c_str(), "%d frames in %lf s: %lf a second, %d finished, %d failed, %d dropped", &frames, &seconds,
                          &rate, &finished, &failed, &dropped),
              6)
        << text;
    EXPECT_EQ(finished + dropped, 60) << text;
    EXPECT_EQ(failed, 0) << text;
  }
  EXPECT_GE(rate, 50) << text;
  EXPECT_LE(rate, 61) << text;
  EXPECT_LE(dropped, 6) << text;
}

TEST(Example, TheEpollLoopAnswersEachLine) {
  const DaemonFixture daemon;
  std::istringstream lines(output_of(daemon, "epoll_loop", "echo", "seq 1 500 | "));
  std::set<int> tags;
  int tag = 0, number = 0;
  while (lines >> tag >> number) {
    EXPECT_EQ(number, tag + 1);
    tags.insert(tag);
  }
  EXPECT_EQ(tags.size(), 500u);
}

TEST(Example, TheCoroutineServerAnswersManyConnectionsFromOneThread) {
  const DaemonFixture daemon;
  const ScratchDirectory scratch;
  const std::string socket = scratch.path("numbers"), program = (binary_directory() / "example_coroutine_server").string();
  const pid_t server = ::fork();
  if (server == 0) {
    ::setenv("SHOAL_DIR", daemon.directory().c_str(), 1);
    ::execl(program.c_str(), program.c_str(), "echo", socket.c_str(), nullptr);
    ::_exit(127);
  }
  std::vector<UniqueFd> connections;
  ASSERT_TRUE(eventually([&] {
    connections.push_back(connected_socket(socket, SOCK_STREAM));
    if (!connections.back()) connections.pop_back();
    return !connections.empty();
  }));
  for (int i = 1; i < 20; ++i) connections.push_back(connected_socket(socket, SOCK_STREAM));
  ASSERT_EQ(::write(connections[0].get(), "7", 1), 1);  // half a line holds nobody up
  for (int i = 19; i > 0; --i) {
    const std::string line = std::to_string(i) + "\n" + std::to_string(i + 100) + "\n";
    ASSERT_EQ(::write(connections[static_cast<std::size_t>(i)].get(), line.data(), line.size()), std::ssize(line));
  }
  ASSERT_EQ(::write(connections[0].get(), "\n107\n", 5), 5);
  for (int i = 0; i < 20; ++i) {
    const std::string want = std::to_string(i == 0 ? 7 : i) + ".000000\n" + std::to_string(i == 0 ? 107 : i + 100) + ".000000\n";
    std::string got(want.size(), '\0');
    EXPECT_EQ(::recv(connections[static_cast<std::size_t>(i)].get(), got.data(), got.size(), MSG_WAITALL), std::ssize(want));
    EXPECT_EQ(got, want);
  }
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
}

}  // namespace
}  // namespace shoal::test
