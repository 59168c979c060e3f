// Each transition of the machine that is drawn in catalog.hpp: one wish at a time. catalog_wishes_test.cpp has several at a time,
// catalog_configuration_test.cpp those of the configuration.
#include "tests/unit/supervisor/catalog/catalog_fixture.hpp"

namespace shoal::supervisor {
namespace {

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

TEST_F(CatalogTest, ALoadWhoseClientHasGoneGoesOnForOneThatScales) {
  ASSERT_TRUE(load("1a").ok());
  ASSERT_TRUE(scale(2).ok());
  catalog_.caller_gone(1);
  advance();
  EXPECT_EQ(catalog_.services().size(), 1u);
  find();
  settle();
  EXPECT_EQ(served(), "1ax2*");
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

TEST_F(CatalogTest, AChangeWaitsLongerForReplacedVersionsIfTheProcessDidNotRun) {
  serve("1a");
  processes_.at(1).requests = 1;
  ASSERT_TRUE(reload("1b").ok());
  settle();
  words();
  catalog_.postpone(kMs);
  wait(Catalog::kSettlingLimitNs);
  EXPECT_EQ(words(), Words{});
  EXPECT_EQ(catalog_.next_tick_ns(), now_ + kMs);
  wait(kMs);
  EXPECT_EQ(words(), Words{"answer 2 reloaded"});
  processes_.at(1).requests = 0;
  settle();
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
