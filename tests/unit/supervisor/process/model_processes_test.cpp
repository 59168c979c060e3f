// ModelProcesses with zygotes that the test plays (tests/support/puppet_zygote.cpp): real processes, real sockets, real deaths.
#include "supervisor/process/model_processes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <unordered_set>

#include "shm/base/errors.hpp"
#include "supervisor/process/sent_pidfd.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/no_descriptors.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

using test::ScratchDirectory;
using wire::ControlKind;
using wire::ControlMessage;
using namespace std::chrono_literals;

constexpr std::uint64_t kSecondNs = 1'000'000'000;

UniqueFd pidfd_of(pid_t pid, unsigned flags = 0) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, flags))); }

bool is_dead(const UniqueFd& pidfd) {
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, 0) == 1;
}

/// A process that is nobody's worker, and must live through whatever a zygote says of it.
class Stranger {
 public:
  Stranger() : pid_(test::start_child([] { return ::pause(); })), pidfd_(pidfd_of(pid_)) {}
  ~Stranger() {
    EXPECT_FALSE(is_dead(pidfd_)) << "a stranger was killed";
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  UniqueFd pidfd_;
};

/// What ModelProcesses tells its owner.
struct Events : ProcessObserver {
  Status model_loaded(std::string_view text) override {
    loaded.emplace_back(text);
    return refusal;
  }
  void model_failed(const std::string& reason) override { failure = reason; }
  void worker_ready(const WorkerProcess& worker) override { ready.push_back(worker.incarnation); }
  void worker_leaving(const WorkerProcess& worker) override { leaving.push_back(worker.incarnation); }
  void worker_probed(const WorkerProcess& worker, const Status&) override { probed.push_back(worker.incarnation); }
  void worker_died(WorkerProcess& worker) override { died[worker.incarnation] = worker.ended_because; }
  void worker_reaped(std::uint64_t incarnation, int status) override { reaped[incarnation] = status; }
  std::uint64_t answered_by(std::uint64_t incarnation) const override { return answered.contains(incarnation) ? 1 : 0; }
  bool holds_requests(std::uint64_t) const override { return false; }

  Status refusal;
  std::vector<std::string> loaded;
  std::string failure;
  std::vector<std::uint64_t> ready, leaving, probed;
  std::map<std::uint64_t, std::string> died;
  std::map<std::uint64_t, int> reaped;
  std::unordered_set<std::uint64_t> answered;
};

/// A FORK that the zygote was told, and the worker it became.
struct Fork {
  std::uint64_t incarnation = 0, lanes = 0;
  std::string directory;
  UniqueFd control, page;
  pid_t pid = -1;
  UniqueFd pidfd;

  void say(const ControlMessage& message) const { EXPECT_TRUE(wire::send_control(control.get(), message).ok()); }
  void say_ready() const {
    std::string paths;
    for (std::uint64_t lane = 0; lane < lanes; ++lane) paths += lane_path(directory, incarnation, static_cast<int>(lane)) + "\n";
    say({.kind = ControlKind::kReady, .id = incarnation, .text = paths});
  }
  /// End of file: the supervisor has closed its end.
  bool is_told_to_go() const {
    const auto message = wire::receive_control(control.get());
    return message.status().code() == StatusCode::kUnavailable;
  }
};

/// The test's hold on one puppet.
class Puppet {
 public:
  explicit Puppet(UniqueFd commands) : commands_(std::move(commands)) {
    ControlMessage hello = receive(commands_);
    pid_ = static_cast<pid_t>(hello.a);
    pidfd_ = pidfd_of(pid_);
    if (!hello.fds.empty()) control_ = std::move(hello.fds[0]);
  }
  Puppet(Puppet&&) = default;
  Puppet& operator=(Puppet&&) = default;

  pid_t pid() const { return pid_; }
  bool is_dead() const { return supervisor::is_dead(pidfd_); }
  /// Waits for its end; what it said before is unread still.
  void kill() const {
    ::kill(pid_, SIGKILL);
    pollfd end{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&end, 1, 10'000), 1);
  }
  void close_control() { control_.reset(); }
  const UniqueFd& control() const { return control_; }

  void say(const ControlMessage& message) const { EXPECT_TRUE(wire::send_control(control_.get(), message).ok()); }
  ControlMessage hear() const { return receive(control_); }
  bool hears_nothing() const {
    pollfd waiting{.fd = control_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) == 0;
  }
  Fork hear_fork() const {
    ControlMessage message = hear();
    EXPECT_EQ(message.kind, ControlKind::kFork);
    if (message.fds.size() != 2) return {};
    return {message.id, message.a, message.text, std::move(message.fds[0]), std::move(message.fds[1]), -1, {}};
  }
  void fork(Fork& worker) const {
    EXPECT_TRUE(wire::send_control(commands_.get(), {.kind = ControlKind::kFork}).ok());
    ControlMessage born = receive(commands_);
    worker.pid = static_cast<pid_t>(born.a);
    if (!born.fds.empty()) worker.pidfd = std::move(born.fds[0]);
  }
  void say_forked(const Fork& worker) const {
    ControlMessage message{.kind = ControlKind::kForked, .id = worker.incarnation, .a = static_cast<std::uint64_t>(worker.pid)};
    message.fds.push_back(duplicate_fd(worker.pidfd.get()).value());
    say(message);
  }
  /// FORK obeyed, and reported.
  Fork fork_worker() const {
    Fork worker = hear_fork();
    fork(worker);
    say_forked(worker);
    return worker;
  }
  /// Of a child that has ended.
  int reap(pid_t child) const {
    EXPECT_TRUE(wire::send_control(commands_.get(), {.kind = ControlKind::kExited, .a = static_cast<std::uint64_t>(child)}).ok());
    return static_cast<int>(receive(commands_).b);
  }

 private:
  static ControlMessage receive(const UniqueFd& socket) {
    pollfd waiting{.fd = socket.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1) << "nothing came";
    auto message = wire::receive_control(socket.get());
    if (message.ok() && *message) return **std::move(message);
    ADD_FAILURE() << "no message: " << message.status().to_string();
    return {};
  }

  UniqueFd commands_, control_, pidfd_;
  pid_t pid_ = -1;
};

class ModelProcessesTest : public testing::Test {
 protected:
  ModelProcessesTest() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // as the daemon is
    options_.name = "m";
    options_.worker_file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "shoal-puppet";
    options_.directory = directory_.path();
    options_.load_text = "what to load";
    make();
  }
  ~ModelProcessesTest() override { processes_.reset(); }

