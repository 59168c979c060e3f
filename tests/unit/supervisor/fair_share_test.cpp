#include "supervisor/plane/fair_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "supervisor/plane/message_memory.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kTotal = 1 << 20;
constexpr std::size_t kClients = 64;

TEST(FairShare, AClientAloneMayHaveHalfOfWhatIsForEveryone) {
  const FairShare share{.total = kTotal, .clients = kClients};
  EXPECT_EQ(share.guaranteed(), kTotal / 256);
  EXPECT_EQ(share.most_of_one(), kTotal * 3 / 8);
  EXPECT_TRUE(share.fits(0, 0, share.most_of_one()));
  EXPECT_FALSE(share.fits(0, 0, share.most_of_one() + 1));
  EXPECT_FALSE(share.fits(share.most_of_one(), share.most_of_one(), 1));
}

TEST(FairShare, RoomIsTheMostThatFits) {
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const FairShare share{.total = random() % kTotal + 1, .clients = random() % kClients + 1};
    const std::uint64_t used = random() % (share.total + 1), own = random() % (used + 1);
    const std::uint64_t room = share.room(used, own);
    EXPECT_TRUE(room == 0 || share.fits(used, own, room)) << share.total << ' ' << used << ' ' << own << ' ' << room;
    EXPECT_FALSE(share.fits(used, own, room + 1)) << share.total << ' ' << used << ' ' << own << ' ' << room;
  }
  EXPECT_EQ(FairShare{}.room(5, 5), ~std::uint64_t{0});
}

// Every client takes whatever it gets, in any order and of any size.
TEST(FairShare, EachClientHasItsOwnPartAndTheTotalHolds) {
  const FairShare share{.total = kTotal, .clients = kClients};
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::uint64_t> own(kClients);
    std::uint64_t used = 0;
    for (int step = 0; step < 20'000; ++step) {
      std::uint64_t& mine = own[random() % (kClients - 1)];  // the last one comes late
      const std::uint64_t bytes = 1 + (random() % kTotal >> random() % 20);
      if (random() % 16 == 0) {
        const std::uint64_t less = std::min(mine, bytes);
        mine -= less;
        used -= less;
      } else if (share.fits(used, mine, bytes)) {
        mine += bytes;
        used += bytes;
      }
      ASSERT_LE(used, kTotal) << "seed " << seed;
      ASSERT_TRUE(share.fits(used, own.back(), share.guaranteed())) << "seed " << seed << ": " << used << " are used";
    }
    EXPECT_GT(used, kTotal / 2) << "they took what they got";
  }
}

TEST(FairShare, WhenNothingIsLeftLargeClientsYield) {
  const FairShare share{.total = kTotal, .clients = kClients};
  const std::uint64_t all = kTotal - kTotal / 4;
  EXPECT_FALSE(share.must_yield(all, kTotal / 2));
  EXPECT_TRUE(share.must_yield(all + 1, kTotal / 2));
  EXPECT_FALSE(share.must_yield(all + 1, share.guaranteed()));
}

TEST(FairShare, ZeroIsNoLimit) {
  const FairShare share{.total = 0, .clients = kClients};
  EXPECT_TRUE(share.fits(std::uint64_t{1} << 60, std::uint64_t{1} << 60, std::uint64_t{1} << 60));
  EXPECT_FALSE(share.must_yield(std::uint64_t{1} << 60, std::uint64_t{1} << 60));
}

TEST(FairShare, NumbersThatWouldOverflowDoNotFit) {
  const FairShare share{.total = kTotal, .clients = kClients};
  EXPECT_FALSE(share.fits(kTotal / 4, 0, ~std::uint64_t{0}));
  EXPECT_FALSE(share.fits(~std::uint64_t{0}, 0, 1));
}

TEST(ClientProcess, IsKeptUntilItsPartOfASharedRateIsForgotten) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  ClientProcess process;
  EXPECT_TRUE(process.has_rested(100 * kSecond));
  SharedRate looks(1000);
  looks.charge(process.look_share, 900, 100 * kSecond);
  EXPECT_FALSE(process.has_rested(130 * kSecond)) << "connecting anew would make its next piece of work cheap";
  EXPECT_TRUE(process.has_rested(140 * kSecond));
}

TEST(ClientProcess, ProcessesThatTheKernelDoesNotShowAreOnePerUser) {
  EXPECT_EQ(process_key(7, 0), process_key(7, 1000)) << "one process, whatever its users";
  EXPECT_NE(process_key(7, 0), process_key(8, 0));
  EXPECT_EQ(process_key(0, 1000), process_key(0, 1000));
  EXPECT_NE(process_key(0, 0), process_key(0, 1000));
  EXPECT_LT(process_key(0, 0), 0) << "no pid";
}

TEST(MessageMemory, ARefusalNamesTheKeyAndAnImpossibleRequestIsInvalid) {
  MessageMemory memory;
  memory.set_limit(8, 8);  // MiB; each client has 256 KiB of it
  EXPECT_TRUE(memory.check_request(0, 3 << 20).ok());
  const Status never = memory.check_request(0, (3 << 20) + 1);
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument) << "waiting would not help";
  EXPECT_NE(never.message().find("total_message_mb"), std::string::npos) << never.message();
  ClientProcess process;
  memory.add_request(process, 3 << 20);
  EXPECT_EQ(process.message_bytes(), 3u << 20);
  memory.unsent()->fetch_add(2 << 20);  // answers count as requests do
  const Status later = memory.check_request(1 << 20, 1 << 20);
  EXPECT_EQ(later.code(), StatusCode::kOverloaded);
  EXPECT_NE(later.message().find("total_message_mb"), std::string::npos) << later.message();
  EXPECT_EQ(memory.check_answer(0, 1 << 20).code(), StatusCode::kOverloaded);
  EXPECT_TRUE(memory.check_request(0, 256 << 10).ok()) << "its own part is left to everyone";
  memory.remove_request(process, 3 << 20);
  EXPECT_EQ(process.message_bytes(), 0u);
  EXPECT_TRUE(memory.check_request(1 << 20, 1 << 20).ok());
}

}  // namespace
}  // namespace shoal::supervisor
