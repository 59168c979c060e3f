// A process dies, and the others go on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "shm/base/format.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Several threads send one request after the other and check every answer.
struct Load {
  explicit Load(const DaemonFixture& daemon, int thread_count = 4) {
    for (int t = 0; t < thread_count; ++t) {
      threads.emplace_back([this, &daemon, t] {
        Pool pool = daemon.connect();
        for (int i = 0; !stop; ++i) {
          const auto first = static_cast<float>(t * 100'000 + i);
          const Prediction prediction = pool.submit("echo", {{"data", counting({64}, first)}});
          const auto& outputs = prediction.get();
          if (!outputs.ok()) {
            if (failed++ == 0) first_error = outputs.status().to_string();
          } else {
            ++((*outputs)[0].tensor.values<float>()[63] == first + 63 ? answered : wrong);
          }
        }
      });
    }
  }
  ~Load() { join(); }
  void join() {
    stop = true;
    for (auto& thread : threads) thread.join();
    threads.clear();
  }
  std::atomic<bool> stop = false;
  std::atomic<int> answered = 0, failed = 0, wrong = 0;
  std::string first_error;  // written by the thread that failed first; read after join()
  std::vector<std::thread> threads;
};

// A cleaner of /tmp may do that. Otherwise `shoal status` finds no daemon, and a new daemon finds this one.
TEST(Survival, AnAttachSocketThatWasRemovedIsMadeAgain) {
  const DaemonFixture daemon;
  Pool before = daemon.connect();
  EXPECT_TRUE(before.predict("echo", {{"data", counting({64})}}).ok());
  const std::string attach = daemon.directory() + "/attach";
  ASSERT_EQ(::unlink(attach.c_str()), 0);
  EXPECT_TRUE(before.predict("echo", {{"data", counting({64})}}).ok());
  ASSERT_TRUE(daemon.logs("attach_restored"));
  Pool after = daemon.connect();
  EXPECT_TRUE(after.predict("echo", {{"data", counting({64})}}).ok());
  EXPECT_EQ(daemon.stats().at("supervisor").at("pid"), daemon.pid());
}

TEST(Survival, NothingIsLostWhenWorkersAreKilledUnderLoad) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=4"}});
  Load load(daemon);
  std::set<pid_t> killed;  // a set: the stats name a dead worker until its death is noticed
  const auto end = Clock::now() + 3s;
  for (std::size_t i = 0; Clock::now() < end; ++i) {
    const auto workers = daemon.workers();
    if (!workers.empty() && ::kill(workers[i % workers.size()], SIGKILL) == 0) killed.insert(workers[i % workers.size()]);
    std::this_thread::sleep_for(50ms);
  }
  load.join();
  EXPECT_EQ(load.failed, 0) << load.first_error;
  EXPECT_EQ(load.wrong, 0);
  EXPECT_GT(load.answered, 100);
  EXPECT_GT(killed.size(), 10u);
  EXPECT_TRUE(daemon.wait_until_ready());
  const auto counts = daemon.model().at("counts");
  EXPECT_EQ(counts.at("poison"), 0);
  EXPECT_GE(counts.at("worker_deaths").get<std::size_t>(), killed.size() - 1);
}

TEST(Survival, AKilledWorkersRequestsRunOnItsReplacement) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);  // so that it holds the request when it is killed
  const Prediction prediction = pool.submit("echo", {{"data", counting({4}, 7)}});
  EXPECT_FALSE(prediction.wait_for(100ms));
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(prediction.wait_for(5s));
  ASSERT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  EXPECT_EQ((*prediction.get())[0].tensor.values<float>()[0], 7.0f);
  EXPECT_EQ(daemon.model().at("counts").at("rerun"), 1);
}

