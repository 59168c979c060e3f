// What clients have together: memory of the daemon, addresses of its workers. Each of them is within its own limit, all of them
// together are far beyond.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "shm/segment/segment.hpp"
#include "tests/integration/handmade_peer.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/says.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMb = 1 << 20;
/// The allocator's, connections, buffers; and a sanitizer keeps what was freed.
constexpr std::uint64_t kSlack = (kSanitized ? 400 : 64) * kMb;

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A client that is welcomed, asks, and never reads an answer.
class DeafClient : public HandmadePeer {
 public:
  explicit DeafClient(const DaemonFixture& daemon) : HandmadePeer(daemon.directory()) { be_welcomed(); }
  /// Why the daemon disconnected it; empty when it did not.
  std::string reason() {
    const auto said = receive_control();
    return said && said->kind == wire::ControlKind::kRefused ? said->text : "";
  }
  /// Sends the bytes so often, or until it is disconnected. Returns whether it was, and checks that this was `why`.
  bool is_disconnected(const std::string& bytes, int times, std::string_view why) {
    for (int i = 0; i < times; ++i) {
      if (send_all(bytes)) continue;
      EXPECT_TRUE(says(reason(), {why, "total_message_mb"}));
      return true;
    }
    return false;
  }
};

/// A process of its own that asks for little, one thing after another.
///   loan_bytes  it holds a loan of that size: inputs that find no room beside it travel in messages
class Modest {
 public:
  explicit Modest(const DaemonFixture& daemon, const PoolOptions& options = {}, std::int64_t elements = 16,
                  std::int64_t loan_bytes = 0)
      : shared_(Segment::map(create_memfd("modest", sizeof(Shared)).value(), Segment::Access::kReadWrite).value()),
        said_(new (shared_.mutable_bytes().data()) Shared) {
    pid_ = start_child([&] {
      Pool pool = daemon.connect(options);
      const Tensor input = counting({elements}), loan = pool.loan(DType::kUInt8, {loan_bytes}).value();
      said_->is_connected = true;
      for (;;) {
        const auto outputs = pool.predict("echo", {{"data", input}});
        if (!outputs.ok()) {
          std::snprintf(said_->error, sizeof said_->error, "%s", outputs.status().to_string().c_str());
          ++said_->failed;
        }
        ++said_->answered;
      }
      return 0;
    });
    EXPECT_TRUE(eventually([&] { return said_->is_connected.load(); }));
  }
  ~Modest() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    EXPECT_EQ(said_->failed, 0) << said_->error;
  }
  Modest(const Modest&) = delete;
  Modest& operator=(const Modest&) = delete;
  int answered() const { return said_->answered; }

 private:
  struct Shared {
    std::atomic<bool> is_connected = false;
    std::atomic<int> answered = 0, failed = 0;
    char error[512] = {};
  };
  Segment shared_;
  Shared* const said_;
  pid_t pid_ = -1;
};

/// Asks from a process of its own. Returns whether an answer came.
bool another_process_is_answered(const DaemonFixture& daemon) {
  return exit_code_of([&] {
           const auto outputs = daemon.connect().predict("echo", {{"data", counting({4})}});
           return outputs.ok() ? 0 : (std::puts(outputs.status().to_string().c_str()), std::fflush(stdout), 1);
         }) == 0;
}

/// Runs `misbehave` in a thread of each client. Returns whether the daemon holds no more than `total`, and checks that a modest
/// client is served meanwhile.
bool stays_within(const DaemonFixture& daemon, std::uint64_t total, int clients,
                  const std::function<void(DeafClient&)>& misbehave) {
  const Modest modest(daemon);
  EXPECT_TRUE(eventually([&] { return modest.answered() > 100; }));
  std::vector<std::unique_ptr<DeafClient>> deaf;
  for (int i = 0; i < clients; ++i) deaf.push_back(std::make_unique<DeafClient>(daemon));
  const auto before = sample_process(daemon.pid());
  std::uint64_t most = 0;
  {
    std::vector<std::jthread> threads;
    std::atomic<int> left = clients;
    for (const auto& one : deaf) {
      threads.emplace_back([&misbehave, &left, client = one.get()] {
        misbehave(*client);
        --left;
      });
    }
    while (left > 0) {
      most = std::max(most, sample_process(daemon.pid())->private_bytes);
      std::this_thread::sleep_for(5ms);
    }
  }
  const int answered = modest.answered();
  EXPECT_TRUE(eventually([&] { return modest.answered() > answered + 100; })) << "it is served beside them";
  most = std::max(most, sample_process(daemon.pid())->private_bytes);
  std::printf("%.0f MiB at first, %.0f at most, the total is %.0f\n", static_cast<double>(before->private_bytes) / kMb,
              static_cast<double>(most) / kMb, static_cast<double>(total) / kMb);
  return most < before->private_bytes + total + kSlack;
}

