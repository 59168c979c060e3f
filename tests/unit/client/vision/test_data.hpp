// Where the test data are, and pixels of pictures.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "shoal/image.hpp"

namespace shoal::vision {

/// $SHOAL_TEST_DATA, else `shared` beside the source tree.
inline std::filesystem::path test_data() {
  if (const char* given = std::getenv("SHOAL_TEST_DATA")) return given;
  const char* source = std::getenv("SHOAL_SOURCE_DIR");
  return std::filesystem::path(source ? source : ".") / ".." / "shared";
}

/// Its red, green and blue.
inline std::vector<std::uint8_t> pixel(const Image& image, int y, int x) {
  const auto at = image.rgb().begin() + (static_cast<std::ptrdiff_t>(y) * image.width() + x) * 3;
  return {at, at + 3};
}

}  // namespace shoal::vision
