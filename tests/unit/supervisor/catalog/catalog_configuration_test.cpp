// Models that the configuration names.
#include "tests/unit/supervisor/catalog/catalog_fixture.hpp"

namespace shoal::supervisor {
namespace {

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

// The first load has not ended, but what serves must be replaced by what serves, or stay.
TEST_F(CatalogTest, AReloadThatFailsDuringTheFirstLoadOfAConfiguredModelLeavesWhatServes) {
  for (const bool by_client : {false, true}) {
    configure(std::nullopt);
    settle();
    configure("1a 2b");
    find();
    staff();
    EXPECT_EQ(served(), "1ax1*");
    if (by_client)
      ASSERT_TRUE(reload("1c").ok());
    else
      configure("1c");
    find();
    fail(processes_.rbegin()->first);
    settle();
    EXPECT_EQ(served(), "1ax1*") << by_client;
    EXPECT_FALSE(catalog_.is_busy());
  }
}

TEST_F(CatalogTest, WhatReplacesAVersionDuringTheFirstLoadAnswersFirst) {
  configure("1a 2b");
  find();
  staff();
  configure("2b");
  staff();
  EXPECT_EQ(served(), "1ax1*");
  words();
  find();
  EXPECT_EQ(words(), Words{"probe 2"});
  EXPECT_EQ(served(), "1ax1*");
  settle();
  EXPECT_EQ(served(), "2bx1*");
}

TEST_F(CatalogTest, AScaleThatIsUndoneDuringTheFirstLoadLeavesTheKeysThatServe) {
  Wish asked{.kind = WishKind::kLoad, .request = request("1a", 5)};
  ASSERT_TRUE(ask(asked).ok());
  configure("1c 2d");
  find();
  ASSERT_TRUE(scale(2).ok());
  processes_.at(1).facts = {.ready = 2, .alive = 3, .can_answer = true};  // one is surplus, so the scaling is not over
  advance();
  ASSERT_EQ(served(), "1cx2*");
  ASSERT_TRUE(reload("1b").ok());  // contradicts the scale
  fail_finding();
  settle();
  EXPECT_EQ(catalog_.services()[0]->request.overrides.workers, std::nullopt);
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

TEST_F(CatalogTest, TheConfigurationDoesNotOpenWhatIsDrained) {
  serve("1a");
  ASSERT_TRUE(drain().ok());
  configure("1b");
  settle();
  EXPECT_EQ(served(), "1bx1* drained");
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

}  // namespace
}  // namespace shoal::supervisor