  void make() { processes_ = std::make_unique<ModelProcesses>(options_, loop_, events_, log_, births_, stuck_); }

  /// Waits for the zygote that was spawned last.
  Puppet accept() {
    pollfd waiting{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1) << "no zygote came";
    return Puppet(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  /// Starts the model up to its LOAD.
  Puppet start() {
    processes_->start();
    Puppet zygote = accept();
    EXPECT_EQ(zygote.hear().text, "what to load");
    return zygote;
  }
  Puppet start_loaded() {
    Puppet zygote = start();
    zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
    EXPECT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; })) << processes_->reason();
    return zygote;
  }
  Fork make_ready(const Puppet& zygote) {
    Fork worker = zygote.fork_worker();
    worker.say_ready();
    EXPECT_TRUE(pump_until([&] { return is_ready(worker.incarnation); })) << processes_->reason();
    return worker;
  }
  bool is_ready(std::uint64_t incarnation) const { return std::ranges::count(events_.ready, incarnation) == 1; }
  bool is_forked(std::uint64_t incarnation) const {
    const WorkerProcess* worker = processes_->find_worker(incarnation);
    return worker && worker->state != WorkerProcess::State::kForking;
  }

  /// Runs the event loop and what is due, until the condition holds.
  bool pump_until(const std::function<bool()>& condition) {
    for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; monotonic_now_ns() < end_ns;) {
      if (condition()) return true;
      pump();
    }
    return false;
  }
  void pump() {
    pollfd ready{.fd = loop_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 5);
    loop_.run_ready();
    processes_->tick(monotonic_now_ns());
  }
  /// The same, but nothing that is due later than now is done.
  bool listen_until(const std::function<bool()>& condition) {
    for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; monotonic_now_ns() < end_ns;) {
      if (condition()) return true;
      pollfd ready{.fd = loop_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 5);
      loop_.run_ready();
    }
    return false;
  }
  /// The worker has answered, is killed, and its death is seen.
  void kill_after_an_answer(const Fork& worker) {
    events_.answered.insert(worker.incarnation);
    ::kill(worker.pid, SIGKILL);
    ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  }
  /// The zygote is ended for what it said, and that is the reason that is told.
  void expect_ended(const Puppet& zygote, const std::string& why) {
    EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; })) << why;
    EXPECT_NE(processes_->reason().find(why), std::string::npos) << processes_->reason();
    ASSERT_TRUE(processes_->next_tick_ns()) << "it is not started again";
    EXPECT_GT(*processes_->next_tick_ns(), monotonic_now_ns()) << "it is started again at once";
  }

  const ScratchDirectory directory_;
  UniqueFd listener_ = test::bound_socket(directory_.path("puppet"), SOCK_SEQPACKET);
  EventLoop loop_;
  Events events_;
  Logger log_{"test"};
  Births births_;
  StuckZygotes stuck_{loop_, log_};
  ProcessOptions options_;
  std::unique_ptr<ModelProcesses> processes_;
};

UniqueFd sealed_weights(std::uint64_t bytes) {
  UniqueFd fd = create_memfd("test", bytes).value();
  EXPECT_TRUE(seal(fd, Seals::kReadOnly).ok());
  return fd;
}

ControlMessage with_fd(ControlMessage message, UniqueFd fd) {
  message.fds.push_back(std::move(fd));
  return message;
}

TEST_F(ModelProcessesTest, AModelIsLoadedAndItsWorkersAreForked) {
  options_.workers = 2;
  options_.lanes = 3;
  make();
  const Puppet zygote = start();
  EXPECT_EQ(processes_->state(), ModelState::kLoading);
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  EXPECT_EQ(events_.loaded, (std::vector<std::string>{"loaded"}));
  EXPECT_EQ(processes_->packed_bytes(), 8192u);

  const Fork first = make_ready(zygote), second = make_ready(zygote);
  EXPECT_EQ(first.lanes, 3u);
  EXPECT_NE(first.incarnation, second.incarnation);
  EXPECT_EQ(processes_->ready_workers(), 2);
  EXPECT_EQ(processes_->find_worker(first.incarnation)->pid, first.pid);
  EXPECT_EQ(processes_->find_worker(first.incarnation)->lane_paths.size(), 3u);
  EXPECT_TRUE(zygote.hears_nothing());
}

TEST_F(ModelProcessesTest, ReadyMayComeBeforeForked) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  worker.say_ready();
  pump();
  EXPECT_EQ(processes_->ready_workers(), 0);
  zygote.fork(worker);
  zygote.say_forked(worker);
  EXPECT_TRUE(pump_until([&] { return processes_->ready_workers() == 1; }));
}

TEST_F(ModelProcessesTest, AFailedLoadIsAFailedModelWithItsReason) {
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoadFailed, .a = static_cast<std::uint64_t>(StatusCode::kDataLoss), .text = "torn file"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("torn file"), std::string::npos) << events_.failure;
  EXPECT_EQ(processes_->next_tick_ns(), std::nullopt);
}

