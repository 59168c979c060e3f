// A newer wish replaces an older one, joins it, or waits for its end.
#include "tests/unit/supervisor/catalog/catalog_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(CatalogTest, AReloadWithOtherKeysReplacesTheOneBeforeIt) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  words();
  ASSERT_TRUE(reload("1c").ok());
  EXPECT_EQ(words(), (Words{"answer 2 CANCELLED", "find 1c"}));
  find();
  EXPECT_EQ(words(), (Words{"add 1c", "retire 2", "end 2"}));
  settle();
  EXPECT_EQ(served(), "1cx1*");
}

TEST_F(CatalogTest, AReloadDuringTheSearchOfAnotherStopsIt) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(reload("1c").ok());
  EXPECT_EQ(words(), (Words{"find 1b", "answer 2 CANCELLED", "stop finding", "find 1c"}));
  settle();
  EXPECT_EQ(served(), "1cx1*");
}

TEST_F(CatalogTest, ReloadsWithoutOtherKeysJoin) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  ASSERT_TRUE(reload().ok());
  words();
  settle();
  EXPECT_EQ(words(), (Words{"probe 2", "retire 1", "end 1", "free 1", "answer 2 reloaded", "answer 3 reloaded"}))
      << "what was loaded already is used";
}

TEST_F(CatalogTest, AReloadDuringTheSearchOfTheSameKeysHasItsTurnAfterIt) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(reload().ok());
  ASSERT_TRUE(force().ok());
  EXPECT_EQ(words(), Words{"find 1b"}) << "reloads in a loop do not start it anew for ever";
  settle();
  EXPECT_EQ(words(), (Words{"add 1b", "probe 2", "retire 1", "end 1", "free 1", "answer 2 reloaded", "find 1b", "add 1b",
                            "probe 3", "retire 2", "end 2", "free 2", "answer 3 reloaded", "answer 4 reloaded"}));
}

TEST_F(CatalogTest, AReloadWithOtherKeysReplacesAlsoWhatWaits) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(reload().ok());
  words();
  ASSERT_TRUE(reload("1c").ok());
  EXPECT_EQ(words(), (Words{"answer 2 CANCELLED", "answer 3 CANCELLED", "stop finding", "find 1c"}));
  settle();
  EXPECT_EQ(served(), "1cx1*");
}

TEST_F(CatalogTest, AFailedReloadIsTriedAgainIfAnotherOneWaits) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(reload("1b").ok());
  words();
  fail_finding();
  EXPECT_EQ(words(), (Words{"add 1", "answer 2 FAILED_PRECONDITION", "retire 2", "find 1b", "end 2", "free 2"}));
  settle();
  EXPECT_EQ(served(), "1bx1*");
}

TEST_F(CatalogTest, AReloadWithoutKeysThatWaitsTakesThoseThatAreInForceThen) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(reload().ok());
  words();
  fail_finding();
  EXPECT_EQ(words(), (Words{"add 1", "answer 2 FAILED_PRECONDITION", "retire 2", "find 1a", "end 2", "free 2"}));
  settle();
  EXPECT_EQ(words(), Words{"answer 3 unchanged"});
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, AForcedReloadUsesNothingThatWasLoadedBefore) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  ASSERT_TRUE(force().ok());
  words();
  find();
  EXPECT_EQ(words(), (Words{"end 2", "add 1b"}));
  settle();
  EXPECT_EQ(served(), "1bx1*");
}

TEST_F(CatalogTest, AReloadAfterTheFlipFindsTheOneBeforeItDone) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(reload("1b").ok());
  settle();
  words();
  ASSERT_TRUE(reload("1c").ok());
  EXPECT_EQ(words(), (Words{"answer 2 reloaded", "find 1c"}));
  processes_.at(1).requests = 0;
  settle();
  EXPECT_EQ(served(), "1cx1*");
}

