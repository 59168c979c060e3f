#include "shoal/embedding.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <new>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "client/tasks/embedding_file.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/tensor/npy.hpp"
#include "shoal/numbers.hpp"

namespace shoal {

struct Embedding::Impl {
  bool lower_case_backup = false;
  std::vector<std::string> tokens;
  std::unordered_map<std::string_view, std::int64_t> places;  ///< of `tokens`
  Tensor matrix;                                              ///< float32
  std::size_t width = 0;
  std::vector<float> lengths;           ///< of the rows
  std::optional<std::int64_t> unknown;  ///< its place

  std::span<const float> row(std::size_t i) const { return std::as_const(matrix).values<float>().subspan(i * width, width); }

  std::optional<std::int64_t> find(std::string_view token) const {
    if (const auto found = places.find(token); found != places.end()) return found->second;
    if (!lower_case_backup) return {};
    std::string lower(token);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto found = places.find(lower);
    return found == places.end() ? std::nullopt : std::optional(found->second);
  }
};

namespace {

/// Sums in several registers, so that the compiler can use vectors.
float dot(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) sums[k] += a[i + k] * b[i + k];
  }
  float sum = std::accumulate(sums.begin(), sums.end(), 0.0f);
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

float length_of(std::span<const float> vector) { return std::sqrt(dot(vector, vector)); }

/// The matrix in float32.
Result<Tensor> to_float32(Tensor matrix) {
  if (matrix.dtype() == DType::kFloat32) return matrix;
  SHOAL_ASSIGN_OR_RETURN(Tensor converted, Tensor::create(DType::kFloat32, matrix.shape()));
  SHOAL_RETURN_IF_ERROR(Numbers(matrix.view()).copy_to(converted.view(), "the matrix of an embedding"));
  return converted;
}

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace

Result<Embedding> Embedding::create(std::vector<std::string> tokens, Tensor matrix, const EmbeddingOptions& given) try {
  const EmbeddingOptions options = whole(given);
  const Shape& shape = matrix.shape();
  if (!is_float(matrix.dtype()) || shape.rank() != 2 || shape[0] != static_cast<std::int64_t>(tokens.size()) || shape[1] < 1) {
    return invalid_argument("an embedding of {} tokens needs a matrix of floats, {} x width, and this one is {} {}",
                            tokens.size(), tokens.size(), dtype_name(matrix.dtype()), shape.to_string());
  }
  auto impl = std::make_shared<Impl>();
  impl->lower_case_backup = options.lower_case_backup;
  impl->tokens = std::move(tokens);
  SHOAL_ASSIGN_OR_RETURN(impl->matrix, to_float32(std::move(matrix)));
  impl->width = static_cast<std::size_t>(impl->matrix.shape()[1]);
  impl->places.reserve(impl->tokens.size());
  impl->lengths.reserve(impl->tokens.size());
  for (std::size_t i = 0; i < impl->tokens.size(); ++i) {
    const auto [place, is_new] = impl->places.emplace(impl->tokens[i], static_cast<std::int64_t>(i));
    if (!is_new)
      return invalid_argument("the token '{}' stands twice in the vocabulary, at {} and {}", impl->tokens[i], place->second, i);
    impl->lengths.push_back(length_of(impl->row(i)));
  }
  if (const auto found = impl->places.find(options.unknown_token); found != impl->places.end()) impl->unknown = found->second;
  return Embedding(std::move(impl));
} catch (const std::bad_alloc&) {
  return out_of_memory("an embedding");
}

Result<Embedding> Embedding::load(const std::filesystem::path& vocabulary, const std::filesystem::path& matrix,
                                  const EmbeddingOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<std::string> tokens, tasks::read_vocabulary(vocabulary));
  SHOAL_ASSIGN_OR_RETURN(Tensor numbers, read_npy(matrix));
  auto embedding = create(std::move(tokens), std::move(numbers), options);
  if (!embedding.ok()) return embedding.status().with_context(format("{}, {}", vocabulary.native(), matrix.native()));
  return embedding;
}

