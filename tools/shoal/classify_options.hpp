// The options of `shoal classify`, which the programs shoal and shoal-classify both read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shoal::tool {

struct ClassifyOptions {
  std::string model, preset, precision;
  std::vector<std::string> files;
  std::size_t top_k = 5;
  int contexts = 0;
  bool json = false;
};

/// Adds the command, which fills `options`.
CLI::App* add_classify(CLI::App& application, ClassifyOptions& options);

}  // namespace shoal::tool