TEST_F(CatalogTest, AScaleDuringALoadChangesWhatComes) {
  ASSERT_TRUE(load("1a").ok());
  ASSERT_TRUE(scale(2).ok());
  settle();
  EXPECT_EQ(words(), (Words{"find 1a", "add 1a", "answer 1 loaded", "answer 2 scaled"}));
  EXPECT_EQ(served(), "1ax2*");
  ASSERT_TRUE(reload("1b").ok());
  find();
  ASSERT_TRUE(scale(3).ok());
  settle();
  EXPECT_EQ(served(), "1bx3*");
}

TEST_F(CatalogTest, AScaleThatFailsBesideAReloadIsUndoneForWhatComes) {
  serve("1a");
  ASSERT_TRUE(scale(2).ok());
  settle();
  Wish wish{.kind = WishKind::kReload, .request = request("1b 2b", 4)};
  ASSERT_TRUE(ask(wish).ok());
  find();
  ASSERT_TRUE(scale(3).ok());
  words();
  processes_.at(1).facts.is_stalled = true;
  processes_.at(1).facts.reason = "no memory";
  advance();
  EXPECT_EQ(words(), (Words{"answer 4 FAILED_PRECONDITION", "workers 1 2", "workers 2 4", "workers 3 4", "find 1b 2b"}));
  processes_.at(1).facts.is_stalled = false;
  settle();
  EXPECT_EQ(served(), "1bx4 2bx4*");
}

TEST_F(CatalogTest, ALoadThatFailsFailsWhatWaitsForIt) {
  ASSERT_TRUE(load("1a").ok());
  find();
  ASSERT_TRUE(scale(2).ok());
  words();
  fail(1);
  const Words said = words();
  EXPECT_EQ((Words{said.begin(), said.begin() + 2}), (Words{"answer 1 FAILED_PRECONDITION", "answer 2 FAILED_PRECONDITION"}));
}

TEST_F(CatalogTest, AnUnloadEndsEveryWishBeforeIt) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(drain().ok());
  ASSERT_TRUE(scale(2).ok());
  ASSERT_TRUE(unload().ok());
  EXPECT_EQ(words(), (Words{"workers 1 2", "answer 3 CANCELLED", "answer 2 CANCELLED", "retire 1"}));
  ASSERT_TRUE(load("1a").ok());
  ASSERT_TRUE(unload().ok());
  EXPECT_EQ(words(), (Words{"find 1a", "answer 5 CANCELLED", "stop finding"}));
}

TEST_F(CatalogTest, AFailedSearchDoesNotEndWhatTheSameKeysHaveLoaded) {
  ASSERT_TRUE(load("1a").ok());
  find();
  ASSERT_TRUE(reload().ok());
  fail_finding();
  settle();
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, AFailedSearchDoesNotKeepWhatTheSameKeysHaveReplaced) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  ASSERT_TRUE(reload().ok());
  fail_finding();
  words();
  settle();
  EXPECT_EQ(words(), (Words{"probe 2", "retire 1", "end 1", "free 1", "answer 2 reloaded", "answer 3 reloaded"}));
  EXPECT_EQ(served(), "1bx1*");
}

TEST_F(CatalogTest, AFailedSearchKeepsTheNumbersOfWorkersThatTheSameKeysWant) {
  serve("1a 2a");
  ASSERT_TRUE(ask({.kind = WishKind::kReload, .request = request("1a 2b", 3)}).ok());
  find();
  ASSERT_TRUE(reload().ok());
  fail_finding();
  settle();
  EXPECT_EQ(served(), "1ax3 2bx3*");
}

TEST_F(CatalogTest, AFailedSearchDoesNotEndAChangeOfNumbersOfWorkersAlone) {
  serve("1a");
  ASSERT_TRUE(ask({.kind = WishKind::kReload, .request = request("1a", 3)}).ok());
  find();
  ASSERT_TRUE(reload().ok());
  fail_finding();
  settle();
  EXPECT_EQ(words(), (Words{"find 1a", "workers 1 3", "find 1a", "answer 2 reloaded", "answer 3 reloaded"}));
  EXPECT_EQ(served(), "1ax3*");
}

