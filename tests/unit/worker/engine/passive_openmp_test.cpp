#include "shoal/passive_openmp.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace shoal {
namespace {

void print_variables() {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    const char* const value = std::getenv(name);
    std::printf("<%s>", value ? value : "");
  }
}

/// What a program that was executed again has to say: this one, with a filter.
TEST(PassiveOpenmp, DISABLED_PrintsItsVariables) { print_variables(); }

/// What libgomp sees in a program that was started with these ("" = not set).
std::string variables_after(const char* policy, const char* spin_count) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    *policy ? ::setenv("OMP_WAIT_POLICY", policy, 1) : ::unsetenv("OMP_WAIT_POLICY");
    *spin_count ? ::setenv("GOMP_SPINCOUNT", spin_count, 1) : ::unsetenv("GOMP_SPINCOUNT");
    char name[] = "test", filter[] = "--gtest_filter=PassiveOpenmp.DISABLED_*", disabled[] = "--gtest_also_run_disabled_tests";
    char* argv[] = {name, filter, disabled, nullptr};
    ensure_passive_openmp(argv);
    print_variables();  // it was not executed again
    std::fflush(stdout);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t size; (size = ::read(ends[0], bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(size));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  const auto begin = text.find('<'), end = text.rfind('>');
  return begin == std::string::npos ? text : text.substr(begin, end - begin + 1);
}

TEST(PassiveOpenmp, SetsWhatTheUserLeftOpen) {
  EXPECT_EQ(variables_after("", ""), "<passive><30000>");
  EXPECT_EQ(variables_after("passive", ""), "<passive><30000>");
  EXPECT_EQ(variables_after("PASSIVE", "7"), "<PASSIVE><7>");
  EXPECT_EQ(variables_after("", "7"), "<passive><7>");
  EXPECT_EQ(variables_after("active", ""), "<active><>");
}

}  // namespace
}  // namespace shoal
