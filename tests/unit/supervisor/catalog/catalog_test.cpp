// Each transition of the machine that is drawn in catalog.hpp.
#include "tests/unit/supervisor/catalog/catalog_world.hpp"

namespace shoal::supervisor {
namespace {

using Words = std::vector<std::string>;

class CatalogTest : public testing::Test, protected CatalogWorld {
 protected:
  void TearDown() override { EXPECT_EQ(broken_, ""); }
  /// Serves that path, and forgets what was said meanwhile.
  void serve(const std::string& path) {
    EXPECT_TRUE(load(path).ok());
    settle();
    words();
  }
};

TEST_F(CatalogTest, ALoadFindsAddsAndServes) {
  ASSERT_TRUE(load("1a").ok());
  EXPECT_EQ(words(), Words{"find 1a"});
  EXPECT_EQ(served(), "none");
  find();
  EXPECT_EQ(words(), Words{"add 1a"});
  staff();
  EXPECT_EQ(words(), Words{"answer 1 loaded"});
  EXPECT_EQ(served(), "1ax1*");
  EXPECT_FALSE(catalog_.is_busy());
}

TEST_F(CatalogTest, AllVersionsOfALoadServeTogether) {
  ASSERT_TRUE(load("1a 2b").ok());
  find();
  staff();
  EXPECT_EQ(served(), "none");
  staff();
  EXPECT_EQ(served(), "1ax1 2bx1*");
}

TEST_F(CatalogTest, AFailedLoadFreesTheName) {
  ASSERT_TRUE(load("1a 2b").ok());
  find();
  words();
  fail(1);
  EXPECT_EQ(words(), (Words{"answer 1 FAILED_PRECONDITION", "retire 1", "retire 2", "end 1", "end 2", "free 1"}));
  EXPECT_EQ(served(), "");
  ASSERT_TRUE(load("1a").ok()) << "at once";
  find();
  EXPECT_EQ(words(), Words{"find 1a"}) << "its memory is not free yet";
  wait(Catalog::kExitLimitNs);
  EXPECT_EQ(words(), Words{"kill 2"});
  settle();
  EXPECT_EQ(words(), (Words{"free 2", "forget m", "add 1a", "answer 2 loaded"}));
}

TEST_F(CatalogTest, ALoadWithoutFilesFails) {
  ASSERT_TRUE(load("1a").ok());
  words();
  fail_finding();
  EXPECT_EQ(served(), "");
  const Words said = words();
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said[0], "add 1");  // it is shown with its reason, then removed
}

TEST_F(CatalogTest, ALoadWhoseClientHasGoneEndsWhileItsFilesAreLookedFor) {
  ASSERT_TRUE(load("1a").ok());
  catalog_.caller_gone(1);
  waiting_.clear();
  advance();
  EXPECT_EQ(served(), "");
  EXPECT_TRUE(catalog_.services().empty());
  ASSERT_TRUE(load("1a").ok());
  find();
  catalog_.caller_gone(2);
  waiting_.clear();
  settle();
  EXPECT_EQ(served(), "1ax1*") << "what is found already is served";
}

TEST_F(CatalogTest, AReloadMakesBeforeItBreaks) {
  serve("1a 2a");
  ASSERT_TRUE(reload("2a 3a").ok());
  find();
  EXPECT_EQ(words(), (Words{"find 2a 3a", "add 3a"}));
  staff();
  EXPECT_EQ(words(), Words{"probe 3"}) << "what replaces something must answer first";
  EXPECT_EQ(served(), "1ax1 2ax1*");
  processes_.at(1).requests = 1;
  answer_probe();
  EXPECT_EQ(words(), Words{"retire 1"});
  EXPECT_EQ(served(), "2ax1 3ax1*");
  processes_.at(1).requests = 0;
  advance();
  EXPECT_EQ(words(), Words{"end 1"});
  staff();
  EXPECT_EQ(words(), (Words{"free 1", "answer 2 reloaded"}));
}

TEST_F(CatalogTest, AReloadOfTheSameFilesChangesNothing) {
  serve("1a");
  ASSERT_TRUE(reload().ok());
  find();
  EXPECT_EQ(words(), (Words{"find 1a", "answer 2 unchanged"}));
}

TEST_F(CatalogTest, AForcedReloadLoadsTheSameFilesAnew) {
  serve("1a");
  ASSERT_TRUE(force().ok());
  settle();
  EXPECT_EQ(words(), (Words{"find 1a", "add 1a", "probe 2", "retire 1", "end 1", "free 1", "answer 2 reloaded"}));
}

TEST_F(CatalogTest, AReloadThatFailsLeavesEverythingAsItWas) {
  serve("1a");
  ASSERT_TRUE(reload("1a 2b").ok());
  find();
  words();
  fail(2);
  EXPECT_EQ(words(), (Words{"answer 2 FAILED_PRECONDITION", "retire 2", "end 2", "free 2"}));
  EXPECT_EQ(served(), "1ax1*");
  ASSERT_TRUE(reload().ok());
  find();
  EXPECT_EQ(words(), (Words{"find 1a", "answer 3 unchanged"})) << "the request before it is in force";
}

TEST_F(CatalogTest, AReloadThatFailsItsProbeLeavesEverythingAsItWas) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  staff();
  words();
  answer_probe(Status(StatusCode::kInternal, "not the stored output"));
  EXPECT_EQ(words(), (Words{"fail 2", "answer 2 FAILED_PRECONDITION", "retire 2", "end 2", "free 2"}));
  EXPECT_EQ(served(), "1ax1*");
}

