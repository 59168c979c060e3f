// Embedding: tokens, their indices and their vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/options.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

struct EmbeddingOptions {
  StructSize<EmbeddingOptions> struct_size{};
  /// The token that stands for every token that is not in the vocabulary. If the vocabulary lacks it, or this is empty, such
  /// tokens are kNotFound; read() gives it index 0.
  Text unknown_token = "<unk>";
  bool lower_case_backup = false;  ///< a token that is not there is looked for in lower case (ASCII), before it is unknown
};

/// A token near another one.
struct Neighbor {
  std::int64_t index = 0;
  std::string token;
  float similarity = 0;  ///< cosine of the angle between both vectors, from -1 to 1
};

/// A vocabulary and a vector per token. Row i of the matrix belongs to token i, which a model takes as its input i.
///   Lifetime  views are valid while this or a copy of it exists. Copies share the numbers
///   Threads   immutable
class Embedding {
 public:
  Embedding() = default;  ///< without a token, as one that was moved from
  /// `matrix` is tokens x width, of floats.
  ///   Errors  kInvalidArgument (another number of rows, no matrix of floats, a token that is there twice)
  static Result<Embedding> create(std::vector<std::string> tokens, Tensor matrix, const EmbeddingOptions& options = {});
  /// Reads a vocabulary of one token per line, and a .npy file with the matrix: a model's weight, say.
  ///   Errors  those of create(), and of reading files, which they name
  static Result<Embedding> load(const std::filesystem::path& vocabulary, const std::filesystem::path& matrix,
                                const EmbeddingOptions& options = {});
  /// Reads a text file of GloVe, fastText or MXNet's contrib.text.embedding: per line a token and its numbers, separated by
  /// spaces or tabs. A first line of two words is fastText's head: the file then has at least as many vectors as it says. A token
  /// may have spaces, and the first line of a token counts.
  /// As in MXNet, index 0 is the unknown token: its vector is that of the file, or zeros. Without an unknown token the first line
  /// has index 0.
  ///   Errors  kInvalidArgument (names file, line and what is wrong), kDataLoss (fewer vectors than the head says),
  ///           kFailedPrecondition (out of memory), and those of reading
  static Result<Embedding> read(const std::filesystem::path& file, const EmbeddingOptions& options = {});

  std::size_t size() const;   ///< tokens
  std::size_t width() const;  ///< numbers per token
  bool contains(std::string_view token) const;
  /// By the rule of EmbeddingOptions. Errors: kNotFound (no such token, and none stands for it).
  Result<std::int64_t> index(std::string_view token) const;
  /// The indices of a text's tokens: the input of a model.
  Result<std::vector<std::int64_t>> indices(std::span<const std::string> tokens) const;
  /// Errors: kNotFound (no such index).
  Result<std::string_view> token(std::int64_t index) const;
  Result<std::span<const float>> vector(std::int64_t index) const;
  /// Errors: as for index().
  Result<std::span<const float>> vector(std::string_view token) const;

  /// The `k` tokens whose vectors have the smallest angles to `vector`, the nearest first. Zero vectors and those with NaN are
  /// near to nothing.
  ///   Errors  kInvalidArgument (another width)
  Result<std::vector<Neighbor>> nearest(std::span<const float> vector, std::size_t k) const;
  /// The same for a token, which is not among them. Errors: as for index().
  Result<std::vector<Neighbor>> nearest(std::string_view token, std::size_t k) const;

 private:
  struct Impl;
  explicit Embedding(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace shoal
