// Checks of what the importer says when it refuses a file.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/status.hpp"

namespace shoal::test {

/// It is an error of this code, and its message has all the parts.
inline void expect_refusal(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (const std::string& part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.to_string();
}

}  // namespace shoal::test