TEST(Survival, AWorkerThatAnsweredIsReplacedAtOnceHoweverOftenItDies) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  for (int death = 0; death < 8; ++death) {
    const auto outputs = pool.predict("echo", {{"data", counting({4})}});
    ASSERT_TRUE(outputs.ok()) << "after " << death << " deaths: " << outputs.status().to_string();
    const auto workers = daemon.workers();
    ASSERT_EQ(workers.size(), 1u);
    ::kill(workers[0], SIGKILL);
    ASSERT_TRUE(eventually([&] { return daemon.workers().size() == 1 && daemon.workers() != workers; }, 5s)) << death;
  }
}

TEST(Survival, AModelWhoseOnlyWorkerDiesAgainAndAgainBeforeItAnswersFails) {
  const DaemonFixture daemon;
  ASSERT_TRUE(eventually([&] {
    for (const pid_t worker : daemon.workers()) ::kill(worker, SIGKILL);  // each as soon as it is ready
    return daemon.model("echo").at("state") == "failed";
  })) << daemon.model("echo");
  EXPECT_NE(daemon.model("echo").at("reason").get<std::string>().find("before they answer anything (5 times in a row)"),
            std::string::npos)
      << daemon.model("echo").at("reason");
}

// The state of a process in /proc: 'Z' is a zombie, 0 is nobody.
char state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text.empty() ? '\0' : text[text.rfind(')') + 2];
}

TEST(Survival, OrphansAreReapedWhileOtherChildrenEndAllTheTime) {
  const DaemonFixture daemon;
  const pid_t zygote = daemon.zygote(), worker = daemon.workers().at(0);
  stop_process(zygote);  // it does not reap its worker
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(eventually([&] { return state_of(worker) == 'Z' && daemon.workers().empty(); }));
  ::kill(zygote, SIGKILL);
  EXPECT_TRUE(eventually(
      [&] {
        ::kill(daemon.pid(), SIGCHLD);
        return state_of(worker) == '\0';
      },
      3s));
}

// Then the kernel reaps children, and nobody learns how they ended.
TEST(Survival, ADaemonWhoseParentIgnoresTheEndsOfChildrenLearnsHowItsOwnEnd) {
  ::signal(SIGCHLD, SIG_IGN);
  const DaemonFixture daemon;
  ::signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(eventually([&] { return daemon.workers().size() == 1; }));
  const pid_t worker = daemon.workers().at(0), zygote = daemon.zygote();
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(eventually([&] {
    const auto now = daemon.workers();
    return now.size() == 1 && now[0] != worker;
  }));
  EXPECT_TRUE(daemon.logs("what=\"killed by signal 9")) << daemon.log();
  ::kill(zygote, SIGKILL);
  EXPECT_TRUE(daemon.logs(format("zygote_died model=echo pid={} how=\"killed by signal 9\"", zygote))) << daemon.log();
}

TEST(Survival, WorkersServeOnWhenTheirZygoteIsKilledAndANewOneForksAgain) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  Load load(daemon, 2);
  const pid_t zygote = daemon.zygote();
  const auto workers = daemon.workers();
  ASSERT_GT(zygote, 0);
  ::kill(zygote, SIGKILL);
  EXPECT_TRUE(eventually([&] { return daemon.zygote() > 0 && daemon.zygote() != zygote; }));
  EXPECT_EQ(daemon.workers(), workers);
  ::kill(workers.at(0), SIGKILL);  // its parent is now the supervisor
  EXPECT_TRUE(eventually([&] {
    const auto now = daemon.workers();
    return now.size() == 2 && now != workers;
  }));
  load.join();
  EXPECT_EQ(load.failed, 0) << load.first_error;
  EXPECT_FALSE(is_alive(workers.at(0)));
  EXPECT_TRUE(eventually([&] { return state_of(workers.at(0)) == '\0'; })) << "a zombie was left";
}