TEST_F(ModelProcessesTest, AFailureIsBelievedWithACodeOfOursAndItsTextIsCut) {
  for (const std::uint64_t code : {std::uint64_t{0}, std::uint64_t{65536}}) {
    make();
    const Puppet zygote = start();
    zygote.say({.kind = ControlKind::kLoadFailed, .a = code, .text = "torn file"});
    expect_ended(zygote, "LOAD_FAILED with the status code");
  }
  make();
  events_ = {};
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoadFailed, .a = 1, .text = std::string(60'000, 'x')});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_LT(events_.failure.size(), 5000u);
}

TEST_F(ModelProcessesTest, AVersionThatItsOwnerRefusesHasFailed) {
  events_.refusal = failed_precondition("another version");
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("another version"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, PackedWeightsMustBeSealedAndAllThere) {
  UniqueFd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), off_t{1} << 40), 0);
  ASSERT_TRUE(seal(sparse, Seals::kReadOnly).ok());
  std::pair<std::string, UniqueFd> descriptors[] = {{"of which 0 are allocated", std::move(sparse)},
                                                    {"without F_SEAL", create_memfd("open", 4096).value()},
                                                    {"not a memfd", std::move(wire::make_control_pair().value().ours)}};
  for (auto& [why, fd] : descriptors) {
    make();
    events_ = {};
    const Puppet zygote = start();
    zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, std::move(fd)));
    ASSERT_TRUE(pump_until([&] { return processes_->state() != ModelState::kLoading; }));
    EXPECT_EQ(processes_->state(), ModelState::kFailed) << why;
    EXPECT_NE(events_.failure.find(why), std::string::npos) << events_.failure;
    EXPECT_EQ(processes_->packed_bytes(), 0u);
  }
}

TEST_F(ModelProcessesTest, FailedStartsWaitTwiceAsLongEachTimeAndFiveFailTheModel) {
  Puppet zygote = start();
  for (int failures = 1; failures < ModelProcesses::kFailedStartsForFailure; ++failures) {
    zygote.kill();
    ASSERT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
    ASSERT_TRUE(processes_->next_tick_ns());
    const std::uint64_t delay_ns = *processes_->next_tick_ns() - monotonic_now_ns();
    EXPECT_LE(delay_ns, Backoff::kFirstNs << (failures - 1));
    EXPECT_GT(delay_ns, (Backoff::kFirstNs << (failures - 1)) / 4);
    EXPECT_FALSE(processes_->makes_no_progress());
    processes_->tick(*processes_->next_tick_ns());
    zygote = accept();
  }
  zygote.kill();
  ASSERT_TRUE(listen_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("killed by signal 9 (5 times in a row)"), std::string::npos) << events_.failure;
  EXPECT_TRUE(processes_->makes_no_progress());
}

TEST_F(ModelProcessesTest, AZygoteIsReplacedWhileItsWorkersGoOn) {
  const Puppet zygote = start();
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(4096)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  const Fork worker = make_ready(zygote);
  zygote.kill();
  ASSERT_TRUE(pump_until([&] { return processes_->zygote_pid() != zygote.pid(); }));
  const Puppet second = accept();
  const ControlMessage load = second.hear();
  EXPECT_EQ(load.kind, ControlKind::kLoad);
  ASSERT_EQ(load.fds.size(), 1u) << "it gets the weights of the first";
  EXPECT_EQ(check_sealed(load.fds[0], Seals::kReadOnly).value(), 4096u);
  EXPECT_EQ(processes_->ready_workers(), 1);
  EXPECT_FALSE(is_dead(worker.pidfd));

  // Orphaned workers are watched as before, and the second zygote replaces them.
  second.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  events_.answered.insert(worker.incarnation);
  ::kill(worker.pid, SIGKILL);
  ASSERT_TRUE(pump_until([&] { return events_.died.contains(worker.incarnation) && !second.hears_nothing(); }));
  const Fork next = make_ready(second);
  EXPECT_GT(next.incarnation, worker.incarnation);
}

TEST_F(ModelProcessesTest, SurplusWorkersLeaveTheYoungestFirst) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork first = make_ready(zygote), second = make_ready(zygote);
  processes_->set_workers(1);
  EXPECT_EQ(events_.leaving, (std::vector<std::uint64_t>{second.incarnation}));
  EXPECT_FALSE(second.is_told_to_go()) << "it may hold requests";
  processes_->let_go(second.incarnation);
  EXPECT_TRUE(second.is_told_to_go());
  ::kill(second.pid, SIGKILL);
  ASSERT_TRUE(pump_until([&] { return events_.died.contains(second.incarnation); }));
  EXPECT_TRUE(zygote.hears_nothing()) << "nobody replaces it";
  EXPECT_EQ(processes_->ready_workers(), 1);
}

TEST_F(ModelProcessesTest, AWorkerThatDiesIsReplacedAtOnceIfItHasAnswered) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  kill_after_an_answer(worker);
  EXPECT_GT(make_ready(zygote).incarnation, worker.incarnation);
}

// fork() fails for lack of memory or process ids. Other processes may end.
TEST_F(ModelProcessesTest, FailedForksAreTriedAgainAndFailNoModel) {
  const Puppet zygote = start_loaded();
  for (int failures = 1; failures <= ModelProcesses::kFailedStartsForFailure; ++failures) {
    EXPECT_FALSE(processes_->makes_no_progress());
    const Fork fork = zygote.hear_fork();
    zygote.say({.kind = ControlKind::kForkFailed, .id = fork.incarnation, .text = "no memory"});
    ASSERT_TRUE(listen_until([&] { return !processes_->find_worker(fork.incarnation); }));
    ASSERT_EQ(processes_->state(), ModelState::kReady) << events_.failure;
    EXPECT_EQ(processes_->reason(), "no memory");
    EXPECT_TRUE(zygote.hears_nothing()) << "it waits";
    EXPECT_EQ(processes_->makes_no_progress(), failures == ModelProcesses::kFailedStartsForFailure);
    ASSERT_TRUE(pump_until([&] { return !zygote.hears_nothing(); })) << "it is tried again";
  }
  make_ready(zygote);
  EXPECT_FALSE(processes_->makes_no_progress());
}

