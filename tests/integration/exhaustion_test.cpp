// Processes that have run out of descriptors, threads, memory or disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "tests/integration/hostile_fixture.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;
using ExhaustionTest = HostileTest;

// ---- descriptors ----

rlim_t soft_limit(pid_t pid, __rlimit_resource resource, rlim_t value) {
  rlimit old{};
  EXPECT_EQ(::prlimit(pid, resource, nullptr, &old), 0);
  const rlimit wanted{value, old.rlim_max};
  EXPECT_EQ(::prlimit(pid, resource, &wanted, nullptr), 0);
  return old.rlim_cur;
}

int count_of(const std::string& text, std::string_view part) {
  int count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(ExhaustionTest, TheDaemonHasNoDescriptorsLeft) {
  const rlim_t before = soft_limit(daemon_.pid(), RLIMIT_NOFILE, descriptors_ + 12);
  std::vector<std::unique_ptr<RawClient>> crowd;
  int attached = 0, refused = 0;
  for (int i = 0; i < 40; ++i) {
    crowd.push_back(std::make_unique<RawClient>(daemon_.directory()));
    crowd.back()->connect();
    (void)wire::send_control(crowd.back()->attach_socket(),
                             crowd.back()->make_hello());  // the daemon may have refused it already
    const auto answer = crowd.back()->receive_control();
    ASSERT_TRUE(answer.has_value()) << i;
    attached += answer->kind == wire::ControlKind::kPath;
    if (answer->kind != wire::ControlKind::kRefused) continue;
    ++refused;
    EXPECT_TRUE(contains(answer->text, "descriptors")) << answer->text;
  }
  EXPECT_GT(attached, 0);
  EXPECT_GT(refused, 0);
  const auto pool = Pool::connect({.directory = daemon_.directory()});
  EXPECT_FALSE(pool.ok());
  EXPECT_TRUE(contains(pool.status().message(), "descriptors")) << pool.status().to_string();
  // Now a worker dies, and the daemon cannot replace it: the other worker answers.
  ::kill(workers_[0], SIGKILL);
  wait_for_honest(100);
  crowd.clear();
  soft_limit(daemon_.pid(), RLIMIT_NOFILE, before);
  EXPECT_TRUE(daemon_.wait_until_ready());
}

TEST_F(ExhaustionTest, AScaleIsTakenBackWhereTheDaemonHasNoDescriptorsLeft) {
  Pool admin = daemon_.connect();
  ASSERT_TRUE(admin.describe("echo").ok());
  const rlim_t before = soft_limit(daemon_.pid(), RLIMIT_NOFILE, static_cast<rlim_t>(descriptors_of(daemon_.pid())));
  const auto changed = admin.scale("echo", 4);
  EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(changed.status().message(), "goes on as it was")) << changed.status().to_string();
  EXPECT_TRUE(contains(changed.status().message(), "Too many open files")) << changed.status().to_string();
  wait_for_honest();
  soft_limit(daemon_.pid(), RLIMIT_NOFILE, before);
  EXPECT_EQ(daemon_.workers(), workers_);
  EXPECT_EQ(admin.scale("echo", 4).value().workers, 4);
  EXPECT_TRUE(admin.scale("echo", 2).ok());
  expect_nobody_died();
}

// A model is not given up when its only worker dies meanwhile. It serves again when there are descriptors.
TEST(Exhaustion, AModelWithoutAWorkerWaitsUntilTheDaemonHasDescriptorsAgain) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  const pid_t worker = daemon.workers().at(0);
  const rlim_t before = soft_limit(daemon.pid(), RLIMIT_NOFILE, 3);
  ::kill(worker, SIGKILL);
  Prediction waiting = pool.submit("echo", {{"data", counting({4})}}, {.timeout = 30s});
  constexpr int kTries = 7;  // a model is given up after five failed starts
  const auto tries = [&] { return count_of(daemon.log(), "fork_not_sent"); };
  EXPECT_TRUE(eventually([&] { return pool.poll_once(), tries() >= kTries; })) << daemon.log();
  EXPECT_FALSE(waiting.ready()) << waiting.get().status().to_string();
  soft_limit(daemon.pid(), RLIMIT_NOFILE, before);
  EXPECT_TRUE(waiting.get().ok()) << waiting.get().status().to_string();
}

