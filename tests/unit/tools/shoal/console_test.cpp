#include "tools/shoal/console.hpp"

#include <gtest/gtest.h>

#include "shm/base/errors.hpp"

namespace shoal::tool {
namespace {

TEST(Finish, OfAStatusIsSuccessOrTheRequestsFault) {
  EXPECT_EQ(Finish().code, kSuccess);
  EXPECT_EQ(Finish(Status()).code, kSuccess);
  EXPECT_EQ(Finish(not_found("no file")).code, kAtFault);
  EXPECT_EQ(usage_failure(invalid_argument("what")).code, kUsage);
}

TEST(Finish, TellsADaemonThatCannotFromARequestThatIsWrong) {
  for (const StatusCode code : {StatusCode::kUnavailable, StatusCode::kOverloaded, StatusCode::kPermissionDenied}) {
    EXPECT_EQ(daemon_failure(Status(code, "")).code, kNotAvailable) << status_code_name(code);
  }
  for (const StatusCode code : {StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kPoison,
                                StatusCode::kDeadlineExceeded, StatusCode::kAborted}) {
    EXPECT_EQ(daemon_failure(Status(code, "")).code, kAtFault) << status_code_name(code);
  }
  EXPECT_EQ(daemon_failure(Status()).code, kSuccess);
}

TEST(Console, PrintsTheErrorOnOneLineBeforeTheWarnings) {
  testing::internal::CaptureStderr();
  Console console;
  console.warn("a parameter is superfluous");
  EXPECT_EQ(console.finish(invalid_argument("two\nlines")), kAtFault);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "shoal: INVALID_ARGUMENT: two lines\nshoal: warning: a parameter is superfluous\n");
}

TEST(Printable, TextSteersNoTerminal) {
  EXPECT_EQ(printable("a\x1b[2J\r\x7f\nb\tc"), "a?[2J??\nb?c");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J and \xc2\xa9, \xc3\xa9"),
            "?2J and \xc2\xa9, \xc3\xa9");
  EXPECT_EQ(align_columns({{"a\x1b[31m", "1"}}, {false, true}), "a?[31m  1\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(Console().finish(invalid_argument("node '\x1b]0;mine\x07'")), kAtFault);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "shoal: INVALID_ARGUMENT: node '?]0;mine?'\n");
}

TEST(Columns, AreAlignedByCharactersNotBytes) {
  EXPECT_EQ(align_columns({{"é", "1"}, {"ab", "22"}}, {false, true}), "é    1\nab  22\n");
  EXPECT_EQ(align_columns({}, {false}), "");
}

TEST(Bytes, ReadAsPeopleWriteThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1500), "1.5 kB");
  EXPECT_EQ(format_bytes(92'000'000), "92.0 MB");
}

}  // namespace
}  // namespace shoal::tool
