#include "worker/zygote/zygote.hpp"
#include "worker/zygote/find_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "shm/base/format.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/status_page.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/zygote/find_files.hpp"

namespace shoal::worker {
namespace {

using wire::ControlKind;
using wire::ControlMessage;

/// A zygote in a child of the test, which plays the supervisor.
class ZygoteTest : public ::testing::Test {
 protected:
  ZygoteTest() {
    std::filesystem::create_directory(directory_);
    auto pair = wire::make_control_pair().value();
    pid_ = ::fork();
    if (pid_ == 0) {
      pair.ours.reset();
      ::setenv("SHOAL_DIR", scratch_.path().c_str(), 1);  // the daemon does so
      static char title[] = "zygote-test";
      static char* argv[] = {title};
      run_zygote(std::move(pair.theirs), ProcessTitle(1, argv));
    }
    control_ = std::move(pair.ours);
  }
  ~ZygoteTest() override {
    control_.reset();  // EOF: it exits by itself
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_EQ(status, 0);
  }

  ControlMessage ask(const ControlMessage& message) {
    EXPECT_TRUE(wire::send_control(control_.get(), message).ok());
    return receive(control_);
  }
  static ControlMessage receive(const UniqueFd& socket) {
    pollfd fd{socket.get(), POLLIN, 0};
    if (::poll(&fd, 1, 5000) != 1) {
      ADD_FAILURE() << "no message";
      return {};
    }
    auto message = wire::receive_control(socket.get());
    if (!message.ok() || !*message) return {};
    return std::move(**message);
  }
  ControlMessage load_identity() {
    return ask({.kind = ControlKind::kLoad, .text = R"({"name": "echo", "path": "builtin:identity"})"});
  }

  /// kLoad of these files, whose input `data` is one number.
  ControlMessage load_files(const std::string& symbol) {
    scratch_.write("m-symbol.json", symbol);
    scratch_.write("m-0000.params", std::string("\x12\x01", 2) + std::string(30, '\0'));  // a list of no arrays
    return ask({.kind = ControlKind::kLoad,
                .text = format(R"({"name": "net", "path": "m", "device": "cpu-reference", "files": ["{}", "{}"]})",
                               scratch_.path("m-symbol.json"), scratch_.path("m-0000.params"))});
  }

  const test::ScratchDirectory scratch_;
  const std::string directory_ = wire::lanes_directory(scratch_.path());
  pid_t pid_;
  UniqueFd control_;
};

TEST(FindFiles, OfAnotherBuildThanTheSupervisorSaysSo) {
  auto pair = wire::make_control_pair().value();
  const pid_t pid = ::fork();
  if (pid == 0) {
    pair.ours.reset();
    static char title[] = "a title with room";
    static char* argv[] = {title};
    find_files(std::move(pair.theirs), ProcessTitle(1, argv));
  }
  EXPECT_TRUE(wire::send_control(pair.ours.get(), {.kind = ControlKind::kFind, .text = "shoal-0.0-other\n{}"}).ok());
  const auto found = wire::receive_control(pair.ours.get(), true);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(found.ok() && *found) << found.status().message();
  const auto entries = parse_entries((*found)->text, {.name = "net", .path = "x", .overrides = {}});
  ASSERT_TRUE(entries.ok());
  const Status& why = entries->front().failure;
  EXPECT_EQ(why.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(test::says(why.message(), {"shoal-0.0-other", wire::build_id(), "install both from one build"}));
}

TEST_F(ZygoteTest, AModelThatCannotBeLoadedIsAnAnswerNotADeath) {
  const ControlMessage reply =
      ask({.kind = ControlKind::kLoad,
           .text = R"({"name": "net", "path": "/nowhere", "files": ["/nowhere-symbol.json", "/nowhere"]})"});
  EXPECT_EQ(reply.kind, ControlKind::kLoadFailed);
  EXPECT_EQ(static_cast<StatusCode>(reply.a), StatusCode::kNotFound);
  EXPECT_NE(reply.text.find("/nowhere-symbol.json"), std::string::npos) << reply.text;
  EXPECT_EQ(load_identity().kind, ControlKind::kLoaded);
}

/// Whatever a file holds, the answer fits a control message: the supervisor would wait for one that was never sent.
TEST_F(ZygoteTest, AnErrorAsLongAsItsFileIsAnswered) {
  const std::string name(100'000, 'n');
  const ControlMessage reply = load_files(R"({"nodes": [{"op": "Unheard", "name": ")" + name +
                                          R"(", "inputs": []}], "arg_nodes": [], "heads": [[0, 0]]})");
  EXPECT_EQ(reply.kind, ControlKind::kLoadFailed);
  EXPECT_EQ(static_cast<StatusCode>(reply.a), StatusCode::kUnimplemented);
  EXPECT_TRUE(test::says(reply.text, {"net", "m-symbol.json", "operators that Shoal does not have", "nnn'"}));
}