Result<Embedding> Embedding::read(const std::filesystem::path& file, const EmbeddingOptions& given) {
  const EmbeddingOptions options = whole(given);
  SHOAL_ASSIGN_OR_RETURN(tasks::EmbeddingRows rows, tasks::read_embedding_file(file, options.unknown_token));
  const Shape shape{static_cast<std::int64_t>(rows.tokens.size()), static_cast<std::int64_t>(rows.width)};
  const auto numbers = std::make_shared<std::vector<float>>(std::move(rows.numbers));
  const Tensor matrix({DType::kFloat32, shape, reinterpret_cast<std::byte*>(numbers->data())}, numbers);
  return create(std::move(rows.tokens), matrix, options);
}

std::size_t Embedding::size() const { return impl_ ? impl_->tokens.size() : 0; }
std::size_t Embedding::width() const { return impl_ ? impl_->width : 0; }
bool Embedding::contains(std::string_view token) const { return impl_ && impl_->find(token); }

Result<std::int64_t> Embedding::index(std::string_view token) const {
  const auto found = impl_ ? impl_->find(token) : std::nullopt;
  if (found) return *found;
  if (impl_ && impl_->unknown) return *impl_->unknown;
  return not_found("the token '{}' is not one of the {} of the vocabulary, and no token stands for unknown ones", token, size());
}

Result<std::vector<std::int64_t>> Embedding::indices(std::span<const std::string> tokens) const {
  std::vector<std::int64_t> all;
  all.reserve(tokens.size());
  for (const std::string& token : tokens) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t place, index(token));
    all.push_back(place);
  }
  return all;
}

Result<std::string_view> Embedding::token(std::int64_t index) const {
  if (index < 0 || !std::cmp_less(index, size())) return not_found("there is no token {}: the vocabulary has {}", index, size());
  return std::string_view(impl_->tokens[static_cast<std::size_t>(index)]);
}

Result<std::span<const float>> Embedding::vector(std::int64_t index) const {
  SHOAL_RETURN_IF_ERROR(token(index).status());
  return impl_->row(static_cast<std::size_t>(index));
}

Result<std::span<const float>> Embedding::vector(std::string_view token) const {
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t place, index(token));
  return vector(place);
}

Result<std::vector<Neighbor>> Embedding::nearest(std::span<const float> vector, std::size_t k) const {
  if (vector.size() != width())
    return invalid_argument("a vector of {} numbers has no neighbors among vectors of {}", vector.size(), width());
  std::vector<std::pair<float, std::size_t>> similarities;
  const float length = length_of(vector);
  for (std::size_t i = 0; i < size(); ++i) {
    const float similarity = dot(vector, impl_->row(i)) / (length * impl_->lengths[i]);
    if (std::isfinite(similarity)) similarities.emplace_back(std::clamp(similarity, -1.0f, 1.0f), i);
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(k, similarities.size()));
  std::partial_sort(similarities.begin(), similarities.begin() + count, similarities.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first ? a.second < b.second : a.first > b.first; });
  std::vector<Neighbor> neighbors;
  for (const auto& [similarity, i] : std::span(similarities).first(static_cast<std::size_t>(count)))
    neighbors.push_back({static_cast<std::int64_t>(i), impl_->tokens[i], similarity});
  return neighbors;
}

Result<std::vector<Neighbor>> Embedding::nearest(std::string_view token, std::size_t k) const {
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t place, index(token));
  SHOAL_ASSIGN_OR_RETURN(const std::span<const float> own, vector(place));
  SHOAL_ASSIGN_OR_RETURN(std::vector<Neighbor> neighbors, nearest(own, std::min(k, size()) + 1));
  std::erase_if(neighbors, [&](const Neighbor& neighbor) { return neighbor.index == place; });
  neighbors.resize(std::min(k, neighbors.size()));
  return neighbors;
}

}  // namespace shoal