TEST_F(ModelProcessesTest, AFirstLoadWaitsUntilThereAreDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  {
    const test::NoDescriptors none;
    processes_->start();
    for (int tries = 1; tries <= 7; ++tries) {
      ASSERT_EQ(processes_->state(), ModelState::kLoading) << events_.failure;
      EXPECT_NE(processes_->reason().find("Too many open files"), std::string::npos) << processes_->reason();
      ASSERT_TRUE(processes_->next_tick_ns());
      EXPECT_GT(*processes_->next_tick_ns(), monotonic_now_ns()) << "it waits";
      if (tries < 7) processes_->tick(*processes_->next_tick_ns());
    }
    EXPECT_TRUE(processes_->makes_no_progress()) << "who asked for the model need not wait";
  }
  processes_->tick(*processes_->next_tick_ns());
  const Puppet zygote = accept();
  EXPECT_EQ(zygote.hear().text, "what to load");
  zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  make_ready(zygote);
  EXPECT_FALSE(processes_->makes_no_progress());
}

TEST_F(ModelProcessesTest, LoadedWeightsWaitUntilThereAreDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const Puppet zygote = start();
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  {
    const test::NoDescriptors none;
    loop_.run_ready();
    EXPECT_NE(processes_->state(), ModelState::kFailed) << events_.failure;
  }
  ASSERT_TRUE(pump_until([&] { return processes_->zygote_pid() != zygote.pid() && processes_->zygote_pid() != -1; }));
  const Puppet second = accept();
  EXPECT_EQ(second.hear().text, "what to load");
  second.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  EXPECT_EQ(processes_->packed_bytes(), 8192u);
}

TEST_F(ModelProcessesTest, AZygoteMayReportTheEndOfAWorkerForWhichThereWereNoDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  {
    const test::NoDescriptors none;
    loop_.run_ready();
  }
  EXPECT_EQ(processes_->find_worker(worker.incarnation), nullptr);
  ::kill(worker.pid, SIGKILL);  // the end of its control socket would end it
  zygote.say({.kind = ControlKind::kExited,
              .id = worker.incarnation,
              .a = static_cast<std::uint64_t>(worker.pid),
              .b = static_cast<std::uint64_t>(zygote.reap(worker.pid))});
  ASSERT_TRUE(pump_until([&] { return !zygote.hears_nothing(); })) << "it is told to fork again";
  const Fork next = make_ready(zygote);
  EXPECT_EQ(processes_->ready_workers(), 1);
  EXPECT_EQ(processes_->zygote_pid(), zygote.pid());
}

TEST_F(ModelProcessesTest, AProgramThatIsMissingFailsTheModelAtOnce) {
  options_.worker_file = directory_.path("nowhere");
  make();
  processes_->start();
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("nowhere"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, ALoadThatIsTooLongFailsTheModelAtOnce) {
  options_.load_text = std::string(wire::kMaxControlText + 1, 'x');
  make();
  processes_->start();
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("at most 61440"), std::string::npos) << events_.failure;
  EXPECT_FALSE(processes_->next_tick_ns()) << "nothing is tried again";
}

// The page is the worker's to write: it is no evidence of a request that the worker was never sent.
TEST_F(ModelProcessesTest, WhatAStatusPageClaimsDoesNotSpareAWorkerTheBackOff) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  zygote.fork(worker);
  auto page = Segment::map(worker.page, Segment::Access::kReadWrite).value();
  reinterpret_cast<wire::LaneLine*>(page.mutable_bytes().data())->running_request.store(7);
  ::kill(worker.pid, SIGKILL);
  zygote.say_forked(worker);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_TRUE(zygote.hears_nothing()) << "the next fork must wait";
  EXPECT_GT(processes_->next_tick_ns().value_or(0), monotonic_now_ns());
}

// ---- what a zygote may not do ----

TEST_F(ModelProcessesTest, ADescriptorThatIsNoPidfdOfAWorkerEndsTheZygote) {
  const Stranger stranger;
  const auto none = [] { return UniqueFd(); };
  const auto thread_of = [](pid_t pid) { return pidfd_of(pid, O_EXCL); };  // PIDFD_THREAD, since Linux 6.9
  struct Forgery {
    std::string name;
    std::function<UniqueFd(const Puppet&)> descriptor;
    std::function<pid_t(const Puppet&)> claimed;
  };
  const auto self = [](const Puppet&) { return ::getpid(); };
  const auto its_pid = [](const Puppet& zygote) { return zygote.pid(); };
  const auto strange = [&](const Puppet&) { return stranger.pid(); };
  const Forgery forgeries[] = {
      {"a memfd", [](auto&) { return create_memfd("forged", 4096).value(); }, strange},
      {"a socket", [](auto&) { return std::move(wire::make_control_pair().value().ours); }, strange},
      {"an eventfd", [](auto&) { return UniqueFd(::eventfd(1, EFD_CLOEXEC)); }, strange},
      {"an epoll", [](auto&) { return UniqueFd(::epoll_create1(EPOLL_CLOEXEC)); }, strange},
      {"a file", [](auto&) { return UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }, strange},
      {"a directory of /proc", [&](auto&) { return UniqueFd(::open(format("/proc/{}", stranger.pid()).c_str(), O_RDONLY)); },
       strange},
      {"an O_PATH descriptor", [](auto&) { return UniqueFd(::open("/dev/null", O_PATH | O_CLOEXEC)); }, strange},
      {"nothing", [&](auto&) { return none(); }, strange},
      {"the supervisor's pidfd", [](auto&) { return pidfd_of(::getpid()); }, self},
      {"a stranger's pidfd", [&](auto&) { return pidfd_of(stranger.pid()); }, strange},
      {"its own pidfd", [](const Puppet& zygote) { return pidfd_of(zygote.pid()); }, its_pid},
      {"a thread's pidfd", [&](auto&) { return thread_of(stranger.pid()); }, strange},
  };
  for (const Forgery& forgery : forgeries) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork fork = zygote.hear_fork();
    ControlMessage message{
        .kind = ControlKind::kForked, .id = fork.incarnation, .a = static_cast<std::uint64_t>(forgery.claimed(zygote))};
    if (UniqueFd descriptor = forgery.descriptor(zygote)) message.fds.push_back(std::move(descriptor));
    zygote.say(message);
    SCOPED_TRACE(forgery.name);
    expect_ended(zygote, format("FORKED for worker {}", fork.incarnation));
    EXPECT_TRUE(events_.died.empty());
  }
}

