#include "shm/wire/status_page.hpp"

#include <gtest/gtest.h>

#include "shm/segment/segment.hpp"

namespace shoal::wire {
namespace {

class StatusPageTest : public testing::Test {
 protected:
  Segment memory_ = Segment::map(make_status_page(2).value(), Segment::Access::kReadWrite).value();
  PageHeader& header_ = *reinterpret_cast<PageHeader*>(memory_.mutable_bytes().data());
};

TEST_F(StatusPageTest, ANewPageIsForItsNumberOfLanes) {
  EXPECT_TRUE(check_status_page(memory_.bytes(), 2).ok());
  EXPECT_EQ(check_status_page(memory_.bytes(), 1).message(), "a status page for 2 lanes, and 1 are asked for");
  EXPECT_NE(check_status_page(memory_.bytes(), kMaxLanes).message().find("does not hold 64 lanes"), std::string::npos);
  EXPECT_FALSE(check_status_page(memory_.bytes(), 0).ok());
  EXPECT_FALSE(check_status_page({}, 1).ok());
}

TEST_F(StatusPageTest, AnotherVersionIsRefusedAndBothAreNamed) {
  header_.version = kPageVersion + 1;
  EXPECT_EQ(check_status_page(memory_.bytes(), 2).message(),
            "status page: version 2, this side knows 1: use the same release of both");
  header_.magic = 0;
  EXPECT_EQ(check_status_page(memory_.bytes(), 2).message(), "this memory is no status page");
}

TEST_F(StatusPageTest, ItsPartsDoNotOverlapAndFillIt) {
  const StatusPage page(memory_.mutable_bytes(), 2);
  ASSERT_EQ(page.lanes.size(), 2U);
  const auto* begin = memory_.bytes().data();
  EXPECT_EQ(reinterpret_cast<const std::byte*>(page.lanes.data()), begin + sizeof(PageHeader));
  EXPECT_EQ(reinterpret_cast<const std::byte*>(page.programs), reinterpret_cast<const std::byte*>(page.lanes.data() + 2));
  EXPECT_EQ(reinterpret_cast<const std::byte*>(page.flight + 1), begin + status_page_bytes(2));
}

TEST_F(StatusPageTest, APageThatIsTooSmallHasNoParts) {
  const StatusPage page(memory_.bytes().first(status_page_bytes(2) - 1), 2);
  EXPECT_TRUE(page.lanes.empty());
  EXPECT_EQ(page.programs, nullptr);
  EXPECT_EQ(page.flight, nullptr);
  EXPECT_TRUE(StatusPage(memory_.bytes(), kMaxLanes + 1).lanes.empty());
}

}  // namespace
}  // namespace shoal::wire
