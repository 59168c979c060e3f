// Classifies all pictures of a folder with a model of the local daemon, and shows how far it is.
//
//   SHOAL_DIR=/tmp/shoal shoald --model shapes=tools/shapes/model,workers=2 &
//   SHOAL_DIR=/tmp/shoal example_classify_folder shapes tools/shapes/pictures
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shoal/image_classifier.hpp"
#include "shoal/pool.hpp"

namespace {

constexpr std::size_t kStep = 32, kBarWidth = 40;  // pictures between two looks at the bar; its characters

void show_progress(std::size_t done, std::size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  const std::string bar(kBarWidth * done / all, '#');
  std::fprintf(stderr, "\r[%-*s] %zu of %zu%s", static_cast<int>(kBarWidth), bar.c_str(), done, all, done == all ? "\n" : "");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);

  shoal::Pool pool = shoal::Pool::connect().value();
  const auto classifier = shoal::ImageClassifier::create(pool, argv[1], {.top_k = 1}).value();
  for (std::size_t first = 0; first < files.size(); first += kStep) {
    const auto some = std::span(files).subspan(first, std::min(kStep, files.size() - first));
    const std::vector<shoal::Classes> classes = classifier.classify(some).value();  // reads, prepares and runs several at once
    for (std::size_t i = 0; i < some.size(); ++i) {
      std::printf("%s: %s (%.1f %%)\n", some[i].filename().c_str(), classes[i][0].label.c_str(),
                  100 * static_cast<double>(classes[i][0].probability));
    }
    show_progress(first + some.size(), files.size());
  }
  return 0;
} catch (const std::exception& error) {  // shoal::Error is one
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
