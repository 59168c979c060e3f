#include "shm/log/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/support/child_process.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

constexpr unsigned kPatienceS = 60;  // then SIGALRM ends a child that hangs

// stderr becomes a pipe that is full and that nobody reads.
void clog_stderr() {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(1);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (::write(ends[1], "full", 4) > 0) continue;
  ::fcntl(ends[1], F_SETFL, 0);
  ::dup2(ends[1], STDERR_FILENO);
}

TEST(Logger, AProcessEndsWhileNobodyReadsItsLog) {
  const auto run = [] {
    ::alarm(kPatienceS);
    clog_stderr();
    Logger("test", LogMode::kDropping).info("nobody_reads");
    std::exit(0);  // not _exit(): static objects are destroyed, too
    return 1;
  };
  EXPECT_EQ(test::exit_code_of(run), 0);
}

TEST(Logger, EveryLineIsWrittenBeforeTheProcessEnds) {
  const test::ScratchDirectory scratch;
  const std::string file = scratch.path("log");
  constexpr int kLines = 1000;
  const auto run = [&] {
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(fd, STDERR_FILENO);
    Logger log("test", LogMode::kDropping);
    for (int i = 0; i < kLines; ++i) log.info("line number={}", i);
    return 0;
  };
  EXPECT_EQ(test::exit_code_of(run), 0);
  std::ifstream stream(file);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(stream), {}, '\n'), kLines);
}

}  // namespace
}  // namespace shoal