/// Locks the epoll descriptor for as long as this process lives: the kernel holds its lock while it writes the events, and
/// writing to this page takes for ever. Returns if this process may not have such a page.
void lock_for_ever(int epoll) {
  const UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register missing{
      .range = {reinterpret_cast<std::uintptr_t>(page), page_bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  if (::ioctl(faults.get(), UFFDIO_API, &api) != 0 || ::ioctl(faults.get(), UFFDIO_REGISTER, &missing) != 0) return;
  ::epoll_wait(epoll, static_cast<epoll_event*>(page), 1, -1);
}

TEST(SentPidfd, ADescriptorWhoseOwnerLocksItIsRefusedAtOnce) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC)), event(::eventfd(1, EFD_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &readable), 0);
  const pid_t owner = test::start_child([&] {
    lock_for_ever(epoll.get());
    return 77;
  });
  const auto waits_for_its_page = [&] {
    std::ifstream file(format("/proc/{}/wchan", owner));
    std::string where;
    return std::getline(file, where) && where == "handle_userfault";
  };
  const UniqueFd end = pidfd_of(owner);
  for (int ms = 0; ms < 5000 && !is_dead(end) && !waits_for_its_page(); ++ms) std::this_thread::sleep_for(1ms);
  if (!waits_for_its_page()) {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
    GTEST_SKIP() << "this process may not use userfaultfd, or may not see that the other one waits for it";
  }
  std::atomic<bool> is_checked = false;
  Status checked;
  {
    const std::jthread checker([&] {
      checked = check_sent_pidfd(epoll, 1, Child{}).status();
      is_checked = true;
    });
    for (int ms = 0; ms < 5000 && !is_checked; ++ms) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_checked) << "it waits for the descriptor's owner";
    ::kill(owner, SIGKILL);
  }
  EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(test::exit_code_of(owner), 128 + SIGKILL);
}

TEST_F(ModelProcessesTest, APidfdOfAnotherProcessThanTheMessageNamesEndsTheZygote) {
  const Stranger stranger;
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  zygote.fork(fork);
  zygote.say(with_fd({.kind = ControlKind::kForked, .id = fork.incarnation, .a = static_cast<std::uint64_t>(stranger.pid())},
                     duplicate_fd(fork.pidfd.get()).value()));
  expect_ended(zygote, "a pidfd of process");
}

TEST_F(ModelProcessesTest, OneProcessIsOneWorker) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  Fork first = zygote.fork_worker(), second = zygote.hear_fork();
  second.pid = first.pid;
  second.pidfd = duplicate_fd(first.pidfd.get()).value();
  zygote.say_forked(second);
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
  EXPECT_NE(processes_->reason().find("is another worker"), std::string::npos) << processes_->reason();
  EXPECT_TRUE(is_forked(first.incarnation)) << "that one goes on";
}

TEST_F(ModelProcessesTest, AWorkerThatDiesBeforeItsForkIsReportedIsADeath) {
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  zygote.fork(fork);
  ::kill(fork.pid, SIGKILL);
  const int status = zygote.reap(fork.pid);
  zygote.say_forked(fork);
  zygote.say({.kind = ControlKind::kExited,
              .id = fork.incarnation,
              .a = static_cast<std::uint64_t>(fork.pid),
              .b = static_cast<std::uint64_t>(status)});
  ASSERT_TRUE(listen_until([&] { return events_.reaped.contains(fork.incarnation); }));
  EXPECT_TRUE(events_.died.contains(fork.incarnation));
  EXPECT_EQ(events_.reaped[fork.incarnation], status);
  EXPECT_NE(processes_->zygote_pid(), -1);
  EXPECT_GT(processes_->next_tick_ns().value_or(0), monotonic_now_ns()) << "the next fork waits";
}

bool is_child_of(pid_t pid, pid_t parent) {
  std::ifstream status(format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5)) == parent;
  }
  return false;
}

TEST_F(ModelProcessesTest, AWorkerWhoseZygoteDiedBeforeItsReportWasReadIsStillTaken) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  zygote.kill();
  for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; !is_child_of(worker.pid, ::getpid());)
    ASSERT_LT(monotonic_now_ns(), end_ns) << "the orphan came to nobody";
  worker.say_ready();
  ASSERT_TRUE(pump_until([&] { return processes_->ready_workers() == 1; })) << processes_->reason();
  ::kill(worker.pid, SIGKILL);
  EXPECT_TRUE(pump_until([&] { return events_.died.contains(worker.incarnation); }));
}

