#include "shm/segment/hole_finder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "shm/segment/segment.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/late_page.hpp"

namespace {
bool are_pages_swapped_out = false;  // until they are asked for one by one, which follows a read
bool is_forbidden = false;           // by a filter of system calls
int read_error = 0;
}  // namespace

// Replaces that of libc.
extern "C" int mincore(void* address, size_t size, unsigned char* is_there) noexcept {
  if (is_forbidden) errno = EPERM;
  if (is_forbidden) return -1;
  const long result = ::syscall(SYS_mincore, address, size, is_there);
  if (are_pages_swapped_out && size > shoal::kPageBytes) std::fill_n(is_there, size / shoal::kPageBytes, 0);
  return static_cast<int>(result);
}

// Likewise.
extern "C" ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  if (read_error != 0) errno = read_error;
  return read_error != 0 ? -1 : ::syscall(SYS_pread64, fd, bytes, size, offset);
}

namespace shoal {
namespace {

constexpr uid_t kOwner = 64501, kReader = 64502;

std::uint64_t bytes_taken_by(const UniqueFd& fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

/// A sparse memfd of another user.
UniqueFd of_owner(std::uint64_t size, mode_t mode) {
  UniqueFd fd = reserve_memfd("test", size).value();
  EXPECT_TRUE(::fchown(fd.get(), kOwner, kOwner) == 0 && ::fchmod(fd.get(), mode) == 0);
  return fd;
}

bool become(uid_t user) { return ::setgid(user) == 0 && ::setuid(user) == 0; }

TEST(HoleFinder, SaysWhatForbidsItInsteadOfFindingAHole) {
  const UniqueFd fd = reserve_memfd("test", kPageBytes).value();
  EXPECT_TRUE(HoleFinder::check().ok());
  is_forbidden = true;
  const Status checked = HoleFinder::check();
  const auto found = HoleFinder().allocated_end(fd, 0, kPageBytes);
  is_forbidden = false;
  EXPECT_EQ(checked.code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(found.status().code(), StatusCode::kInternal);
  for (const Status& said : {checked, found.status()})
    EXPECT_NE(said.message().find("mincore: Operation not permitted"), std::string::npos) << said.to_string();
}

TEST(HoleFinder, FindsTheFirstHoleOrPageThatWasNeverWritten) {
  constexpr std::uint64_t kSize = std::uint64_t{64} << 20, kPart = std::uint64_t{20} << 20;  // more than one look
  const UniqueFd fd = reserve_memfd("test", kSize).value();
  HoleFinder finder;
  EXPECT_EQ(finder.allocated_end(fd, 0, kSize).value().end, 0u);
  Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
  ASSERT_TRUE(allocate(fd, 0, 2 * kPart).ok());
  EXPECT_EQ(finder.allocated_end(fd, 0, kSize).value().end, 0u) << "allocated, and never written";
  segment.populate(0, kPart);
  EXPECT_EQ(finder.allocated_end(fd, 0, kSize).value().end, kPart);
  EXPECT_EQ(finder.allocated_end(fd, 4096, kPart).value().end, kPart);
  EXPECT_EQ(finder.allocated_end(fd, 4096, 8192).value().end, 8192u);
  EXPECT_EQ(finder.allocated_end(fd, kPart, kSize).value().end, kPart);
  ASSERT_TRUE(punch_hole(fd, 3 * 4096, 4096).ok());
  EXPECT_EQ(finder.allocated_end(fd, 0, kPart).value().end, 3u * 4096);
  EXPECT_EQ(finder.allocated_end(fd, 4 * 4096, kPart).value().end, kPart) << "behind the hole";
  EXPECT_EQ(bytes_taken_by(fd), 2 * kPart - 4096) << "looking allocates nothing";
  EXPECT_EQ(finder.allocated_end(UniqueFd(), 0, 4096).status().code(), StatusCode::kInvalidArgument);
}

// Who writes a file holds its lock while the bytes to be written are fetched. Its owner can make that take forever.
TEST(HoleFinder, WaitsForNobody) {
  const test::LatePage page;
  if (!page.is_late()) GTEST_SKIP() << "this process may not use userfaultfd";
  const UniqueFd fd = create_memfd("test", 1 << 20).value();
  {
    Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
    segment.populate(0, 1 << 20);
  }
  std::jthread writer([&] { (void)!::pwrite(fd.get(), page.bytes(), 1, 0); });
  ASSERT_TRUE(page.await_waiter());  // now it has the lock
  auto sought = std::async(std::launch::async, [&] { return ::lseek(fd.get(), 0, SEEK_HOLE); });
  auto looked = std::async(std::launch::async, [&] { return HoleFinder().allocated_end(fd, 0, 1 << 20).value().end; });
  EXPECT_EQ(looked.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(sought.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "the lock is held";
  EXPECT_TRUE(page.give());
  EXPECT_EQ(looked.get(), 1u << 20);
  writer.join();
  sought.wait();
}

// Each takes as long as the swap device needs.
TEST(HoleFinder, ReadsInAFewPagesThatAreSwappedOutAndGoesOnWhenItIsAskedAgain) {
  constexpr std::uint64_t kPart = HoleFinder::kMostSwappedIn * kPageBytes, kSize = 4 * kPart;
  const UniqueFd fd = reserve_memfd("test", kSize).value();
  Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
  segment.populate(0, kPart + kPageBytes);
  are_pages_swapped_out = true;
  HoleFinder finder;
  const auto first = finder.allocated_end(fd, 0, kSize).value();
  EXPECT_EQ(first.end, kPart);
  EXPECT_TRUE(first.more_is_swapped);
  EXPECT_GE(finder.cost(), HoleFinder::kMostSwappedIn * HoleFinder::kSwapCost);
  const auto second = finder.allocated_end(fd, first.end, kSize).value();
  EXPECT_EQ(second.end, kPart + kPageBytes) << "then a hole comes";
  EXPECT_FALSE(second.more_is_swapped);
  EXPECT_FALSE(finder.allocated_end(fd, 0, kPart).value().more_is_swapped) << "it was all that was asked for";
  are_pages_swapped_out = false;
}

// No memory for it, or the swap device fails: that says nothing about holes.
TEST(HoleFinder, APageThatCannotBeReadFromSwapIsNoHole) {
  const UniqueFd fd = reserve_memfd("test", 2 * kPageBytes).value();
  Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
  segment.populate(0, 2 * kPageBytes);
  are_pages_swapped_out = true;
  read_error = ENOMEM;
  const auto found = HoleFinder().allocated_end(fd, 0, 2 * kPageBytes);
  are_pages_swapped_out = false;
  read_error = 0;
  EXPECT_EQ(found.status().code(), StatusCode::kOverloaded) << found.status().to_string();
}

// mincore() tells such a process that every page is there.
TEST(HoleFinder, DoesNotBelieveTheKernelAboutAFileThatOthersMayNotWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  constexpr std::uint64_t kSize = 1 << 20;
  for (const mode_t mode : {0777, 0666, 0775, 0444, 0004, 0}) {
    const bool is_writable = (mode & 02) != 0;
    const UniqueFd fd = of_owner(kSize, mode);
    {
      Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
      segment.populate(0, 8192);
    }
    EXPECT_EQ(test::exit_code_of([&] {
                if (!become(kReader)) return 1;
                const auto found = HoleFinder().allocated_end(fd, 0, kSize);
                if (found.ok()) return is_writable && found->end == 8192 ? 0 : 2;
                const bool says_why = found.status().message().find("leave the mode") != std::string::npos;
                return !is_writable && found.status().code() == StatusCode::kInvalidArgument && says_why ? 0 : 3;
              }),
              0)
        << "mode " << mode;
  }
}

// The owner changes the mode back and forth, so that mincore() lies now and then, and fstat() before and after shows nothing.
TEST(HoleFinder, NoticesAModeThatChangesWhileItLooks) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  constexpr std::uint64_t kSize = 4 << 20;
  const UniqueFd fd = of_owner(kSize, 0777);
  const pid_t owner = test::start_child([&] {
    for (bool is_owner = become(kOwner); is_owner;) {
      ::fchmod(fd.get(), 0444);
      ::fchmod(fd.get(), 0777);
    }
    return 1;
  });
  EXPECT_EQ(test::exit_code_of([&] {
              if (!become(kReader)) return 1;
              HoleFinder finder;
              bool was_refused = false;  // until then: on a busy machine the owner may not run for long
              const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
              for (int i = 0; i < 5000 || (!was_refused && std::chrono::steady_clock::now() < limit); ++i) {
                const auto found = finder.allocated_end(fd, 0, kSize);
                if (found.ok() && found->end != 0) return 2;
                was_refused = was_refused || found.status().message().find("changed while") != std::string::npos;
              }
              return was_refused ? 0 : 3;
            }),
            0);
  ::kill(owner, SIGKILL);
  EXPECT_EQ(test::exit_code_of(owner), 128 + SIGKILL);
  EXPECT_EQ(test::exit_code_of([&] {
              HoleFinder finder;
              ::fchmod(fd.get(), 0777);
              if (!become(kReader)) return 1;
              const auto found = finder.allocated_end(fd, 0, kSize);
              return found.ok() && found->end == 0 ? 0 : 2;  // nothing of earlier changes is left
            }),
            0);
}

}  // namespace
}  // namespace shoal