TEST_F(CatalogTest, AFailedSearchForOtherKeysGivesTheVersionsThatServeTheirNumbersBack) {
  serve("1a");
  ASSERT_TRUE(ask({.kind = WishKind::kReload, .request = request("1a 2b", 3)}).ok());
  find();
  ASSERT_TRUE(reload("1c").ok());
  fail_finding();
  settle();
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, AFailedSearchAfterAFailedScaleDoesNotServeWhatOtherKeysHaveLoaded) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  ASSERT_TRUE(reload("1c").ok());
  ASSERT_TRUE(scale(2).ok());
  processes_.at(1).facts.is_stalled = true;
  advance();
  processes_.at(1).facts.is_stalled = false;
  fail_finding();
  settle();
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, AScaleThatFailsLeavesTheNumbersOfAReloadAsTheyWere) {
  serve("1a");
  ASSERT_TRUE(ask({.kind = WishKind::kReload, .request = request("1a 2b", 3)}).ok());
  find();
  ASSERT_TRUE(scale(4).ok());
  processes_.at(1).facts.is_stalled = true;
  advance();
  processes_.at(1).facts.is_stalled = false;
  fail_finding();
  EXPECT_EQ(processes_.at(1).wanted, 3);
  fail(2);
  settle();
  EXPECT_EQ(served(), "1ax1*") << "the reload has failed, too";
}

TEST_F(CatalogTest, AScaleThatFailsAfterItsReloadGivesTheNumberOfTheReloadBack) {
  serve("1a");
  ASSERT_TRUE(scale(2).ok());
  settle();
  ASSERT_TRUE(reload("1a").ok());
  find();
  ASSERT_TRUE(scale(3).ok());
  processes_.at(1).facts.alive = 3;
  advance();
  EXPECT_FALSE(catalog_.find("m")->change) << "the reload has succeeded";
  stall();
  EXPECT_EQ(catalog_.find("m")->request.overrides.workers, std::nullopt);
  settle();
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, ADrainDoesNotWaitForEverForRequestsThatNobodyCanAnswer) {
  serve("1a");
  processes_.at(1).requests = 2;
  processes_.at(1).facts.can_answer = false;
  ASSERT_TRUE(drain().ok());
  advance();
  wait(Catalog::kLeaveLimitNs - 1);
  catalog_.postpone(kMs);
  wait(kMs);
  EXPECT_EQ(words(), Words{});
  EXPECT_EQ(catalog_.next_tick_ns(), now_ + 1);
  wait(1);
  EXPECT_EQ(words(), Words{"answer 2 FAILED_PRECONDITION"});
  EXPECT_EQ(last_message_,
            "model 'm' takes no new requests, but 2 of those that it has wait still: for 30 s no worker could answer them. "
            "`shoal unload m` ends them, `shoal reload m` opens the model again");
  EXPECT_EQ(served(), "1ax1* drained") << "it stays closed";
  EXPECT_FALSE(catalog_.is_busy());
}

TEST_F(CatalogTest, ADrainWaitsForRequestsThatAWorkerCanAnswer) {
  serve("1a");
  processes_.at(1).requests = 1;
  processes_.at(1).facts.can_answer = false;
  ASSERT_TRUE(drain().ok());
  advance();
  wait(Catalog::kLeaveLimitNs - 1);
  processes_.at(1).facts.can_answer = true;
  wait(1);
  processes_.at(1).facts.can_answer = false;
  wait(Catalog::kLeaveLimitNs - 1);
  EXPECT_EQ(words(), Words{});
  processes_.at(1).requests = 0;
  advance();
  EXPECT_EQ(words(), Words{"answer 2 drained"});
}

TEST_F(CatalogTest, AVersionServesWithAllItsWorkersAlsoIfTheirNumberGrewMeanwhile) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  staff();
  ASSERT_TRUE(scale(3).ok());
  answer_probe();
  EXPECT_EQ(served(), "1ax1*");
  settle();
  EXPECT_EQ(served(), "1bx3*");
}

}  // namespace
}  // namespace shoal::supervisor
