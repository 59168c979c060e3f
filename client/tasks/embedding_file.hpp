// Text files of vectors: GloVe, fastText, MXNet.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::tasks {

struct EmbeddingRows {
  std::vector<std::string> tokens;
  std::vector<float> numbers;  ///< width per token
  std::size_t width = 0;
};

/// Reads a file as Embedding::read() says.
///   unknown_token  gets row 0; empty: no token does
///   Errors         those of Embedding::read()
Result<EmbeddingRows> read_embedding_file(const std::filesystem::path& file, std::string_view unknown_token);

/// One token per line; the last line may be empty. Errors: those of reading, which name the file.
Result<std::vector<std::string>> read_vocabulary(const std::filesystem::path& file);

}  // namespace shoal::tasks