// The kernel gives away the children of a dying process before its pidfd becomes readable.
TEST_F(ModelProcessesTest, AnOrphanIsTakenBeforeTheDeathOfItsZygoteIsSeen) {
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  const Stranger orphan;  // a child of this process
  ASSERT_EQ(::setpgid(orphan.pid(), zygote.pid()), 0);
  fork.pid = orphan.pid();
  fork.pidfd = pidfd_of(orphan.pid());
  zygote.say_forked(fork);
  EXPECT_TRUE(pump_until([&] { return is_forked(fork.incarnation); })) << processes_->reason();
}

TEST_F(ModelProcessesTest, AChildOfTheSupervisorIsNoOrphanOfADeadZygote) {
  const Stranger stranger;
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  fork.pid = stranger.pid();
  fork.pidfd = pidfd_of(stranger.pid());
  zygote.say_forked(fork);
  zygote.kill();
  EXPECT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
  EXPECT_NE(processes_->reason().find("is no child of zygote"), std::string::npos) << processes_->reason();
  EXPECT_FALSE(is_forked(fork.incarnation));
}

TEST_F(ModelProcessesTest, WhatAZygoteSaysOutOfTurnEndsIt) {
  struct Breach {
    std::string why;
    std::function<ControlMessage(std::uint64_t)> message;  // of the number of the worker that it was told to fork
  };
  const Breach breaches[] = {
      {"LOADED twice", [](auto) { return ControlMessage{.kind = ControlKind::kLoaded, .text = "loaded"}; }},
      {"LOAD_FAILED after LOADED", [](auto) { return ControlMessage{.kind = ControlKind::kLoadFailed, .a = 1}; }},
      {"FORKED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kForked, .id = id + 1000}; }},
      {"FORK_FAILED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kForkFailed, .id = id + 1000}; }},
      {"EXITED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kExited, .id = id}; }},
      {"a message of kind 30", [](auto id) { return ControlMessage{.kind = ControlKind::kReady, .id = id}; }},
      {"a message of kind 999", [](auto) { return ControlMessage{.kind = static_cast<ControlKind>(999)}; }},
  };
  for (const Breach& breach : breaches) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork fork = zygote.hear_fork();
    zygote.say(breach.message(fork.incarnation));
    SCOPED_TRACE(breach.why);
    expect_ended(zygote, breach.why);
    EXPECT_EQ(events_.loaded.size(), 1u);
    EXPECT_TRUE(events_.reaped.empty());
  }
}

TEST_F(ModelProcessesTest, BytesThatAreNoMessageEndTheZygote) {
  for (const std::string& bytes : {std::string("x"), std::string(40, '\0'), std::string(64 * 1024, 'A')}) {
    make();
    const Puppet zygote = start_loaded();
    ASSERT_EQ(::send(zygote.control().get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    expect_ended(zygote, "control message");
  }
}

TEST_F(ModelProcessesTest, TooManyDescriptorsEndTheZygote) {
  const Puppet zygote = start_loaded();
  const int fds[] = {0, 0, 0, 0, 0, 0};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fds)] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = room;
  packet.msg_controllen = sizeof room;
  cmsghdr* rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
  ASSERT_EQ(::sendmsg(zygote.control().get(), &packet, 0), 1);
  expect_ended(zygote, "control message");
}

// Numbers of workers are numbers of all models.
TEST_F(ModelProcessesTest, AZygoteReportsTheEndOfItsOwnWorkersOnlyAndOnce) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  kill_after_an_answer(worker);
  const ControlMessage exited{
      .kind = ControlKind::kExited, .id = worker.incarnation, .a = static_cast<std::uint64_t>(worker.pid), .b = 9};
  zygote.say(exited);
  ASSERT_TRUE(listen_until([&] { return events_.reaped.contains(worker.incarnation); }));
  EXPECT_EQ(events_.reaped[worker.incarnation], 9);
  zygote.say(exited);
  expect_ended(zygote, "EXITED for worker");
}

TEST_F(ModelProcessesTest, AZygoteThatBreaksTheRulesAgainAndAgainFailsItsModel) {
  Puppet zygote = start_loaded();
  for (int breaches = 1; breaches <= ModelProcesses::kFailedStartsForFailure; ++breaches) {
    zygote.say({.kind = static_cast<ControlKind>(999)});
    ASSERT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
    if (breaches == ModelProcesses::kFailedStartsForFailure) break;
    ASSERT_TRUE(processes_->next_tick_ns());
    EXPECT_GT(*processes_->next_tick_ns() - monotonic_now_ns(), (Backoff::kFirstNs << (breaches - 1)) / 4) << breaches;
    processes_->tick(*processes_->next_tick_ns());
    zygote = accept();
    zygote.hear();
    zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
    ASSERT_TRUE(listen_until([&] { return !zygote.hears_nothing(); }));
    const Fork worker = zygote.fork_worker();  // a good deed between does not count
    ASSERT_TRUE(listen_until([&] { return is_forked(worker.incarnation); }));
    kill_after_an_answer(worker);
  }
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("broke the protocol"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, AZygoteThatFloodsIsEndedAtItsFirstBreach) {
  const Puppet zygote = start();
  for (int i = 0; i < 100; ++i) {
    if (!wire::send_control(zygote.control().get(), {.kind = ControlKind::kForkFailed, .id = 1000}).ok()) break;
  }
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
}

// ---- limits ----

TEST_F(ModelProcessesTest, AZygoteThatLeavesACommandUnansweredIsKilled) {
  const Puppet zygote = start_loaded();
  const Fork fork = zygote.hear_fork();
  processes_->tick(monotonic_now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
  EXPECT_TRUE(fork.is_told_to_go()) << "who may have been forked";
  EXPECT_EQ(births_.unborn.size(), 1u);
}

TEST_F(ModelProcessesTest, AFirstLoadThatTakesTooLongFailsTheModel) {
  options_.load_limit_ns = 5 * kSecondNs;
  make();
  const Puppet zygote = start();
  processes_->tick(monotonic_now_ns() + 6 * kSecondNs);
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("load_timeout_s"), std::string::npos) << events_.failure;
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->all_gone(); }));
}

