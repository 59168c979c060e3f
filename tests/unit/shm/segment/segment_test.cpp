#include "shm/segment/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/support/child_process.hpp"

namespace {
int interruptions = 0;  // of the next calls of fallocate()
sigset_t blocked{};     // while the last one ran
}  // namespace

// Replaces that of libc. Before Linux 6.11 a signal interrupts it.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t size) {
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  if (interruptions > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size));
}

namespace shoal {
namespace {

UniqueFd make(std::uint64_t size = 5000) { return create_memfd("test", size).value(); }

TEST(Segment, OfWholeHugePagesLiesOnTheirBorderAndKeepsItsBytesWhenGathered) {
  constexpr std::size_t kSize = std::size_t{4} << 20;
  const UniqueFd fd = create_memfd("test", kSize, /*huge_aligned=*/true).value();
  {
    Segment writable = Segment::map(fd, Segment::Access::kReadWrite).value();
    for (std::size_t at = 0; at < kSize; at += 4096) writable.mutable_bytes()[at] = static_cast<std::byte>(at >> 12);
  }
  ASSERT_TRUE(seal(fd, Seals::kReadOnly).ok());
  const Segment segment = Segment::map(fd, Segment::Access::kReadOnly).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.bytes().data()) % (std::size_t{2} << 20), 0U);
  segment.gather_into_huge_pages();
  for (std::size_t at = 0; at < kSize; at += 4096) ASSERT_EQ(segment.bytes()[at], static_cast<std::byte>(at >> 12)) << at;
}

TEST(Segment, IsLabeledRoundedToPagesAndAllocated) {
  const UniqueFd fd = make();
  EXPECT_NE(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd.get())).string().find("memfd:shoal:test"),
            std::string::npos);
  const Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
  EXPECT_EQ(segment.size_bytes(), 8192u);
  EXPECT_EQ(create_memfd("big", 1, true).ok(), true);
}

TEST(Segment, IsAllocatedAlthoughSignalsInterruptThat) {
  interruptions = 3;
  const auto fd = create_memfd("test", 5000);
  EXPECT_TRUE(fd.ok()) << fd.status().to_string();
  EXPECT_EQ(interruptions, 0);
}

// Before Linux 6.11 an interrupted one begins again from nothing: with the signals of a profiler a large one would never end.
TEST(Segment, NoSignalInterruptsItsAllocation) {
  const auto is_blocked = [](int signal) {
    sigset_t now;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return ::sigismember(&now, signal);
  };
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR2);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &one, nullptr), 0);
  EXPECT_TRUE(create_memfd("test", 5000).ok());
  for (const int signal : {SIGPROF, SIGALRM, SIGTERM, SIGRTMAX}) {
    EXPECT_EQ(::sigismember(&blocked, signal), 1) << signal;
    EXPECT_EQ(is_blocked(signal), 0) << signal;
  }
  EXPECT_EQ(is_blocked(SIGUSR2), 1);
  ASSERT_EQ(::pthread_sigmask(SIG_UNBLOCK, &one, nullptr), 0);
}