TEST_F(CatalogTest, AProbeThatIsNotAnsweredInTimeFails) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  staff();
  words();
  wait(Catalog::kProbeLimitNs - 1);
  EXPECT_EQ(words(), Words{});
  catalog_.postpone(kMs);
  wait(kMs);
  EXPECT_EQ(words(), Words{}) << "the process did not run for so long";
  EXPECT_EQ(catalog_.next_tick_ns(), now_ + 1);
  wait(1);
  EXPECT_EQ(words(), (Words{"fail 2", "answer 2 FAILED_PRECONDITION", "retire 2", "end 2", "free 2"}));
}

TEST_F(CatalogTest, ARefusalAnswersAProbeThatHasNoStoredInput) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  find();
  staff();
  answer_probe(Status(StatusCode::kInvalidArgument, "zeros are no picture"));
  settle();
  EXPECT_EQ(served(), "1bx1*");
}

TEST_F(CatalogTest, AChangeWaitsForReplacedVersionsForAWhileOnly) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(reload("1b").ok());
  settle();
  EXPECT_EQ(served(), "1bx1*");
  words();
  wait(Catalog::kSettlingLimitNs);
  EXPECT_EQ(words(), Words{"answer 2 reloaded"});
  EXPECT_EQ(processes_.count(1), 1u) << "its request goes on";
  EXPECT_TRUE(catalog_.is_busy());
}

TEST_F(CatalogTest, RequestsThatNobodyCanAnswerEnd) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(reload("1b").ok());
  settle();
  processes_.at(1).facts.can_answer = false;
  advance();
  words();
  wait(Catalog::kLeaveLimitNs);
  EXPECT_EQ(words(), (Words{"end requests 1", "end 1", "answer 2 reloaded"}));
  wait(Catalog::kExitLimitNs);
  EXPECT_EQ(words(), Words{"kill 1"});
}

TEST_F(CatalogTest, AnUnloadedModelEndsItsRequestsInTime) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(unload().ok());
  EXPECT_EQ(served(), "") << "its name is free at once";
  advance();
  EXPECT_EQ(words(), Words{"retire 1"});
  EXPECT_EQ(unload().code(), StatusCode::kOk) << "that waits, too";
  wait(Catalog::kLeaveLimitNs);
  EXPECT_EQ(words(), (Words{"end requests 1", "end 1"}));
  settle();
  EXPECT_EQ(words(), (Words{"free 1", "answer 2 unloaded", "answer 3 unloaded", "forget m"}));
  EXPECT_EQ(unload().code(), StatusCode::kNotFound);
}