// ---- children that a zygote did not report ----

TEST_F(ModelProcessesTest, HiddenChildrenEndWithTheirZygoteAndItsWorkersGoOn) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  Fork hidden;
  zygote.fork(hidden);
  pump();
  EXPECT_FALSE(is_dead(hidden.pidfd)) << "its zygote lives";
  zygote.kill();
  EXPECT_TRUE(pump_until([&] { return is_dead(hidden.pidfd); }));
  const Puppet next = accept();
  EXPECT_EQ(next.hear().text, "what to load");
  EXPECT_FALSE(is_dead(worker.pidfd));
  EXPECT_TRUE(events_.died.empty());
}

TEST_F(ModelProcessesTest, HiddenChildrenOfAZygoteThatIsLeftAloneEndToo) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unanswered = zygote.hear_fork();
  Fork hidden;
  zygote.fork(hidden);
  processes_->tick(monotonic_now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  processes_->tick(monotonic_now_ns() + ModelProcesses::kZygoteDeathLimitNs + 1);
  EXPECT_EQ(stuck_.count(), 1u);
  EXPECT_TRUE(listen_until([&] { return is_dead(hidden.pidfd); }));
  EXPECT_FALSE(is_dead(worker.pidfd));
}

TEST_F(ModelProcessesTest, KillAllEndsHiddenChildrenToo) {
  const Puppet zygote = start_loaded();
  Fork hidden;
  zygote.fork(hidden);
  processes_.reset();
  EXPECT_TRUE(listen_until([&] { return is_dead(hidden.pidfd); }));
}

// ---- a zygote that was killed and does not die: the loop, which would see its death, does not run ----

TEST_F(ModelProcessesTest, AZygoteThatDoesNotDieIsLeftAloneAndReapedLater) {
  const Puppet zygote = start();
  processes_->stop();
  processes_->kill_all();
  ASSERT_TRUE(processes_->next_tick_ns());
  const std::uint64_t limit_ns = *processes_->next_tick_ns();
  processes_->kill_all();
  EXPECT_EQ(processes_->next_tick_ns(), limit_ns) << "the first SIGKILL counts";
  processes_->tick(limit_ns - 1);
  EXPECT_FALSE(processes_->all_gone());
  processes_->tick(limit_ns);
  EXPECT_TRUE(processes_->all_gone());
  EXPECT_EQ(processes_->next_tick_ns(), std::nullopt);
  EXPECT_EQ(stuck_.count(), 1u);
  processes_.reset();  // the version is freed
  EXPECT_TRUE(listen_until([&] { return stuck_.count() == 0; })) << "nobody hears of its death";
  EXPECT_EQ(::kill(zygote.pid(), 0), -1) << "it is not reaped";
}

TEST_F(ModelProcessesTest, AZygoteThatDoesNotDieIsReplacedAndItsWorkersGoOn) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unborn = zygote.hear_fork();
  processes_->tick(monotonic_now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  processes_->tick(monotonic_now_ns() + ModelProcesses::kZygoteDeathLimitNs + 1);
  EXPECT_EQ(stuck_.count(), 1u);
  EXPECT_EQ(births_.unborn.size(), 1u) << "it may have forked the other worker";
  processes_->tick(monotonic_now_ns());
  const Puppet next = accept();
  EXPECT_EQ(next.hear().text, "what to load");
  next.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return !next.hears_nothing(); })) << processes_->reason();
  const Fork second = next.fork_worker();
  second.say_ready();
  EXPECT_TRUE(pump_until([&] { return processes_->ready_workers() == 2; })) << processes_->reason();
  EXPECT_TRUE(events_.died.empty());
}

TEST_F(ModelProcessesTest, WhenTooManyZygotesDoNotDieAModelWaitsForItsOwn) {
  std::vector<std::unique_ptr<ModelProcesses>> models;
  const auto add = [&] {
    models.push_back(std::make_unique<ModelProcesses>(options_, loop_, events_, log_, births_, stuck_));
    models.back()->start();
    models.back()->stop();
    models.back()->kill_all();
  };
  for (std::size_t i = 0; i <= StuckZygotes::kMost; ++i) add();
  const std::uint64_t late_ns = monotonic_now_ns() + ModelProcesses::kZygoteDeathLimitNs + 1;
  for (const auto& model : models) model->tick(late_ns);
  EXPECT_EQ(stuck_.count(), StuckZygotes::kMost);
  EXPECT_TRUE(models[StuckZygotes::kMost - 1]->all_gone());
  EXPECT_FALSE(models.back()->all_gone());
  EXPECT_EQ(models.back()->next_tick_ns(), std::nullopt) << "there is nothing to do before one of them dies";
  EXPECT_TRUE(listen_until([&] { return stuck_.count() == 0 && models.back()->all_gone(); }));
}

TEST_F(ModelProcessesTest, AWorkerThatIsNotReadyInTimeIsKilled) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  ASSERT_TRUE(pump_until([&] { return is_forked(worker.incarnation); }));
  processes_->tick(monotonic_now_ns() + ModelProcesses::kWorkerStartLimitNs + kSecondNs);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.died[worker.incarnation], "not ready in time");
}

// ---- the daemon stood still ----

TEST_F(ModelProcessesTest, TimeInWhichTheDaemonDidNotRunCountsForNoLoad) {
  const Puppet zygote = start();
  const std::uint64_t limit_ns = *processes_->next_tick_ns();
  processes_->postpone(60 * kSecondNs);
  EXPECT_EQ(processes_->next_tick_ns(), limit_ns + 60 * kSecondNs);
  processes_->tick(limit_ns + 59 * kSecondNs);
  EXPECT_EQ(processes_->state(), ModelState::kLoading);
  EXPECT_FALSE(zygote.is_dead());
}

