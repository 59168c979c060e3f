#include <cerrno>
#include <fstream>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {

Result<std::vector<std::string>> read_labels(const ModelFiles& files, const ModelConfig& config) {
  const bool named = !config.labels_file.empty();
  std::filesystem::path path = files.directory / (named ? config.labels_file : "synset.txt");
  // One synset.txt may serve all version directories, as model.toml may.
  if (std::error_code error; !std::filesystem::exists(path, error) && !files.config_file.empty()) {
    path = files.config_file.parent_path() / path.filename();
  }
  std::ifstream file(path);
  std::vector<std::string> labels;
  if (!file) {
    return named ? Result<std::vector<std::string>>(status_from_errno("open the labels file", path.string(), errno)) : labels;
  }
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    labels.push_back(line);
  }
  while (!labels.empty() && labels.back().empty()) labels.pop_back();  // an empty line inside keeps its number
  if (file.bad()) return status_from_errno("read the labels file", path.string(), errno);
  return labels;
}

}  // namespace shoal
