#pragma once

#include <string>
#include <vector>

#include "tests/unit/supervisor/catalog/catalog_world.hpp"

namespace shoal::supervisor {

/// A catalog whose world has seen no promise broken.
class CatalogTest : public testing::Test, protected CatalogWorld {
 protected:
  using Words = std::vector<std::string>;

  void TearDown() override { EXPECT_EQ(broken_, ""); }
  /// Serves that path, and forgets what was said meanwhile.
  void serve(const std::string& path) {
    EXPECT_TRUE(load(path).ok());
    settle();
    words();
  }
};

}  // namespace shoal::supervisor