// Nobody asks for such a model again, so the daemon does not give it up.
TEST(Exhaustion, AModelThatIsLoadedAtTheStartWaitsForDescriptors) {
  const ScratchDirectory files;
  const std::string hold = files.path("hold"), worker = files.path("worker");
  files.write("hold", "");
  files.write("worker", "#!/bin/sh\nwhile [ -e " + hold + " ]; do sleep 0.02; done\nexec " +
                            (binary_directory() / "shoal-worker").string() + " \"$@\"\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  const DaemonFixture daemon({.worker = worker, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return contains(daemon.log(), "zygote_started model=echo"); })) << daemon.log();
  const rlim_t before = soft_limit(daemon.pid(), RLIMIT_NOFILE, 3);
  std::filesystem::remove(hold);
  const auto tries = [&] { return count_of(daemon.log(), "fork_not_sent"); };
  EXPECT_TRUE(eventually([&] { return tries() >= 7 || contains(daemon.log(), "model_failed"); })) << daemon.log();
  soft_limit(daemon.pid(), RLIMIT_NOFILE, before);
  EXPECT_TRUE(daemon.wait_until_ready()) << daemon.log();
  const auto outputs = daemon.connect().predict("echo", {{"data", counting({4})}});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
}

TEST(Exhaustion, ALoadThatLacksDescriptorsMayBeAskedForAgain) {
  const DaemonFixture daemon;
  Pool admin = daemon.connect();
  ASSERT_TRUE(admin.describe("echo").ok());
  const rlim_t before = soft_limit(daemon.pid(), RLIMIT_NOFILE, 3);
  for (const std::string& path : {std::string("builtin:identity"), std::string("/nowhere")}) {
    const Status refused = admin.load("more", path).status();
    EXPECT_EQ(refused.code(), StatusCode::kOverloaded) << refused.to_string();
    EXPECT_TRUE(contains(refused.message(), "'more'") && contains(refused.message(), "Too many open files"))
        << refused.to_string();
  }
  soft_limit(daemon.pid(), RLIMIT_NOFILE, before);
  const auto loaded = admin.load("more", "builtin:identity");
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
}

TEST_F(ExhaustionTest, AZygoteHasNoDescriptorsLeft) {
  const rlim_t before = soft_limit(zygote_, RLIMIT_NOFILE, 3);
  ::kill(workers_[0], SIGKILL);
  EXPECT_TRUE(
      eventually([&] { return contains(daemon_.log(), "fork_failed model=echo reason=\"the zygote has no file descriptors"); }));
  wait_for_honest();
  soft_limit(zygote_, RLIMIT_NOFILE, before);
  EXPECT_TRUE(daemon_.wait_until_ready());
}

TEST_F(ExhaustionTest, WorkersHaveNoDescriptorsLeft) {
  for (const pid_t worker : workers_) soft_limit(worker, RLIMIT_NOFILE, 3);
  for (int i = 0; i < 10; ++i) {
    Pool late = daemon_.connect();
    const auto outputs = late.predict("echo", {{"data", counting({4})}});
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  }
  EXPECT_TRUE(daemon_.logs("no file descriptors are left for a client's arenas"));
  wait_for_honest();
}

TEST_F(ExhaustionTest, AClientHasNoDescriptorsLeft) {
  for (int spare = 0; spare <= 24; ++spare) {
    const pid_t child = start_child([&] {
      soft_limit(::getpid(), RLIMIT_NOFILE, 256);
      std::vector<UniqueFd> taken;
      while (UniqueFd fd{::open("/dev/null", O_RDONLY)}) taken.push_back(std::move(fd));
      taken.erase(taken.end() - spare, taken.end());
      const auto pool = Pool::connect({.directory = daemon_.directory()});
      if (pool.ok()) return spare <= 15 ? 2 : 0;
      const std::string said = pool.status().to_string();
      const bool is_named = contains(said, "descriptor") || contains(said, "open files");
      return is_named && pool.status().code() == StatusCode::kUnavailable ? 0 : (std::puts(said.c_str()), 1);
    });
    EXPECT_EQ(exit_code_of(child), 0) << "with " << spare << " to spare";
  }
  expect_nobody_died();
}

// ---- threads ----

constexpr uid_t kUser = 64'124;  // has no other threads

// A child does it, as that user: root in a container may not.
void limit_threads(pid_t pid, rlim_t most) {
  const pid_t child = start_child([&] {
    rlimit limit{};
    if (::setresgid(kUser, kUser, kUser) != 0 || ::setresuid(kUser, kUser, kUser) != 0) return 1;
    if (::prlimit(pid, RLIMIT_NPROC, nullptr, &limit) != 0) return 2;
    limit.rlim_cur = std::min(most, limit.rlim_max);
    return ::prlimit(pid, RLIMIT_NPROC, &limit, nullptr) == 0 ? 0 : 3;
  });
  EXPECT_EQ(exit_code_of(child), 0);
}

rlim_t threads_of(pid_t pid) {
  const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task");
  return static_cast<rlim_t>(std::distance(begin(tasks), end(tasks)));
}

// The zygote may fork a worker, but that finds too few threads for itself: libzmq would end it.
TEST(Exhaustion, AModelWithoutAWorkerWaitsUntilThereAreThreadsAgain) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const DaemonFixture daemon({.user = kUser});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  const pid_t worker = daemon.workers().at(0), zygote = daemon.zygote();
  limit_threads(zygote, threads_of(daemon.pid()) + threads_of(zygote) + 2);
  ::kill(worker, SIGKILL);
  Prediction waiting = pool.submit("echo", {{"data", counting({4})}}, {.timeout = 30s});
  constexpr int kTries = 6;  // a model is given up after five failed starts
  EXPECT_TRUE(eventually([&] {
    pool.poll_once();
    const std::string log = daemon.log();
    return count_of(log, "worker_failed") >= 1 && count_of(log, "worker_failed") + count_of(log, "fork_failed") >= kTries;
  })) << daemon.log();
  EXPECT_TRUE(contains(daemon.log(), "ulimit -u")) << daemon.log();
  EXPECT_FALSE(waiting.ready()) << waiting.get().status().to_string();
  limit_threads(zygote, RLIM_INFINITY);
  EXPECT_TRUE(waiting.get().ok()) << waiting.get().status().to_string();
}