/// What comes between two looks of a daemon depends on when it gets the processor. So one of three must look in time.
void one_of_three(const std::function<bool()>& is_in_time) { EXPECT_TRUE(is_in_time() || is_in_time() || is_in_time()); }

// Each of them has sent less than it may when it hangs up in the middle of its message.
TEST(TotalMessages, TheMemoryOfAMessageThatIsNotFinishedIsFreedWhenItsClientIsGone) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer keeps what was freed";
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
  const auto before = sample_process(daemon.pid());
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(kMb, '\0'));
  for (int i = 0; i < 20; ++i) {
    DeafClient client(daemon);
    for (int frames = 0; frames < 30; ++frames) ASSERT_TRUE(client.send_all(frame));
  }
  EXPECT_TRUE(eventually([&] { return sample_process(daemon.pid())->private_bytes < before->private_bytes + kSlack; }))
      << (sample_process(daemon.pid())->private_bytes - before->private_bytes) / kMb << " MiB are lost";
}

TEST(TotalMessages, UnreadAnswersOfManyClients) {
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
  RawClient asking(daemon.directory());
  asking.attach();
  wire::Request request = asking.request(1);
  request.inputs = {wire::to_wire({DType::kFloat32, Shape{kMb / 4}, nullptr})};
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  request.outputs = {wire::WireTensor{}};  // without room, so that the answer is a frame
  std::vector<std::byte> head;
  wire::encode_request(request, head);
  const std::string message = zmtp::long_frame(zmtp::kMore, text_of(head)) + zmtp::long_frame(0, std::string(kMb, '\0'));
  EXPECT_TRUE(stays_within(daemon, 64 * kMb, 12, [&](DeafClient& client) {
    for (int i = 0; i < 30 && client.send_all(message); ++i) {
    }
  }));
}

TEST(TotalMessages, SmallUnreadAnswersOfManyClients) {
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 16"});
  RawClient asking(daemon.directory());
  asking.attach();
  wire::Request request = asking.request(1);
  request.header.model_id = 4711;  // there is none
  std::vector<std::byte> head;
  wire::encode_request(request, head);
  std::string messages;
  for (int i = 0; i < 1000; ++i) messages += zmtp::long_frame(0, text_of(head));
  std::atomic<int> disconnected = 0;
  EXPECT_TRUE(stays_within(daemon, 16 * kMb, 6, [&](DeafClient& client) {
    disconnected += client.is_disconnected(messages, 60, "does not read its answers");
  }));
  EXPECT_GT(disconnected, 0);
}

constexpr std::uint64_t kUnfinished = 16 * kMb + 64 * kMb;  // what messages may hold that are not finished, of a total of 64 MiB
constexpr std::uint64_t kBetweenLooks = 128 * kMb;          // that come until the daemon looks again

// libzmq collects the frames and shows nothing before the last one.
TEST(TotalMessages, MessagesThatAreNeverFinished) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(kMb, '\0'));
  one_of_three([&] {
    const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
    std::atomic<int> disconnected = 0;
    const bool is_in_time = stays_within(daemon, kUnfinished + kBetweenLooks, 4, [&](DeafClient& client) {
      disconnected += client.is_disconnected(frame, 150, "does not finish its message");
    });
    EXPECT_GT(disconnected, 0);
    return is_in_time;
  });
}

TEST(TotalMessages, AnAnswerThatIsTooLongForAMessageIsRefusedBeforeItIsMade) {
  const DaemonFixture daemon({.limits = "total_message_mb = 16"});
  const auto workers = daemon.workers();
  Pool pool = daemon.connect();
  const Outcome refused = pool.submit("echo", {{"data", counting({7 * kMb / 4})}}).outcome();
  EXPECT_EQ(refused.outputs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(refused.outputs.status().message(), {"output arena", "total_message_mb"}));
  EXPECT_EQ(refused.ran, Ran::kNo);
  EXPECT_LT(daemon.stats()["supervisor"]["lane_bytes"], kMb) << "the daemon received it";
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({5 * kMb / 4})}}).ok());
  EXPECT_EQ(daemon.workers(), workers);
}

