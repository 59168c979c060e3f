#include "worker/serve/client_arenas.hpp"

#include <gtest/gtest.h>

#include <thread>

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

TEST(ArenaRegistry, AnAttachWithoutBothArenasIsRefusedAndALaneHearsIt) {
  ArenaRegistry registry;
  EXPECT_EQ(registry.attach(7, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.find(7, 60s).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::worker
