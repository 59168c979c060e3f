#include "worker/serve/client_arenas.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace {
std::function<void()> on_unmap;  // what the test does while memory is unmapped
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have a munmap() of their own
extern "C" int munmap(void* address, std::size_t size) noexcept {
  if (on_unmap) std::exchange(on_unmap, nullptr)();
  return static_cast<int>(::syscall(SYS_munmap, address, size));
}
#endif

namespace shoal::worker {
namespace {

using namespace std::chrono_literals;

std::vector<UniqueFd> arena_fds() {
  std::vector<UniqueFd> fds;
  for (const Seals seals : {Seals::kOneWriter, Seals::kFixedSize}) {
    fds.push_back(create_memfd("test", 4096).value());
    EXPECT_TRUE(seal(fds.back(), seals).ok());
  }
  return fds;
}

TEST(ArenaRegistry, ALaneWaitsForTheAttachMessageThatIsOnItsWay) {
  ArenaRegistry registry;
  std::jthread control([&] {
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(registry.attach(7, arena_fds()).ok());
  });
  EXPECT_TRUE(registry.find(7, 5000ms).ok());
}

TEST(ArenaRegistry, AnUnknownClientIsGivenUpInTime) {
  ArenaRegistry registry;
  EXPECT_EQ(registry.find(7, 10ms).status().code(), StatusCode::kInternal);
}

TEST(ArenaRegistry, ADetachDoesNotUnmapUnderARun) {
  ArenaRegistry registry;
  ASSERT_TRUE(registry.attach(7, arena_fds()).ok());
  const auto running = registry.find(7, 0ms).value();
  registry.detach(7);
  EXPECT_FALSE(registry.find(7, 0ms).ok());
  running->output.mutable_bytes()[4095] = running->input.bytes()[4095];
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Unmapping is slow. If the registry were locked meanwhile, all lanes would wait.
TEST(ArenaRegistry, OlderArenasAreUnmappedWhileLanesFindOthers) {
  ArenaRegistry registry;
  for (const std::uint64_t client : {6, 7}) ASSERT_TRUE(registry.attach(client, arena_fds()).ok());
  const auto later = arena_fds();
  std::promise<bool> unmapping, found;
  on_unmap = [&] { unmapping.set_value(found.get_future().wait_for(10s) == std::future_status::ready); };
  EXPECT_TRUE(registry.attach(7, later).ok());
  found.set_value(registry.find(6, 0ms).ok());
  EXPECT_TRUE(unmapping.get_future().get()) << "a lane waits while arenas are unmapped";
}

// The control thread has the arenas of others to map, and a lane has others to answer.
TEST(ArenaRegistry, NeitherADetachNorTheEndOfARunUnmapsAnything) {
  ArenaRegistry registry;
  ASSERT_TRUE(registry.attach(7, arena_fds()).ok());
  for (const bool is_running : {false, true}) {
    ASSERT_TRUE(registry.attach(8, arena_fds()).ok());
    std::promise<std::thread::id> unmapped;
    on_unmap = [&] { unmapped.set_value(std::this_thread::get_id()); };
    auto running = is_running ? registry.find(8, 0ms).value() : nullptr;
    registry.detach(8);
    running.reset();
    auto thread = unmapped.get_future();
    ASSERT_EQ(thread.wait_for(10s), std::future_status::ready);
    EXPECT_NE(thread.get(), std::this_thread::get_id());
  }
  EXPECT_TRUE(registry.find(7, 0ms).ok());
}

// What takes the addresses may go: other clients, a program that is compiled.
TEST(ArenaRegistry, ArenasForWhichAddressesWereLackingAreMappedWhenThereAreSome) {
  ArenaRegistry registry;
  const auto fds = arena_fds();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  const rlim_t before = std::exchange(limit.rlim_cur, 1 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  const StatusCode attached = registry.attach(7, fds).code(), found = registry.find(7, 0ms).status().code();
  limit.rlim_cur = before;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_EQ(attached, StatusCode::kFailedPrecondition);
  EXPECT_EQ(found, StatusCode::kFailedPrecondition);
  const auto arenas = registry.find(7, 0ms);
  ASSERT_TRUE(arenas.ok()) << arenas.status().to_string();
  EXPECT_EQ(registry.find(7, 0ms).value(), arenas.value());
}

#endif

TEST(ArenaRegistry, AnAttachWithoutBothArenasIsRefusedAndALaneHearsIt) {
  ArenaRegistry registry;
  EXPECT_EQ(registry.attach(7, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.find(7, 60s).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::worker