// These signals reach all processes when a terminal closes or a service manager reloads.
TEST(Survival, TheDaemonsSignalsEndNoZygoteAndNoWorker) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  const pid_t zygote = daemon.zygote();
  const auto workers = daemon.workers();
  Load load(daemon, 2);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    ::kill(zygote, signal);
    for (const pid_t worker : workers) ::kill(worker, signal);
  }
  const int before = load.answered;
  EXPECT_TRUE(eventually([&] { return load.answered > before + 100; }));
  load.join();
  EXPECT_EQ(load.failed, 0) << load.first_error;
  EXPECT_EQ(daemon.zygote(), zygote);
  EXPECT_EQ(daemon.workers(), workers);
  EXPECT_EQ(daemon.model().at("counts").at("worker_deaths"), 0);
}

TEST(Survival, AZygoteThatDoesNotAnswerIsReplaced) {
  const DaemonFixture daemon;
  const pid_t zygote = daemon.zygote(), worker = daemon.workers().at(0);
  stop_process(zygote);
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(eventually(
      [&] {
        const auto now = daemon.workers();
        return now.size() == 1 && now[0] != worker;
      },
      5s));
  EXPECT_NE(daemon.zygote(), zygote);
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

TEST(Survival, AClientThatIsKilledWithRequestsUnderWayIsForgotten) {
  const DaemonFixture daemon;
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);
  const pid_t child = ::fork();
  if (child == 0) {
    Pool pool = daemon.connect();
    std::vector<Prediction> predictions;
    for (int i = 0; i < 10; ++i) predictions.push_back(pool.submit("echo", {{"data", counting({4})}}));
    predictions[0].wait_for(10s);
    ::_exit(0);
  }
  EXPECT_TRUE(eventually([&] { return daemon.model().at("counts").at("admitted") == 10; }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return daemon.model().at("counts").at("orphaned") == 10; }));
  ::kill(worker, SIGCONT);
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  EXPECT_TRUE(eventually([&] {
    return daemon.stats().at("supervisor").at("clients") == 2;
  }));  // this pool, and the connection that asks for the stats
}

TEST(Survival, AClientThatAForkedChildOutlivesIsForgotten) {
  const DaemonFixture daemon;
  pid_t child = -1;
  {
    Pool pool = daemon.connect();
    ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
    child = start_child([] { return ::pause(); });  // keeps copies of the pool's descriptors
  }
  EXPECT_TRUE(eventually([&] {
    const auto supervisor = daemon.stats().at("supervisor");
    return supervisor.at("clients") == 1 && supervisor.at("arena_bytes") == 0;
  })) << daemon.stats();  // the connection that asks for the stats
  ::kill(child, SIGKILL);
  exit_code_of(child);
}

TEST(Survival, AForkedChildIsToldThatItsPredictionsAreOver) {
  const DaemonFixture daemon;
  const pid_t worker = daemon.workers().at(0);
  stop_process(worker);
  Pool pool = daemon.connect();
  const Prediction prediction = pool.submit("echo", {{"data", counting({4})}});
  EXPECT_FALSE(prediction.ready());
  EXPECT_EQ(exit_code_of([&] {
              if (!prediction.ready() || !prediction.wait_for(1h)) return 1;
              return prediction.get().status().code() == StatusCode::kFailedPrecondition ? 0 : 2;
            }),
            0);
  ::kill(worker, SIGCONT);
  EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
}

// How many of our memfds the daemon's processes hold.
int memfds_left(const std::string& directory) {
  int count = 0;
  for (const pid_t pid : processes_of(directory)) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
      count += std::filesystem::read_symlink(entry.path(), error).string().find("memfd:shoal") != std::string::npos;
    }
  }
  return count;
}

TEST(Survival, AfterSigkillOfEverythingTheNextStartServesWithinASecond) {
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  Clock::duration fastest = 1h;
  for (int round = 0; round < 10; ++round) {
    for (const pid_t pid : daemon.all_processes()) ::kill(pid, SIGKILL);
    EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
    ASSERT_TRUE(eventually([&] { return daemon.all_processes().empty(); }, 2s));
    EXPECT_EQ(memfds_left(daemon.directory()), 0);
    const auto begin = Clock::now();
    daemon.start();
    Pool pool = daemon.connect();
    EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
    fastest = std::min(fastest, Clock::now() - begin);
  }
  EXPECT_LT(fastest, 1s) << "in the round that other programs disturbed least";
}