TEST(Segment, OfAbsurdOrNoSizeIsRefused) {
  EXPECT_EQ(create_memfd("test", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(create_memfd("test", std::uint64_t{1} << 60).ok());
}

TEST(Segment, WhatIsWrittenInOneMappingIsReadInAnother) {
  const UniqueFd fd = make();
  Segment writer = Segment::map(fd, Segment::Access::kReadWrite).value();
  const Segment reader = Segment::map(fd, Segment::Access::kReadOnly).value();
  std::memcpy(writer.mutable_bytes().data(), "shoal", 5);
  EXPECT_EQ(std::memcmp(reader.bytes().data(), "shoal", 5), 0);
}

TEST(Segment, SealedWeightsCannotBeWrittenByAnyone) {
  const UniqueFd fd = make();
  {
    Segment writer = Segment::map(fd, Segment::Access::kReadWrite).value();
    EXPECT_FALSE(seal(fd, Seals::kReadOnly).ok());  // while a writable mapping exists
    writer.mutable_bytes()[0] = std::byte{42};
  }
  ASSERT_TRUE(seal(fd, Seals::kReadOnly).ok());
  EXPECT_FALSE(Segment::map(fd, Segment::Access::kReadWrite).ok());
  EXPECT_EQ(::pwrite(fd.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
  const Segment reader = Segment::map(fd, Segment::Access::kReadOnly).value();
  EXPECT_EQ(reader.bytes()[0], std::byte{42});
  void* page = const_cast<std::byte*>(reader.bytes().data());
  EXPECT_EQ(::mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
}

TEST(SegmentDeathTest, AWriteThroughAReadOnlyMappingEndsTheWriter) {
  const UniqueFd fd = make();
  ASSERT_TRUE(seal(fd, Seals::kReadOnly).ok());
  const Segment reader = Segment::map(fd, Segment::Access::kReadOnly).value();
  auto* byte = const_cast<volatile std::byte*>(reader.bytes().data());
  const auto write = [&] {
    ::signal(SIGSEGV, SIG_DFL);  // sanitizers catch it
    *byte = std::byte{1};
  };
  EXPECT_EXIT(write(), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(reader.bytes()[0], std::byte{0});
}

TEST(SegmentDeathTest, MutableBytesOfAReadOnlyMappingAreABug) {
  const UniqueFd fd = make();
  Segment reader = Segment::map(fd, Segment::Access::kReadOnly).value();
  EXPECT_DEATH((void)reader.mutable_bytes(), "check failed");
}

TEST(Segment, TheMakerOfAnInputArenaWritesOnAndNobodyElseCan) {
  const UniqueFd fd = make();
  Segment writer = Segment::map(fd, Segment::Access::kReadWrite).value();
  ASSERT_TRUE(seal(fd, Seals::kOneWriter).ok());
  writer.mutable_bytes()[7] = std::byte{9};
  EXPECT_FALSE(Segment::map(fd, Segment::Access::kReadWrite).ok());
  const UniqueFd other = reopen_read_only(fd).value();
  EXPECT_EQ(Segment::map(other, Segment::Access::kReadOnly).value().bytes()[7], std::byte{9});
  EXPECT_FALSE(Segment::map(other, Segment::Access::kReadWrite).ok());
}

// As the kernel's own compaction holds them, for moments; it waits 150 ms by itself.
TEST(Segment, SealingWaitsForPagesThatAreHeld) {
  const UniqueFd fd = create_memfd("test", 8192).value();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  {
    Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
    const iovec page{segment.mutable_bytes().data(), 4096};
    ASSERT_EQ(::vmsplice(writer.get(), &page, 1, 0), 4096);
  }
  std::jthread lets_go([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    std::array<char, 4096> bytes;
    EXPECT_EQ(::read(reader.get(), bytes.data(), bytes.size()), 4096);
  });
  const Status sealed = seal(fd, Seals::kReadOnly);
  EXPECT_TRUE(sealed.ok()) << sealed.to_string();
}

TEST(CheckSealed, AcceptsAtLeastTheSealsAskedFor) {
  const UniqueFd weights = make(), input = make(), output = make();
  ASSERT_TRUE(seal(weights, Seals::kReadOnly).ok());
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok());
  ASSERT_TRUE(seal(output, Seals::kFixedSize).ok());
  EXPECT_EQ(check_sealed(weights, Seals::kReadOnly).value(), 8192u);
  EXPECT_TRUE(check_sealed(weights, Seals::kOneWriter).ok());
  EXPECT_TRUE(check_sealed(input, Seals::kOneWriter).ok());
  EXPECT_TRUE(check_sealed(input, Seals::kFixedSize).ok());
  EXPECT_TRUE(check_sealed(output, Seals::kFixedSize).ok());
}

TEST(CheckSealed, NamesWhatIsMissing) {
  const UniqueFd output = make(), open_memory = make();
  ASSERT_TRUE(seal(output, Seals::kFixedSize).ok());
  EXPECT_NE(check_sealed(open_memory, Seals::kFixedSize).status().message().find("F_SEAL_SHRINK"), std::string::npos);
  EXPECT_NE(check_sealed(output, Seals::kOneWriter).status().message().find("F_SEAL_FUTURE_WRITE"), std::string::npos);
  EXPECT_NE(check_sealed(output, Seals::kReadOnly).status().message().find("F_SEAL_WRITE"), std::string::npos);
}

TEST(CheckWritable, RefusesWhatOthersCannotMapForWriting) {
  const UniqueFd output = make(), input = make(), weights = make();
  ASSERT_TRUE(seal(output, Seals::kFixedSize).ok());
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok());
  ASSERT_TRUE(seal(weights, Seals::kReadOnly).ok());
  EXPECT_TRUE(check_writable(output).ok());
  EXPECT_NE(check_writable(input).message().find("sealed against writing"), std::string::npos);
  EXPECT_NE(check_writable(weights).message().find("sealed against writing"), std::string::npos);
  EXPECT_NE(check_writable(reopen_read_only(output).value()).message().find("cannot be written"), std::string::npos);
  EXPECT_FALSE(check_writable(UniqueFd()).ok());
}

TEST(CheckSealed, RefusesWhatIsNoMemfd) {
  EXPECT_FALSE(check_sealed(UniqueFd(::open("/dev/null", O_RDWR)), Seals::kFixedSize).ok());
  EXPECT_FALSE(check_sealed(UniqueFd(::open("/proc/self/exe", O_RDONLY)), Seals::kFixedSize).ok());
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const UniqueFd reader(pipe_ends[0]), writer(pipe_ends[1]);
  EXPECT_FALSE(check_sealed(reader, Seals::kFixedSize).ok());
  EXPECT_FALSE(check_sealed(UniqueFd(), Seals::kFixedSize).ok());
}

// A lease (F_SETLEASE) makes open() wait until its holder gives it up, for at most /proc/sys/fs/lease-break-time (45 s).
TEST(Segment, IsNotWaitedForWhileItsMakerHoldsALease) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGIO, &ignore, &before), 0);
  {
    UniqueFd fd = make();
    ASSERT_TRUE(seal(fd, Seals::kOneWriter).ok());
    fd.reset(::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::fcntl(fd.get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
    auto opened = std::async(std::launch::async, [&] { return reopen_read_only(fd); });
    EXPECT_EQ(opened.wait_for(std::chrono::seconds(5)), std::future_status::ready) << "it waits for the lease";
    ASSERT_EQ(::fcntl(fd.get(), F_SETLEASE, F_UNLCK), 0);
    const Status status = opened.get().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find("lease"), std::string::npos) << status.message();
    EXPECT_TRUE(reopen_read_only(fd).ok());
  }
  ::sigaction(SIGIO, &before, nullptr);
}

std::uint64_t allocated_bytes(const UniqueFd& fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

TEST(Reservation, TakesNoMemoryUntilPartsOfItAreAllocated) {
  const UniqueFd fd = reserve_memfd("test", std::uint64_t{1} << 32).value();
  Segment segment = Segment::map(fd, Segment::Access::kReadWrite).value();
  EXPECT_EQ(segment.size_bytes(), std::uint64_t{1} << 32);
  ASSERT_TRUE(seal(fd, Seals::kOneWriter).ok());
  EXPECT_EQ(allocated_bytes(fd), 0u);
  const Segment other = Segment::map(fd, Segment::Access::kReadOnly).value();  // before it grows, as a worker maps it
  ASSERT_TRUE(allocate(fd, 0, 1 << 20).ok());
  segment.populate(0, 1 << 20);
  EXPECT_EQ(allocated_bytes(fd), 1u << 20);
  segment.mutable_bytes()[(1 << 20) - 1] = std::byte{5};
  EXPECT_EQ(other.bytes()[(1 << 20) - 1], std::byte{5});
  EXPECT_EQ(allocated_bytes(fd), 1u << 20);
}

TEST(Reservation, IsRefusedWhereTheKernelWouldKillForItsSize) {
  EXPECT_EQ(test::exit_code_of([] {
              const rlimit limit{1 << 20, 1 << 20};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              for (const auto& make : {+[](std::uint64_t size) { return reserve_memfd("test", size).status(); },
                                       +[](std::uint64_t size) { return create_memfd("test", size).status(); }}) {
                if (make(1 << 21).message().find("RLIMIT_FSIZE") == std::string::npos || !make(1 << 20).ok()) return 1;
              }
              return 0;
            }),
            0);
}

TEST(Reservation, NobodyPunchesHolesIntoAnInputArenaAndAnOutputArenaCanBe) {
  const UniqueFd input = make(1 << 20), output = make(1 << 20);
  Segment inputs = Segment::map(input, Segment::Access::kReadWrite).value();
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok() && seal(output, Seals::kFixedSize).ok());
  EXPECT_EQ(punch_hole(input, 0, 4096).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(::madvise(inputs.mutable_bytes().data(), 4096, MADV_REMOVE), -1);
  EXPECT_EQ(allocated_bytes(input), 1u << 20);
  EXPECT_TRUE(punch_hole(output, 4096, 1 << 19).ok());
  EXPECT_EQ(allocated_bytes(output), 1u << 19);
}

TEST(Segment, DoesNotMapWhatIsNoMemory) {
  EXPECT_FALSE(Segment::map(UniqueFd(), Segment::Access::kReadOnly).ok());
  EXPECT_FALSE(Segment::map(UniqueFd(::open("/dev/null", O_RDWR)), Segment::Access::kReadOnly).ok());
}

}  // namespace
}  // namespace shoal
