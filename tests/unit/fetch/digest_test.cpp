#include "fetch/digest.hpp"

#include <gtest/gtest.h>

#include "fetch/checksums.hpp"
#include "shm/base/errors.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::fetch {
namespace {

constexpr std::uint64_t kMega = 1 << 20;

TEST(Sha256OfFile, AsksBetweenParts) {
  const test::ScratchDirectory files;
  const std::string text(2 * kMega + 5, 'x');
  files.write("file", text);
  std::vector<std::uint64_t> done;
  const auto sum = sha256_of_file(files.path("file"), [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    EXPECT_EQ(total_bytes, text.size());
    done.push_back(done_bytes);
    return Status();
  });
  EXPECT_EQ(sum.value(), hex(sha256(text)));
  EXPECT_EQ(done, (std::vector<std::uint64_t>{kMega, 2 * kMega}));
}

TEST(Sha256OfFile, EndsWhenItShall) {
  const test::ScratchDirectory files;
  files.write("file", std::string(3 * kMega, 'x'));
  int calls = 0;
  const auto sum = sha256_of_file(files.path("file"), [&](std::uint64_t, std::uint64_t) {
    ++calls;
    return deadline_exceeded("too late");
  });
  EXPECT_EQ(sum.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(calls, 1);
}

TEST(SumOf, LooksAtTheDeadlineAndAtWhoeverAsked) {
  const test::ScratchDirectory files;
  files.write("file", std::string(2 * kMega, 'x'));
  std::string told;
  const auto listen = [&](const Course::Progress& progress) { told = progress.file; };
  const Course late(
      {.total_ns = 0}, [] { return true; }, listen);
  EXPECT_EQ(sum_of(late, files.path("file"), "file").status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(told, "file (verifying)");
  const Course alone(
      {.total_ns = std::uint64_t{3600} * 1'000'000'000}, [] { return false; }, listen);
  EXPECT_EQ(sum_of(alone, files.path("file"), "file").status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace shoal::fetch
