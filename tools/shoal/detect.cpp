// `shoal detect`: the objects in pictures.
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/object_detector.hpp"
#include "tools/shoal/file_queue.hpp"
#include "tools/shoal/picture_commands.hpp"

namespace shoal::tool {
namespace {

namespace fs = std::filesystem;

void print_json(const std::vector<std::string>& files, const std::vector<Detections>& all) {
  nlohmann::json pictures = nlohmann::json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    nlohmann::json detections = nlohmann::json::array();
    for (const auto& [index, label, score, box] : all[i])
      detections.push_back({{"index", index}, {"label", label}, {"score", score}, {"box", {box.x0, box.y0, box.x1, box.y1}}});
    pictures.push_back({{"file", files[i]}, {"detections", detections}});
  }
  std::printf("%s\n", json_text(nlohmann::json{{"pictures", pictures}}).c_str());
}

void print_table(const std::vector<std::string>& files, const std::vector<Detections>& all) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (all[i].empty()) rows.push_back({files[i], "", "nothing found", "", "", "", ""});
    for (const auto& detection : all[i]) {
      std::array<char, 16> score{};
      std::snprintf(score.data(), score.size(), "%.1f %%", 100 * static_cast<double>(detection.score));
      std::vector<std::string> row{&detection == &all[i].front() ? files[i] : "", score.data(),
                                   detection.label.empty() ? format("class {}", detection.index) : detection.label};
      for (const float side : {detection.box.x0, detection.box.y0, detection.box.x1, detection.box.y1})
        row.push_back(format("{}", std::lround(side)));
      rows.push_back(std::move(row));
    }
  }
  std::fputs(align_columns(rows, {false, true, false, true, true, true, true}).c_str(), stdout);
}

/// Refuses to write a drawing over one of the pictures, whatever names it has.
Status check_keeps(const std::vector<std::string>& pictures, const std::vector<fs::path>& drawn) {
  std::map<std::pair<dev_t, ino_t>, std::string> kept;
  struct stat info {};
  for (const std::string& picture : pictures) {
    if (::stat(picture.c_str(), &info) == 0) kept.emplace(std::pair(info.st_dev, info.st_ino), picture);
  }
  for (const fs::path& file : drawn) {
    if (::stat(file.c_str(), &info) != 0) continue;
    if (const auto picture = kept.find({info.st_dev, info.st_ino}); picture != kept.end()) {
      return invalid_argument("--draw would write {} over the picture {}: name another file or directory", file.string(),
                              picture->second);
    }
  }
  return {};
}

/// Whether pictures can be written in the format that the name of the file says.
Status check_format(const fs::path& file) {
  SHOAL_ASSIGN_OR_RETURN(const Image dot, Image::from_rgb(1, 1, {0, 0, 0}));
  return dot.encode(file.extension().native()).status().with_context(file.native());
}

/// Where --draw writes each picture; nothing without it.
Result<std::vector<fs::path>> drawn_files(const DetectOptions& options) {
  std::vector<fs::path> drawn;
  if (options.draw.empty()) return drawn;
  std::error_code error;
  if (options.files.size() == 1 && !options.draw.ends_with('/') && !fs::is_directory(options.draw, error)) {
    drawn.emplace_back(options.draw);
    SHOAL_RETURN_IF_ERROR(check_format(drawn[0]));
  } else {
    fs::create_directories(options.draw, error);
    if (error) return status_from_errno("make the directory", options.draw, error.value());
    std::set<fs::path> names;
    for (const std::string& file : options.files) {
      drawn.push_back(fs::path(options.draw) / fs::path(file).stem().concat(".png"));
      if (!names.insert(drawn.back()).second)
        return invalid_argument("--draw: {} would be written for two pictures: rename one of them", drawn.back().string());
    }
  }
  SHOAL_RETURN_IF_ERROR(check_keeps(options.files, drawn));
  return drawn;
}

Result<ObjectDetectorOptions> detector_options(const DetectOptions& options) {
  ObjectDetectorOptions made{.threshold = options.threshold, .top_k = options.top_k};
  if (options.format == "multibox") made.format = DetectionFormat::kMultiBoxRows;
  if (options.format == "nms") made.format = DetectionFormat::kNmsRows;
  if (options.format == "gluoncv") made.format = DetectionFormat::kIdsScoresBoxes;
  if (!options.labels.empty()) {
    ModelConfig config;
    config.labels_file = fs::absolute(options.labels).string();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> labels, read_labels({}, config));
    made.labels = labels;
  }
  return made;
}

}  // namespace

Finish detect(const DetectOptions& options, Invocation& invocation) {
  const auto drawn = drawn_files(options);
  if (!drawn.ok()) return drawn.status();
  auto made = detector_options(options);
  if (!made.ok()) return made.status();
  return with_picture_model(options, invocation, [&](const PictureModel& model) -> Finish {
    if (model.preprocess) made->preprocess = *model.preprocess;
    auto detector = model.wait_for([&] { return ObjectDetector::create(model.client, model.model, *made); });
    if (!detector.ok()) return daemon_failure(detector.status());
    for (const std::string& warning : detector->warnings()) invocation.console.warn(warning);
    FileQueue<Detections> queue("detecting", options.files, [&](std::size_t i, Detections& detections) -> Finish {
      SHOAL_ASSIGN_OR_RETURN(const Image image, Image::read(options.files[i]));
      auto result = detector->detect(image);
      if (!result.ok()) return daemon_failure(result.status().with_context(options.files[i]));
      detections = *std::move(result);
      if (drawn->empty()) return {};
      SHOAL_ASSIGN_OR_RETURN(const Image picture, draw_detections(image, detections));
      return picture.write((*drawn)[i]);
    });
    Finish finish = queue.run(model.threads);
    if (!finish.status.ok()) return finish;
    options.json ? print_json(options.files, queue.results()) : print_table(options.files, queue.results());
    return {};
  });
}

}  // namespace shoal::tool