TEST_F(ZygoteTest, AModelWithTooMuchToSayIsRefusedNotLost) {
  const std::string long_name(400, 'n');
  std::string nodes, entries;
  for (int i = 0; i < 200; ++i) {
    nodes += format(R"json({"op": "null", "name": "{}{}", "attrs": {"__shape__": "(1,)"}, "inputs": []}, )json", long_name, i);
    entries += format("{}[{}, 0]", i == 0 ? "" : ", ", i);
  }
  const ControlMessage reply = load_files(R"({"nodes": [)" + nodes + R"({"op": "add_n", "name": "sum", "inputs": [)" + entries +
                                          R"(]}], "arg_nodes": [], "heads": [[200, 0]]})");
  EXPECT_EQ(reply.kind, ControlKind::kLoadFailed);
  EXPECT_TRUE(test::says(reply.text, {"net", "200 inputs", "61440"}));
  EXPECT_EQ(load_identity().kind, ControlKind::kLoaded);
}

// The daemon takes a reply with more tensors for a breach of the protocol: each request would kill a worker.
TEST_F(ZygoteTest, AModelWithMoreTensorsThanAMessageIsRefusedNotServed) {
  const auto load_with_outputs = [this](int count) {
    std::string nodes = R"json({"op": "null", "name": "data", "attrs": {"__shape__": "(1,)"}, "inputs": []})json", heads;
    for (int i = 1; i <= count; ++i) {
      nodes += format(R"(, {"op": "abs", "name": "abs{}", "inputs": [[0, 0]]})", i);
      heads += format("{}[{}, 0]", i == 1 ? "" : ", ", i);
    }
    return load_files(R"({"nodes": [)" + nodes + R"(], "arg_nodes": [0], "heads": [)" + heads + "]}");
  };
  const ControlMessage reply = load_with_outputs(256);
  EXPECT_EQ(reply.kind, ControlKind::kLoadFailed);
  EXPECT_EQ(static_cast<StatusCode>(reply.a), StatusCode::kInvalidArgument);
  EXPECT_TRUE(test::says(reply.text, {"model 'net'", "1 inputs and 256 outputs", "at most 256"}));
  EXPECT_EQ(load_with_outputs(255).kind, ControlKind::kLoaded);
}

TEST_F(ZygoteTest, ForksNothingBeforeAModelIsLoaded) {
  const ControlMessage reply = ask({.kind = ControlKind::kFork, .id = 4, .a = 1, .text = directory_});
  EXPECT_EQ(reply.kind, ControlKind::kForkFailed);
  EXPECT_EQ(reply.id, 4u);
}

TEST_F(ZygoteTest, AForkedWorkerSaysReadyEndsWithItsControlSocketAndIsReaped) {
  EXPECT_EQ(load_identity().kind, ControlKind::kLoaded);
  auto pair = wire::make_control_pair().value();
  ControlMessage fork{.kind = ControlKind::kFork, .id = 4, .a = 2, .text = directory_ + "/w4-name"};
  fork.fds.push_back(std::move(pair.theirs));
  fork.fds.push_back(wire::make_status_page(2).value());
  const ControlMessage forked = ask(fork);
  ASSERT_EQ(forked.kind, ControlKind::kForked);
  ASSERT_EQ(forked.fds.size(), 1u);
  fork.fds.clear();

  const ControlMessage ready = receive(pair.ours);
  EXPECT_EQ(ready.kind, ControlKind::kReady);
  EXPECT_EQ(ready.text, directory_ + "/w4-name-0\n" + directory_ + "/w4-name-1\n");
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/w4-name-1"));

  pair.ours.reset();
  const ControlMessage exited = receive(control_);
  EXPECT_EQ(exited.kind, ControlKind::kExited);
  EXPECT_EQ(exited.id, 4u);
  EXPECT_EQ(exited.a, forked.a);
  EXPECT_EQ(exited.b, 0u);
  pollfd pidfd{forked.fds[0].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&pidfd, 1, 1000), 1);
}