TEST_F(ModelProcessesTest, TimeInWhichTheDaemonDidNotRunEndsNoZygoteAndNoWorker) {
  options_.workers = 3;
  make();
  const Puppet zygote = start_loaded();
  const Fork starting = zygote.fork_worker(), aborted = zygote.fork_worker(), unanswered = zygote.hear_fork();
  ASSERT_TRUE(listen_until([&] { return is_forked(starting.incarnation) && is_forked(aborted.incarnation); }));
  processes_->abort_worker(aborted.incarnation, 0, "it hangs", EndReason::kHung);
  const std::uint64_t limit_ns = *processes_->next_tick_ns();
  processes_->postpone(60 * kSecondNs);
  EXPECT_EQ(processes_->next_tick_ns(), limit_ns + 60 * kSecondNs);
  processes_->tick(limit_ns + 59 * kSecondNs);
  EXPECT_EQ(processes_->next_tick_ns(), limit_ns + 60 * kSecondNs) << "something was done";
  EXPECT_FALSE(zygote.is_dead());
  EXPECT_FALSE(is_dead(starting.pidfd));
}

// ---- what a worker may not do ----

TEST_F(ModelProcessesTest, WhatAWorkerSaysOutOfTurnEndsIt) {
  struct Breach {
    std::string why;
    std::function<void(const Fork&)> say;
  };
  const Breach breaches[] = {
      {"ready twice", [](const Fork& worker) { worker.say_ready(); }},
      {"a probe that was not sent",
       [](const Fork& worker) { worker.say({.kind = ControlKind::kProbed, .id = worker.incarnation}); }},
      {"with descriptors",
       [](const Fork& worker) { worker.say(with_fd({.kind = ControlKind::kProbed}, UniqueFd(::eventfd(0, EFD_CLOEXEC)))); }},
      {"a message of kind 14", [](const Fork& worker) { worker.say({.kind = ControlKind::kForked, .id = worker.incarnation}); }},
      {"too short", [](const Fork& worker) { EXPECT_EQ(::send(worker.control.get(), "x", 1, 0), 1); }},
  };
  for (const Breach& breach : breaches) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork worker = make_ready(zygote);
    breach.say(worker);
    ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); })) << breach.why;
    EXPECT_NE(events_.died[worker.incarnation].find(breach.why), std::string::npos) << events_.died[worker.incarnation];
    EXPECT_TRUE(events_.probed.empty());
    EXPECT_FALSE(zygote.is_dead());
  }
}

TEST_F(ModelProcessesTest, OnlyTheLanesOfAWorkerAreTakenFromIt) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  worker.say(
      {.kind = ControlKind::kReady, .id = worker.incarnation, .text = lane_path(worker.directory, worker.incarnation + 1, 0)});
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_NE(events_.died[worker.incarnation].find("ready with lane socket"), std::string::npos);
  EXPECT_TRUE(events_.ready.empty());
}

TEST_F(ModelProcessesTest, AProbeIsAnsweredOnce) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  ASSERT_TRUE(processes_->probe(worker.incarnation).ok());
  worker.say({.kind = ControlKind::kProbed, .id = worker.incarnation});
  EXPECT_TRUE(listen_until([&] { return events_.probed.size() == 1; }));
  worker.say({.kind = ControlKind::kProbed, .id = worker.incarnation});
  EXPECT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.probed.size(), 1u);
}

// What breaks the rules before its fork is reported has no pidfd yet, and is killed as soon as it has one.
TEST_F(ModelProcessesTest, AWorkerThatBreaksTheRulesBeforeItsReportIsKilledWithIt) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  worker.say({.kind = ControlKind::kForked});
  pump();
  zygote.fork(worker);
  zygote.say_forked(worker);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_NE(events_.died[worker.incarnation].find("a message of kind 14"), std::string::npos);
}

TEST_F(ModelProcessesTest, AWorkerThatHangsUpAndLivesOnIsKilled) {
  const Puppet zygote = start_loaded();
  Fork worker = make_ready(zygote);
  worker.control.reset();
  const auto is_silent = [&] {
    const auto next_ns = processes_->next_tick_ns();
    return next_ns && *next_ns < monotonic_now_ns() + 2 * kSecondNs;
  };
  ASSERT_TRUE(listen_until(is_silent));
  EXPECT_TRUE(events_.died.empty()) << "it may be dying by itself";
  processes_->tick(monotonic_now_ns() + 2 * kSecondNs);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.died[worker.incarnation], "closed its control socket and did not end");
}

// ---- the end ----

TEST_F(ModelProcessesTest, StopTellsEverybodyToGoAndReplacesNobody) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unborn = zygote.hear_fork();
  processes_->stop();
  EXPECT_TRUE(worker.is_told_to_go());
  EXPECT_TRUE(unborn.is_told_to_go());
  EXPECT_FALSE(processes_->all_gone());
  ::kill(worker.pid, SIGKILL);
  zygote.kill();
  EXPECT_TRUE(pump_until([&] { return processes_->all_gone(); }));
  EXPECT_EQ(processes_->next_tick_ns(), std::nullopt);
  EXPECT_TRUE(events_.failure.empty());
}

TEST_F(ModelProcessesTest, KillAllEndsThoseThatDoNotGo) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  processes_->stop();
  processes_->kill_all();
  EXPECT_TRUE(pump_until([&] { return processes_->all_gone(); }));
  EXPECT_TRUE(is_dead(worker.pidfd) && zygote.is_dead());
}

}  // namespace
}  // namespace shoal::supervisor