TEST_F(CatalogTest, ALoadAfterAnUnloadWaitsUntilTheMemoryIsFree) {
  serve("1a");
  ASSERT_TRUE(unload().ok());
  ASSERT_TRUE(load("1b").ok());
  find();
  EXPECT_EQ(words(), (Words{"retire 1", "find 1b", "end 1"}));
  settle();
  EXPECT_EQ(words(), (Words{"free 1", "answer 2 unloaded", "forget m", "add 1b", "answer 3 loaded"}));
}

TEST_F(CatalogTest, ScaleAddsAndRemovesWorkers) {
  serve("1a");
  ASSERT_TRUE(scale(3).ok());
  advance();
  EXPECT_EQ(words(), Words{"workers 1 3"});
  staff();
  EXPECT_EQ(words(), Words{"answer 2 scaled"});
  ASSERT_TRUE(scale(1).ok());
  settle();
  EXPECT_EQ(words(), (Words{"workers 1 1", "answer 3 scaled"}));
  ASSERT_TRUE(reload().ok());
  settle();
  EXPECT_EQ(words(), (Words{"find 1a", "answer 4 unchanged"})) << "a reload keeps that number";
  EXPECT_EQ(scale(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scale(1025).code(), StatusCode::kInvalidArgument);
}

TEST_F(CatalogTest, AScaleWhoseWorkersCannotStartIsUndone) {
  serve("1a");
  ASSERT_TRUE(scale(3).ok());
  processes_.at(1).facts.is_stalled = true;
  processes_.at(1).facts.reason = "no memory";
  words();
  advance();
  EXPECT_EQ(words(), (Words{"answer 2 FAILED_PRECONDITION", "workers 1 1"}));
}

TEST_F(CatalogTest, AVersionThatHadFailedBeforeIsNoneOfAScalesBusiness) {
  configure("1a 2b");
  find();
  staff();
  fail(2);
  ASSERT_TRUE(scale(2).ok());
  words();
  settle();
  EXPECT_EQ(words(), Words{"answer 1 scaled"});
  EXPECT_EQ(served(), "1ax2* 2bx0");
}

TEST_F(CatalogTest, ADrainEndsWithAReload) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(drain().ok());
  advance();
  EXPECT_EQ(served(), "1ax1* drained");
  EXPECT_EQ(words(), Words{});
  ASSERT_TRUE(reload().ok());
  EXPECT_EQ(words(), (Words{"answer 2 CANCELLED", "find 1a"}));
  find();
  EXPECT_EQ(words(), Words{"answer 3 reloaded"});
  EXPECT_EQ(served(), "1ax1*");
  ASSERT_TRUE(drain().ok());
  processes_.at(1).requests = 0;
  advance();
  EXPECT_EQ(words(), Words{"answer 4 drained"});
}

TEST_F(CatalogTest, TheConfigurationDoesNotOpenWhatIsDrained) {
  serve("1a");
  ASSERT_TRUE(drain().ok());
  configure("1b");
  settle();
  EXPECT_EQ(served(), "1bx1* drained");
}

// ---- a newer wish replaces an older one ----

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

TEST_F(CatalogTest, TheConfigurationReplacesWhatAClientAskedFor) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(scale(3).ok());
  configure("1c");
  const Words said = words();
  EXPECT_EQ(std::ranges::count(said, "answer 2 CANCELLED"), 1);
  EXPECT_EQ(std::ranges::count(said, "answer 3 CANCELLED"), 1);
  settle();
  EXPECT_EQ(served(), "1cx1*");
  configure({});
  settle();
  EXPECT_EQ(served(), "") << "it belongs to the configuration now";
}

// ---- models of the configuration ----