// Silent clients are attached meanwhile, and one that asks all the time.
TEST(TotalMessages, AWorkerThatNeverFinishesItsMessageIsKilledAndNoClientIsDisconnected) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  one_of_three([] {
    const DaemonFixture daemon({.models = {"echo=builtin:identity", "hostile-hoarder=builtin:identity"},
                                .worker = "shoal-worker-hostile",
                                .limits = "connections = 64\ntotal_message_mb = 64"});
    Pool pool = daemon.connect();
    const bool is_in_time = stays_within(daemon, kUnfinished + kBetweenLooks, 4, [&](DeafClient&) {
      EXPECT_FALSE(pool.predict("hostile-hoarder", {{"data", counting({4})}}, {.timeout = 2s}).ok());
    });
    EXPECT_FALSE(contains(daemon.log(), "client_disconnected")) << daemon.log();
    const auto crashes = nlohmann::json::parse(pool.crashes().value())["crashes"];
    EXPECT_FALSE(crashes.empty());
    for (const auto& death : crashes) {
      EXPECT_EQ(death["model"], "hostile-hoarder");
      EXPECT_EQ(death["cause"], "ended");
      EXPECT_TRUE(says(death["what"].get<std::string>(), {"lane 0", "does not finish its message", "total_message_mb"}));
    }
    return is_in_time;
  });
}

// The innocent client is in the middle of a message at most times, and finishes
// each.
TEST(TotalMessages, AClientThatStopsInTheMiddleOfAMessageIsDisconnectedAndLongMessagesAreAnswered) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 128"});
  constexpr int kFrames = 32 + 64 + 6;  // of 1 MiB: a quarter of the total, what is always allowed, and a little more
  const Modest innocent(daemon, {.arena_limit_bytes = 30 * kMb}, 20 * kMb / 4, 15 * kMb);
  ASSERT_TRUE(eventually([&] { return innocent.answered() > 0; }));  // from now on there is room for its outputs
  DeafClient hoarder(daemon);
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(kMb, '\0'));
  for (int i = 0; i < kFrames && hoarder.send_all(frame); ++i) {  // on a busy machine it is put out before the last one
  }
  const std::string reason = hoarder.reason();
  EXPECT_TRUE(contains(reason, "does not finish its message") && contains(reason, "total_message_mb")) << reason << daemon.log();
  const int answered = innocent.answered();
  EXPECT_TRUE(eventually([&] { return innocent.answered() > answered + 10; }));
  EXPECT_EQ(daemon.stats()["supervisor"]["clients"], 2) << "the innocent client and the one that asks";
}

TEST(TotalMessages, FailedLoadsMakeNoRoomForMessagesThatAreNeverFinished) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
  Pool pool = daemon.connect();
  DeafClient hoarder(daemon);
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(4 * kMb, '\0')), small = zmtp::long_frame(zmtp::kMore, "x");
  int sent = 0;
  EXPECT_TRUE(eventually([&] {  // the daemon looks at its memory every 10 ms then
    EXPECT_FALSE(pool.load("x", "builtin:nothing").ok());
    return hoarder.is_disconnected(sent++ < 60 ? frame : small, 1, "does not finish its message");
  }));
}

// Each of them stops in the middle of a message. The daemon disconnects most of them before the others fit into its memory.
TEST(TotalMessages, AProcessWhoseClientsHoardAgainAndAgainMayNotConnectForAWhile) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
  std::vector<std::unique_ptr<DeafClient>> hoarders;
  for (int i = 0; i < 30; ++i) hoarders.push_back(std::make_unique<DeafClient>(daemon));
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(10 * kMb, '\0'));
  for (const auto& hoarder : hoarders) (void)hoarder->send_all(frame);
  const auto context = std::make_shared<wire::MessageContext>();
  std::string why_not;
  EXPECT_TRUE(eventually([&] {
    RawClient late(daemon.directory(), context);
    why_not = late.attach_or_why_not();
    return !why_not.empty();
  }));
  EXPECT_TRUE(says(why_not, {"did not finish their messages", "connection_rate"})) << daemon.log();
  EXPECT_TRUE(another_process_is_answered(daemon));
}

// libzmq allocates a frame when its header comes. The five finish a message after the shortage began, so they are not among its
// first causes.
TEST(TotalMessages, WhoStopsInAMessageDuringAShortageIsDisconnectedAndIdleClientsStay) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  const DaemonFixture daemon({.limits = "connections = 64\ntotal_message_mb = 64"});
  const Modest asks_all_the_time(daemon);
  DeafClient idle(daemon), other_idle(daemon);
  EXPECT_TRUE(eventually([&] { return daemon.stats()["supervisor"]["clients"] == 4; })) << "the one that asks included";
  DeafClient hoarder(daemon);
  std::vector<std::unique_ptr<DeafClient>> later;
  for (int i = 0; i < 5; ++i) later.push_back(std::make_unique<DeafClient>(daemon));
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(kMb, '\0'));
  const std::uint64_t before = sample_process(daemon.pid())->private_bytes;
  for (std::uint64_t i = 0; i < kUnfinished / kMb + 6; ++i) (void)hoarder.send_all(frame);
  EXPECT_TRUE(eventually([&] {
    return sample_process(daemon.pid())->private_bytes > before + kUnfinished || contains(daemon.log(), "does not finish");
  }));
  const std::string header_of_20_mib("\3\0\0\0\0\1\x40\0\0", 9);
  for (const auto& one : later) {
    one->send(HandmadePeer::question(R"({"what": "ping"})"));
    one->read_until("{}");
    ASSERT_TRUE(one->send_all(header_of_20_mib));
  }
  for (const auto& one : later) EXPECT_TRUE(contains(one->reason(), "does not finish its message")) << daemon.log();
  EXPECT_TRUE(contains(hoarder.reason(), "does not finish its message")) << daemon.log();
  for (DeafClient* one : {&idle, &other_idle}) {
    one->send(HandmadePeer::question(R"({"what": "ping"})"));
    one->read_until("{}");  // it was not disconnected
  }
}

