// Writes small MXNet checkpoints for tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace shoal::test {

/// One operator of a chain on the input `data` (float32). Its inputs are the output of the operator before it, then its weights.
struct ChainNode {
  std::string op, name;
  std::map<std::string, std::string> attributes;
  std::map<std::string, std::vector<float>> weights;  ///< by argument name, 1-D
};
/// Writes DIRECTORY/PREFIX-symbol.json, PREFIX-0000.params, and a model.toml that gives `data` that shape ("[-1, 4]"). The
/// model's output is named "LAST NODE_output".
void write_checkpoint(const std::filesystem::path& directory, const std::string& prefix, const std::vector<ChainNode>& chain,
                      const std::string& shape);

/// Writes DIRECTORY/PREFIX-symbol.json with that text, a .params file with these arrays (1-D), and a model.toml with `inputs`.
void write_graph(const std::filesystem::path& directory, const std::string& prefix, const std::string& symbol,
                 const std::string& inputs, const std::map<std::string, std::vector<float>>& weights = {});

}  // namespace shoal::test
