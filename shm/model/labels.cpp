#include <sstream>

#include "shm/base/text_file.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {

Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config) {
  const bool named = !config.labels_file.empty();
  std::filesystem::path path = files.directory / (named ? config.labels_file : "synset.txt");
  // One synset.txt may serve all version directories, like model.toml.
  if (std::error_code error; !std::filesystem::exists(path, error) && !files.config_file.empty()) {
    path = files.config_file.parent_path() / path.filename();
  }
  if (std::error_code error; !named && !std::filesystem::exists(path, error)) return std::vector<std::string>();
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
