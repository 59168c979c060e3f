// The options of `shoal classify` and `shoal detect`, which the programs shoal and shoal-pictures both read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shoal::tool {

/// Of both commands.
struct PictureOptions {
  std::string model, preset, precision;
  std::vector<std::string> files;
  std::size_t top_k = 0;
  int contexts = 0;
  bool json = false;
};

struct ClassifyOptions : PictureOptions {
  ClassifyOptions() { top_k = 5; }
};

struct DetectOptions : PictureOptions {
  float threshold = 0.5f;
  std::string labels, draw, format;
};

/// Adds the command, which fills `options`.
CLI::App* add_classify(CLI::App& application, ClassifyOptions& options);
CLI::App* add_detect(CLI::App& application, DetectOptions& options);

}  // namespace shoal::tool