// All connections of this process have one share together. Other processes have their own.
TEST(TotalMessages, RequestsThatWaitAreRefusedByNameAndThoseOfOtherProcessesAreNot) {
  constexpr int kPools = 8;
  DaemonFixture daemon({.models = {"slow=builtin:identity"}, .limits = "connections = 16\ntotal_message_mb = 8"});
  std::vector<Pool> pools;
  for (int i = 0; i < kPools; ++i) pools.push_back(daemon.connect({.arena_limit_bytes = 4096}));
  for (Pool& pool : pools) ASSERT_TRUE(pool.predict("slow", {{"data", counting({4})}}).ok());
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  char byte = 0;
  const pid_t other = start_child([&] {
    Pool pool = daemon.connect({.arena_limit_bytes = 4096});
    const Tensor large = counting({kMb / 4});
    if (!pool.describe("slow").ok() || ::write(theirs.get(), &byte, 1) != 1 || ::read(theirs.get(), &byte, 1) != 1) return 2;
    const auto outputs = pool.predict("slow", {{"data", large}});
    return outputs.ok() ? 0 : (std::puts(outputs.status().to_string().c_str()), std::fflush(stdout), 1);
  });
  ASSERT_EQ(::read(ours.get(), &byte, 1), 1);
  StoppedModel slow(daemon, "slow");
  std::vector<Prediction> asked;
  for (Pool& pool : pools) asked.push_back(pool.submit("slow", {{"data", counting({kMb / 4})}}));
  const auto waiting = [&] { return daemon.model("slow")["counts"]["admitted"].get<int>(); };
  const auto answered = [&] { return std::ranges::count_if(asked, [](const Prediction& one) { return one.ready(); }); };
  EXPECT_TRUE(eventually([&] { return waiting() + answered() == 2 * kPools; })) << "each was admitted or refused";
  const int of_ours = waiting();
  ASSERT_EQ(::write(ours.get(), &byte, 1), 1);
  EXPECT_TRUE(eventually([&] { return waiting() > of_ours; }));
  slow.go_on();
  EXPECT_EQ(exit_code_of(other), 0);
  int refused = 0;
  for (const Prediction& one : asked) {
    const Status status = one.get().status();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), StatusCode::kOverloaded);
    EXPECT_TRUE(contains(status.message(), "total_message_mb")) << status.to_string();
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, kPools);
  EXPECT_TRUE(pools.back().predict("slow", {{"data", counting({kMb / 4})}}).ok()) << "now there is room";
}

// Each worker maps the arenas of all clients: their sum is limited, whether memory is allocated or not.
TEST(TotalArenas, SparseArenasAreRefusedAtAttachBeforeAWorkerRunsOutOfAddresses) {
  constexpr std::uint64_t kLargest = wire::kLargestArenaBytes;
  const DaemonFixture daemon({.limits = "connection_rate = 0\ntotal_arena_gb = 256"});  // half of what is for all: 96
  EXPECT_TRUE(contains(RawClient(daemon.directory()).attach_sparse_or_why_not(kLargest + 4096), "4294967296"));
  std::vector<std::unique_ptr<RawClient>> hostile;
  int refused = 0;
  for (int i = 0; i < 14; ++i) {
    auto one = std::make_unique<RawClient>(daemon.directory());
    const std::string why_not = one->attach_sparse_or_why_not(kLargest);
    if (!why_not.empty()) {
      ++refused;
      EXPECT_TRUE(contains(why_not, "total_arena_gb")) << why_not;
      continue;
    }
    one->send(one->request(1));  // so that the worker maps its arenas
    const wire::Reply reply = one->receive_reply();
    EXPECT_EQ(reply.header.status, 0) << "client " << i;
    hostile.push_back(std::move(one));
  }
  EXPECT_TRUE(another_process_is_answered(daemon));
  EXPECT_GT(refused, 0);
  EXPECT_EQ(hostile.size(), 12u);
  hostile.clear();
  RawClient later(daemon.directory());
  EXPECT_TRUE(eventually([&] { return later.attach_sparse_or_why_not(kLargest).empty(); })) << "when the others are gone";
}

}  // namespace
}  // namespace shoal::test