TEST_F(CatalogTest, AModelOfTheConfigurationServesEachVersionAsSoonAsItCan) {
  configure("1a 2b");
  find();
  staff();
  EXPECT_EQ(served(), "1ax1*");
  fail(2);
  EXPECT_EQ(served(), "1ax1* 2bx0");
  EXPECT_FALSE(catalog_.is_busy());
}

TEST_F(CatalogTest, AConfigurationThatIsReadAgainMeanwhileKeepsEachVersionAlone) {
  configure("1a 2b 3c");
  find();
  staff();
  EXPECT_EQ(served(), "1ax1*");
  configure("1a 2b 3c");
  find();
  fail(2);
  settle();
  EXPECT_EQ(served(), "1ax1 2bx0 3cx1*");
}

TEST_F(CatalogTest, AFailedSearchDoesNotEndWhatTheSameKeysHaveLoaded) {
  ASSERT_TRUE(load("1a").ok());
  find();
  ASSERT_TRUE(reload().ok());
  fail_finding();
  settle();
  EXPECT_EQ(served(), "1ax1*");
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

TEST_F(CatalogTest, AModelOfTheConfigurationThatCannotBeServedStaysWithItsReason) {
  configure("1a");
  find();
  ASSERT_TRUE(reload().ok());
  find();
  words();
  fail(1);
  EXPECT_EQ(words(), Words{"answer 1 FAILED_PRECONDITION"});
  ASSERT_EQ(catalog_.services().size(), 1u);
  EXPECT_EQ(catalog_.services()[0]->reason(), "its files are torn");
  configure("1b");
  settle();
  EXPECT_EQ(served(), "1bx1*");
}

TEST_F(CatalogTest, ALoadNamedByTheConfigurationDoesNotVanishWhenItFails) {
  ASSERT_TRUE(load("1a").ok());
  configure("1a");
  find();
  fail(processes_.begin()->first);
  EXPECT_EQ(catalog_.services().size(), 1u);
}

TEST_F(CatalogTest, NobodyIsAnsweredTwiceWhenItCloses) {
  serve("1a");
  ASSERT_TRUE(reload("1b").ok());
  ASSERT_TRUE(scale(2).ok());
  words();
  catalog_.close(Status(StatusCode::kUnavailable, "the daemon is shutting down"));
  perform();
  EXPECT_EQ(words(), (Words{"answer 2 UNAVAILABLE", "answer 3 UNAVAILABLE"}));
  EXPECT_EQ(drain().code(), StatusCode::kUnavailable);
  settle();
  EXPECT_TRUE(waiting_.empty());
}

TEST_F(CatalogTest, NothingIsAddedOrLookedForWhenItHasClosed) {
  serve("1a");
  ASSERT_TRUE(unload().ok());
  ASSERT_TRUE(load("1b").ok());
  ASSERT_TRUE(reload().ok());
  find();
  catalog_.close(Status(StatusCode::kUnavailable, "the daemon is shutting down"));
  words();
  settle();
  EXPECT_EQ(words(), (Words{"answer 3 UNAVAILABLE", "answer 4 UNAVAILABLE", "answer 2 UNAVAILABLE", "free 1", "forget m"}));
}

TEST_F(CatalogTest, ThereIsALimitForModelsAndForCallers) {
  catalog_.limit_services(1);
  serve("1a");
  Wish other{.kind = WishKind::kLoad, .model = "other", .request = ModelRequest{.name = "other", .path = "1a"}};
  EXPECT_EQ(catalog_.ask(other, now_).code(), StatusCode::kOverloaded);
  processes_.at(1).requests = 1;
  for (std::size_t i = 0; i < Catalog::kMostCallers; ++i) ASSERT_TRUE(drain().ok());
  EXPECT_EQ(drain().code(), StatusCode::kOverloaded);
  EXPECT_TRUE(reload().ok()) << "it answers them";
  EXPECT_TRUE(unload().ok());
}

}  // namespace
}  // namespace shoal::supervisor
