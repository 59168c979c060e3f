#include "supervisor/repository/load_estimate.hpp"

#include "tests/support/says.hpp"

namespace shoal::supervisor {
namespace {

using test::says;

TEST(LoadEstimate, NamesBothNumbers) {
  VersionEntry entry;
  entry.parameter_bytes = 300'000'000;
  entry.model.config.workers = 4;
  entry.model.config.contexts = 2;
  const LoadEstimate first = estimate_load(entry, 0, 0);
  EXPECT_EQ(first.sum(), 600'000'000u) << "what is packed is as large as what is read";
  const LoadEstimate next = estimate_load(entry, 400'000'000, 10'000'000);
  EXPECT_EQ(next.sum(), 300'000'000u + 400'000'000u + 8 * 10'000'000u);
  EXPECT_TRUE(check_estimate("net", next, 780'000'000).ok());
  const Status refused = check_estimate("net", next, 700'000'000);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(refused.message(), {"'net'", "780 MB", "700 MB are available", "300 MB", "400 MB", "80 MB"}));
}

// The zygote of the version that serves says how large its arenas are.
TEST(LoadEstimate, NumbersThatWouldOverflowDoNotFit) {
  VersionEntry entry;
  entry.parameter_bytes = 1'000;
  entry.model.config.workers = 8;
  for (const std::uint64_t arena_bytes : {std::uint64_t{1} << 61, ~std::uint64_t{0} / 8, ~std::uint64_t{0}}) {
    const LoadEstimate estimate = estimate_load(entry, 0, arena_bytes);
    EXPECT_GT(estimate.sum(), std::uint64_t{1} << 63) << arena_bytes;
    EXPECT_FALSE(check_estimate("net", estimate, std::uint64_t{1} << 40).ok()) << arena_bytes;
  }
}

}  // namespace
}  // namespace shoal::supervisor
