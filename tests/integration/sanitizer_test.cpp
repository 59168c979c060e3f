// That a report of a sanitizer in the daemon or in a worker is noticed. Built with AddressSanitizer only.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

TEST(Sanitizer, AWorkerThatWritesBehindABlockIsReportedAndReplaced) {
  const ScratchDirectory models;
  // A report waits for another process, the symbolizer, for longer than 250 ms on a busy machine. A model whose runs take so long
  // is not called hung then.
  write_checkpoint(models.path(), "m",
                   {{"_fault_spin", "spin0", {{"scalar", "500"}}, {}}, {"_fault_overrun", "bad0", {{"scalar", "666"}}, {}}},
                   "[-1, 4]");
  const DaemonFixture daemon({.models = {"bad=" + models.path()}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("bad", {{"data", counting({1, 4}, 1)}}).ok());
  EXPECT_EQ(daemon.take_sanitizer_reports(), "");
  EXPECT_FALSE(pool.predict("bad", {{"data", counting({1, 4}, 666)}}).ok());
  const std::string reports = daemon.take_sanitizer_reports();
  EXPECT_TRUE(says(reports, {"fault_overrun"}));  // by either sanitizer
  EXPECT_TRUE(pool.predict("bad", {{"data", counting({1, 4}, 2)}}).ok());
}

}  // namespace
}  // namespace shoal::test