TEST(Survival, ProcessesGoWhenTheirSupervisorIsKilled) {
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=3"}});
  ASSERT_GE(daemon.all_processes().size(), 5u);
  ::kill(daemon.pid(), SIGKILL);
  daemon.wait_for_exit();
  EXPECT_TRUE(eventually([&] { return daemon.all_processes().empty(); }, 2s));
}

TEST(Survival, AClientGoesOnWithTheNextDaemon) {
  DaemonFixture daemon;
  Pool pool = daemon.connect({.reconnect_timeout = 10s});
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  ::kill(daemon.pid(), SIGKILL);
  daemon.wait_for_exit();
  const Prediction prediction = pool.submit("echo", {{"data", counting({4}, 3)}});
  daemon.start();
  ASSERT_TRUE(prediction.wait_for(10s));
  EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
}

TEST(Survival, ALackOfMemoryForAnArenaEndsOnlyAnAttemptToReconnect) {
  DaemonFixture daemon;
  Pool pool = daemon.connect({.reconnect_timeout = 60s});
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  ::kill(daemon.pid(), SIGKILL);
  daemon.wait_for_exit();
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);  // also the size of a memfd
  const Prediction prediction = pool.submit("echo", {{"data", counting({4}, 3)}});
  EXPECT_FALSE(prediction.wait_for(100ms)) << prediction.get().status().to_string();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  daemon.start();
  EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
}

/// A stopped worker does not read its control socket. Messages about departed clients fill it; the rest is sent later.
class FullControlSocket : public testing::Test {
 protected:
  static constexpr std::size_t kClients = 340;  // an empty packet is charged 768 bytes of the socket's 212992

  void SetUp() override {
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    const rlimit raised{std::min<rlim_t>(limit_.rlim_max, 16'384), limit_.rlim_max};
    if (raised.rlim_cur < kClients * 16) GTEST_SKIP() << "needs " << kClients * 16 << " descriptors";
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);  // the daemon inherits it
    daemon_.emplace();
    worker_ = daemon_->workers().at(0);
    std::vector<Pool> pools;
    for (std::size_t i = 0; i < kClients; ++i) {
      pools.push_back(daemon_->connect({.arena_limit_bytes = 4096}));
      ASSERT_TRUE(pools.back().predict("echo", {{"data", counting({4})}}).ok());
    }
    stop_process(worker_);
    pools.clear();
    ASSERT_TRUE(eventually([&] { return daemon_->log().find("detach_not_sent") != std::string::npos; }));
  }
  void TearDown() override { ::setrlimit(RLIMIT_NOFILE, &limit_); }

  std::optional<DaemonFixture> daemon_;
  pid_t worker_ = -1;

 private:
  rlimit limit_{};
};

TEST_F(FullControlSocket, TheWorkerGetsRequestsAgainWhenItReads) {
  Pool late = daemon_->connect();
  const Prediction prediction = late.submit("echo", {{"data", counting({4}, 7)}});
  EXPECT_TRUE(eventually([&] { return !prediction.ready() && daemon_->log().find("worker_unroutable") != std::string::npos; }));
  ASSERT_EQ(::kill(worker_, SIGCONT), 0);
  const auto& outputs = prediction.get();
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ((*outputs)[0].tensor.values<float>()[3], 10.0f);
}

TEST_F(FullControlSocket, TheWorkerUnmapsTheArenasOfAllWhoAreGoneAlsoWhenNobodyElseComes) {
  EXPECT_GE(memfd_mappings_of(worker_), static_cast<int>(kClients));
  ASSERT_EQ(::kill(worker_, SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return memfd_mappings_of(worker_) < 10; })) << memfd_mappings_of(worker_);
}

}  // namespace
}  // namespace shoal::test