// ---- memory ----

/// Lets the process map this much more memory. Returns the old limit.
rlim_t leave_addresses(pid_t pid, rlim_t bytes) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  rlim_t pages = 0;
  statm >> pages;
  return soft_limit(pid, RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes);
}

TEST_F(ExhaustionTest, TheDaemonHasNoRoomForAMessage) {
  if (kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  constexpr std::size_t kHuge = 300 << 20;
  RawClient hostile(daemon_.directory());
  hostile.attach();
  wire::Request request = hostile.request(2);
  request.inputs[0] = wire::to_wire({DType::kFloat32, Shape{kHuge / 4}, nullptr});
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  Bytes head;
  wire::encode_request(request, head);
  const Bytes tensor(kHuge);
  const std::span<const std::byte> frames[] = {head, tensor};
  const rlim_t before = leave_addresses(daemon_.pid(), 64 << 20);
  ASSERT_TRUE(hostile.try_send(wire::Frames(frames)));
  // The client is disconnected: the daemon cannot receive the rest of its message.
  EXPECT_TRUE(eventually([&] { return !hostile.try_send(wire::Frames(frames).first(1)); }));
  wait_for_honest();
  EXPECT_TRUE(Pool::connect({.directory = daemon_.directory()}).ok());
  soft_limit(daemon_.pid(), RLIMIT_AS, before);
  expect_nobody_died();
}

TEST_F(ExhaustionTest, WorkersHaveNoRoomForAnArena) {
  if (kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  std::vector<rlim_t> before;
  for (const pid_t worker : workers_) before.push_back(leave_addresses(worker, 64 << 20));
  Pool large = daemon_.connect({.arena_limit_bytes = 256 << 20});
  const Status refused = large.predict("echo", {{"data", counting({4})}}).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(contains(refused.message(), "Cannot allocate memory") && contains(refused.message(), "268435456"))
      << refused.to_string();
  EXPECT_TRUE(daemon_.connect({.arena_limit_bytes = 4 << 20}).predict("echo", {{"data", counting({4})}}).ok());
  wait_for_honest();
  for (std::size_t i = 0; i < workers_.size(); ++i) soft_limit(workers_[i], RLIMIT_AS, before[i]);
  expect_nobody_died();
}

TEST_F(ExhaustionTest, AZygoteHasNoMemoryForWorkers) {
  if (kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const rlim_t before = leave_addresses(zygote_, 0);
  ::kill(workers_[0], SIGKILL);
  // The worker finds no memory for the stack of a thread, for which the C library says EAGAIN.
  EXPECT_TRUE(eventually([&] {
    const std::string log = daemon_.log();
    return contains(log, "Cannot allocate memory") || contains(log, "reason=\"start 5 threads") || !is_alive(zygote_);
  }));
  wait_for_honest();
  if (is_alive(zygote_)) soft_limit(zygote_, RLIMIT_AS, before);
  EXPECT_TRUE(daemon_.wait_until_ready(30s));
}

TEST_F(ExhaustionTest, AClientWithFewAddressesReservesLess) {
  if (kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const pid_t child = start_child([&] {
    leave_addresses(::getpid(), 32 << 20);
    Pool pool = daemon_.connect();
    const Status asked = pool.predict("echo", {{"data", counting({4})}}).status();
    return asked.ok() && pool.usage().inputs.reserved_bytes < 32 << 20 ? 0 : (std::puts(asked.to_string().c_str()), 1);
  });
  EXPECT_EQ(exit_code_of(child), 0);
  expect_nobody_died();
}

// Not half of a message, to which the next one would be added.
TEST_F(ExhaustionTest, AClientHasNoRoomForAMessage) {
  if (kSanitized) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const pid_t child = start_child([&] {
    Pool pool = daemon_.connect({.arena_limit_bytes = 4096});
    const Tensor small = counting({4}), large = counting({50 << 20});
    if (!pool.predict("echo", {{"data", small}}).ok()) return 1;
    const rlim_t before = leave_addresses(::getpid(), 300 << 20);  // for the copy that submit() makes, not for the frame, too
    const Status refused = pool.predict("echo", {{"data", large}}, {.timeout = 5s}).status();
    soft_limit(::getpid(), RLIMIT_AS, before);
    if (refused.code() != StatusCode::kFailedPrecondition || !contains(refused.message(), "memory"))
      return std::puts(refused.to_string().c_str()), 2;
    const Status later = pool.predict("echo", {{"data", small}}, {.timeout = 5s}).status();
    return later.ok() ? 0 : (std::puts(later.to_string().c_str()), 3);
  });
  EXPECT_EQ(exit_code_of(child), 0);
  expect_nobody_died();
}

// ---- disk ----

/// A file system with room for a few pages and files, which only this thread and its children see.
class TinyDisk {
 public:
  TinyDisk() {
    if (!::mkdtemp(path_.data())) return;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    is_mounted_ = ::mount("shoal-test", path_.c_str(), "tmpfs", 0, "size=128k,nr_inodes=40") == 0;
  }
  ~TinyDisk() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  bool is_mounted() const { return is_mounted_; }
  const std::string& path() const { return path_; }
  /// Fills it: there is no room for another byte or another file.
  void fill() {
    const UniqueFd file(::open((path_ + "/bytes").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const Bytes page(4096);
    while (::write(file.get(), page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    while (::mknod((path_ + "/file" + std::to_string(files_)).c_str(), S_IFREG | 0600, 0) == 0) ++files_;
    EXPECT_EQ(errno, ENOSPC);
  }
  void empty() {
    ::unlink((path_ + "/bytes").c_str());
    for (; files_ > 0; --files_) ::unlink((path_ + "/file" + std::to_string(files_ - 1)).c_str());
  }

 private:
  std::string path_ = "/tmp/shoal-disk-XXXXXX";
  bool is_mounted_ = false;
  int files_ = 0;
};

// The daemon has its log and its sockets on the full disk.
TEST(FullDisk, AttachedClientsAreServedAndNewOnesHearWhyNot) {
  TinyDisk disk;
  if (!disk.is_mounted()) GTEST_SKIP() << "no right to mount here: " << std::strerror(errno);
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}, .parent = disk.path()});
  const auto workers = daemon.workers();
  Pool pool = daemon.connect();
  const auto ask = [&] { return pool.predict("echo", {{"data", counting({4})}}).status().to_string(); };
  EXPECT_EQ(ask(), "OK");
  disk.fill();
  const Status late = Pool::connect({.directory = daemon.directory()}).status();
  EXPECT_TRUE(contains(late.message(), daemon.directory()) && contains(late.message(), "No space left on device"))
      << late.to_string();
  ::kill(workers.at(0), SIGKILL);  // its successor's sockets take the place of its own, or wait for room
  for (const auto until = Clock::now() + 1s; Clock::now() < until;) ASSERT_EQ(ask(), "OK");
  EXPECT_TRUE(is_alive(daemon.pid()));
  disk.empty();
  EXPECT_TRUE(daemon.wait_until_ready());
  EXPECT_EQ(daemon.workers().size(), 2u);
  EXPECT_TRUE(daemon.connect().predict("echo", {{"data", counting({4})}}).ok());
}

}  // namespace
}  // namespace shoal::test