// The nice value of each thread.
std::vector<int> nice_values(pid_t pid) {
  std::vector<int> values;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error))
    values.push_back(::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(task.path().filename()))));
  std::ranges::sort(values);
  return values;
}

TEST_F(ZygoteTest, ALoadThatComesSecondLeavesItsWorkersAsTheyAre) {
  const int ours = ::getpriority(PRIO_PROCESS, 0);
  scratch_.write("net-symbol.json");
  const std::string endless = scratch_.path("net-symbol.json");  // a hole, read until it is cut off
  std::filesystem::resize_file(endless, std::uintmax_t{1} << 40);
  const ControlMessage slow{
      .kind = ControlKind::kLoad, .a = 5, .text = R"({"name": "net", "path": "/", "files": [")" + endless + R"(", "/nowhere"]})"};
  ASSERT_TRUE(wire::send_control(control_.get(), slow).ok());
  const std::vector<int> expected = {ours, std::min(ours + 5, 19)};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (nice_values(pid_) != expected && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(nice_values(pid_), expected) << "the thread that loads, and the one that forks";
  std::filesystem::resize_file(endless, 0);
  EXPECT_EQ(receive(control_).kind, ControlKind::kLoadFailed);

  EXPECT_EQ(ask({.kind = ControlKind::kLoad, .a = 5, .text = R"({"name": "echo", "path": "builtin:identity"})"}).kind,
            ControlKind::kLoaded);
  auto pair = wire::make_control_pair().value();
  ControlMessage fork{.kind = ControlKind::kFork, .id = 4, .a = 1, .text = directory_ + "/w4-name"};
  fork.fds.push_back(std::move(pair.theirs));
  fork.fds.push_back(wire::make_status_page(1).value());
  const ControlMessage forked = ask(fork);
  ASSERT_EQ(forked.kind, ControlKind::kForked);
  EXPECT_EQ(receive(pair.ours).kind, ControlKind::kReady);
  for (const int value : nice_values(static_cast<pid_t>(forked.a))) EXPECT_EQ(value, ours);
  pair.ours.reset();
  EXPECT_EQ(receive(control_).kind, ControlKind::kExited);
}

/// While it lives, no thread can be started: there are no addresses for its stack.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t endless = before_;
    EXPECT_EQ(::pthread_attr_setstacksize(&endless, std::size_t{1} << 50), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&endless), 0);
  }
  ~NoThreads() { EXPECT_EQ(::pthread_setattr_default_np(&before_), 0); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

/// A zygote that is forked while there are no threads.
class ZygoteWithoutThreads : NoThreads, public ZygoteTest {};

TEST_F(ZygoteWithoutThreads, LoadsAtItsOwnPriority) {
  EXPECT_EQ(ask({.kind = ControlKind::kLoad, .a = 5, .text = R"({"name": "echo", "path": "builtin:identity"})"}).kind,
            ControlKind::kLoaded);
  EXPECT_EQ(nice_values(pid_), std::vector<int>{::getpriority(PRIO_PROCESS, 0)});
}

TEST_F(ZygoteTest, AWorkerGoesWhenItsSupervisorIsGone) {
  EXPECT_EQ(load_identity().kind, ControlKind::kLoaded);
  auto pair = wire::make_control_pair().value();
  ControlMessage fork{.kind = ControlKind::kFork, .id = 4, .a = 1, .text = directory_ + "/w4-name"};
  fork.fds.push_back(std::move(pair.theirs));
  fork.fds.push_back(wire::make_status_page(1).value());
  EXPECT_EQ(ask(fork).kind, ControlKind::kForked);
  fork.fds.clear();
  EXPECT_EQ(receive(pair.ours).kind, ControlKind::kReady);
  pair.ours.reset();
  EXPECT_EQ(receive(control_).kind, ControlKind::kExited);
}

}  // namespace
}  // namespace shoal::worker
