// `shoal classify`: the classes of pictures.
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shoal/image_classifier.hpp"
#include "tools/shoal/file_queue.hpp"
#include "tools/shoal/picture_commands.hpp"

namespace shoal::tool {
namespace {

void print_json(const std::vector<std::string>& files, const std::vector<Classes>& all) {
  nlohmann::json pictures = nlohmann::json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    nlohmann::json classes = nlohmann::json::array();
    for (const ClassScore& score : all[i])
      classes.push_back({{"index", score.index}, {"label", score.label}, {"probability", score.probability}});
    pictures.push_back({{"file", files[i]}, {"classes", classes}});
  }
  std::printf("%s\n", json_text(nlohmann::json{{"pictures", pictures}}).c_str());
}

void print_table(const std::vector<std::string>& files, const std::vector<Classes>& all) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const ClassScore& score : all[i]) {
      std::array<char, 16> percent{};
      std::snprintf(percent.data(), percent.size(), "%.1f %%", 100 * static_cast<double>(score.probability));
      rows.push_back({&score == &all[i].front() ? files[i] : "", percent.data(),
                      score.label.empty() ? format("class {}", score.index) : score.label});
    }
  }
  std::fputs(align_columns(rows, {false, true, false}).c_str(), stdout);
}

}  // namespace

Finish classify(const ClassifyOptions& options, Invocation& invocation) {
  return with_picture_model(options, invocation, [&](const PictureModel& model) -> Finish {
    auto classifier = model.wait_for([&] {
      return ImageClassifier::create(model.client, model.model, {.preprocess = model.preprocess, .top_k = options.top_k});
    });
    if (!classifier.ok()) return daemon_failure(classifier.status());
    for (const std::string& warning : classifier->warnings()) invocation.console.warn(warning);
    FileQueue<Classes> queue("classifying", options.files, [&](std::size_t i, Classes& classes) -> Finish {
      SHOAL_ASSIGN_OR_RETURN(const Image image, Image::read(options.files[i]));
      auto result = classifier->classify(image);
      if (!result.ok()) return daemon_failure(result.status().with_context(options.files[i]));
      classes = *std::move(result);
      return {};
    });
    Finish finish = queue.run(model.threads);
    if (!finish.status.ok()) return finish;
    options.json ? print_json(options.files, queue.results()) : print_table(options.files, queue.results());
    return {};
  });
}

}  // namespace shoal::tool
