// Writes small MXNet checkpoints for tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace shoal::test {

/// A chain of operators on the input `data` (float32): each takes what the one before it gave, then its weights.
struct ChainNode {
  std::string op, name;
  std::map<std::string, std::string> attributes;
  std::map<std::string, std::vector<float>> weights;  ///< by argument name, 1-D
};
/// Writes DIRECTORY/PREFIX-symbol.json, PREFIX-0000.params and model.toml, which says that `data` has that shape ("[-1, 4]").
/// Its output is named "LAST NODE_output".
void write_checkpoint(const std::filesystem::path& directory, const std::string& prefix, const std::vector<ChainNode>& chain,
                      const std::string& shape);

}  // namespace shoal::test
