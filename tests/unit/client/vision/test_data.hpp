// Where the test data are.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace shoal::vision {

/// $SHOAL_TEST_DATA, else `shared` beside the source tree.
inline std::filesystem::path test_data() {
  if (const char* given = std::getenv("SHOAL_TEST_DATA")) return given;
  const char* source = std::getenv("SHOAL_SOURCE_DIR");
  return std::filesystem::path(source ? source : ".") / ".." / "shared";
}

}  // namespace shoal::vision
