#include <sstream>

#include "shm/base/text_file.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {

std::filesystem::path labels_path(const ModelFiles& files, const ModelConfig& config) {
  const std::filesystem::path path = files.directory / (config.labels_file.empty() ? "synset.txt" : config.labels_file);
  // One synset.txt may serve all version directories, like model.toml.
  std::error_code error;
  if (std::filesystem::exists(path, error) || files.config_file.empty()) return path;
  return files.config_file.parent_path() / path.filename();
}

Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config) {
  const std::filesystem::path path = labels_path(files, config);
  if (std::error_code error; config.labels_file.empty() && !std::filesystem::exists(path, error))
    return std::vector<std::string>();
  auto text = read_text_file(path);
  if (!text.ok()) return text.status().with_context("labels");
  std::istringstream lines(*std::move(text));
  std::vector<std::string> labels;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    labels.push_back(line);
  }
  while (!labels.empty() && labels.back().empty())
    labels.pop_back();  // an empty line in the middle stays, so that the numbers of the others do not change
  return labels;
}

}  // namespace shoal
