// Classifies all pictures of a folder with a model of the local daemon, and shows how far it is. A picture that cannot be
// classified, for example a damaged one, is named, and the others go on; the exit code then is 1.
//
//   SHOAL_DIR=/tmp/shoal shoald --model shapes=tools/shapes/model,workers=2 &
//   SHOAL_DIR=/tmp/shoal example_classify_folder shapes tools/shapes/pictures
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/image_classifier.hpp"
#include "shoal/pool.hpp"

namespace {

constexpr std::size_t kStep = 32, kBarWidth = 40;  // pictures between two looks at the bar; its characters
constexpr std::array<std::string_view, 5> kSuffixes{".bmp", ".jpeg", ".jpg", ".png", ".webp"};

std::vector<std::filesystem::path> pictures_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string suffix = entry.path().extension();
    std::ranges::transform(suffix, suffix.begin(), [](unsigned char letter) { return std::tolower(letter); });
    if (std::ranges::count(kSuffixes, suffix) > 0) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void print(const std::filesystem::path& file, const shoal::ClassScore& best) {
  const std::string label = best.label.empty() ? std::to_string(best.index) : best.label;
  std::printf("%s: %s (%.1f %%)\n", file.filename().c_str(), label.c_str(), 100 * static_cast<double>(best.probability));
}

void show_progress(std::size_t done, std::size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  const std::string bar(kBarWidth * done / all, '#');
  std::fprintf(stderr, "\r[%-*s] %zu of %zu%s", static_cast<int>(kBarWidth), bar.c_str(), done, all, done == all ? "\n" : "");
}

void hide_progress() {  // so that lines can be written
  if (isatty(STDERR_FILENO)) std::fputs("\r\033[K", stderr);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL FOLDER\n", argv[0]);
    return 2;
  }
  const std::vector<std::filesystem::path> files = pictures_in(argv[2]);
  if (files.empty()) {
    std::fprintf(stderr, "%s: has no pictures\n", argv[2]);
    return 1;
  }

  shoal::Pool pool = shoal::Pool::connect().value();
  const auto classifier = shoal::ImageClassifier::create(pool, argv[1], {.top_k = 1}).value();
  for (const std::string& warning : classifier.warnings()) std::fprintf(stderr, "%s\n", warning.c_str());
  bool have_failed = false;
  for (std::size_t first = 0; first < files.size(); first += kStep) {
    const auto some = std::span(files).subspan(first, std::min(kStep, files.size() - first));
    const auto together = classifier.classify(some);  // reads, prepares and runs several at once
    hide_progress();
    for (std::size_t i = 0; i < some.size(); ++i) {  // if one has failed, each by itself
      const auto classes = together.ok() ? shoal::Result<shoal::Classes>(together.value()[i]) : classifier.classify(some[i]);
      if (classes.ok()) {
        print(some[i], classes.value()[0]);
      } else {
        have_failed = true;
        std::fprintf(stderr, "%s: %s\n", some[i].filename().c_str(), classes.status().message().c_str());
      }
    }
    show_progress(first + some.size(), files.size());
  }
  return have_failed ? 1 : 0;
} catch (const std::exception& error) {  // shoal::Error is one
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
