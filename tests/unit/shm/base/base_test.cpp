#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <locale>
#include <string>

#include "shm/base/check.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/unique_fd.hpp"
#include "tests/support/child_process.hpp"

namespace shoal {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("{} is odd", value);
  return value / 2;
}
Result<int> quarter(int value) {
  SHOAL_ASSIGN_OR_RETURN(const int once, half(value));
  SHOAL_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Status, NamesItsCodeAndMessage) {
  EXPECT_EQ(Status().to_string(), "OK");
  EXPECT_EQ(not_found("no model '{}'", "x").to_string(), "NOT_FOUND: no model 'x'");
  EXPECT_EQ(not_found("no file").with_context("load").to_string(), "NOT_FOUND: load: no file");
  EXPECT_EQ(Status().with_context("load"), Status());
  EXPECT_EQ(status_code_name(static_cast<StatusCode>(99)), "UNKNOWN");
}

TEST(Result, HoldsAValueOrTheReasonWhyNot) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
  EXPECT_THROW((void)quarter(6).value(), Error);
}

TEST(Result, OfSuccessWithoutAValueIsAnInternalError) { EXPECT_EQ(Result<int>(Status()).status().code(), StatusCode::kInternal); }

TEST(Format, FillsHolesAndLeavesTheRest) {
  EXPECT_EQ(format("{} of {}", 1, "two"), "1 of two");
  EXPECT_EQ(format("{} {}", 1), "1 {}");
  EXPECT_EQ(format("none", 1), "none");
}

TEST(Format, TakesNoNoticeOfTheApplicationsLocale) {
  struct Grouped final : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const std::string text = format("{} {}", 12345678, 0.5);
  std::locale::global(before);
  EXPECT_EQ(text, "12345678 0.5");
}

TEST(CloseAllBut, ClosesEveryDescriptorThatIsNotKept) {
  const auto closes_the_others = [] {
    const int kept = ::fcntl(0, F_DUPFD, 50), also_kept = ::fcntl(0, F_DUPFD, 20), closed = ::fcntl(0, F_DUPFD, 30);
    close_all_but({kept, -1, also_kept});
    const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
    return is_open(0) && is_open(2) && is_open(kept) && is_open(also_kept) && !is_open(closed) && !is_open(51) ? 0 : 1;
  };
  EXPECT_EQ(test::exit_code_of(closes_the_others), 0);
}

TEST(Shortened, KeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(shortened("as it is", 8), "as it is");
  EXPECT_EQ(shortened("the beginning, much text, the cause", 25), "the beginn ...  the cause");
  const std::string accents = "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9";  // 16 bytes
  EXPECT_EQ(shortened(accents, 15), "\u00e9\u00e9 ... \u00e9\u00e9");
  EXPECT_EQ(shortened(accents, 12), "\u00e9 ... \u00e9");
  EXPECT_EQ(shortened(accents, 3), " ... ");
}

TEST(StatusFromErrno, MapsWhatCallersDistinguish) {
  EXPECT_EQ(status_from_errno("open", "/x", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_EQ(status_from_errno("open", "/x", EACCES).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(status_from_errno("map", "/x", ENOMEM).code(), StatusCode::kFailedPrecondition) << "as every lack of memory";
  EXPECT_EQ(status_from_errno("open", "/x", EMFILE).code(), StatusCode::kUnavailable);
  EXPECT_EQ(status_from_errno("open", "/x", ENFILE).code(), StatusCode::kUnavailable);
  EXPECT_EQ(status_from_errno("open", "/x", EIO).code(), StatusCode::kInternal);
}

TEST(Ranges, DoNotOverflow) {
  EXPECT_TRUE(fits(0, 10, 10));
  EXPECT_FALSE(fits(1, 10, 10));
  EXPECT_FALSE(fits(~std::uint64_t{0} - 1, 10, 100));
  EXPECT_FALSE(fits(5, ~std::uint64_t{0}, 100));
  EXPECT_FALSE(checked_multiply(std::uint64_t{1} << 40, std::uint64_t{1} << 40).has_value());
  EXPECT_EQ(align_up(65, 64), 128u);
  EXPECT_EQ(align_up(64, 64), 64u);
}

TEST(UniqueFd, ClosesItsDescriptorOnce) {
  UniqueFd fd(::open("/dev/null", O_RDONLY));
  const int number = fd.get();
  UniqueFd other = std::move(fd);
  EXPECT_FALSE(fd);
  EXPECT_EQ(other.get(), number);
  other.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(Clock, ManualClockMovesOnlyByHand) {
  ManualClock clock;
  const auto before = clock.now_ns();
  clock.advance_ns(5);
  EXPECT_EQ(clock.now_ns(), before + 5);
  const auto earlier = monotonic_now_ns();
  EXPECT_LE(earlier, monotonic_now_ns());
}

TEST(CheckDeathTest, AbortsWithTheConditionAndPlace) { EXPECT_DEATH(SHOAL_CHECK(1 + 1 == 3), "base_test.cpp.*1 \\+ 1 == 3"); }

}  // namespace
}  // namespace shoal
