// What the clients of the soak ask, and how it is written down: shared by those who ask and by who checks afterwards.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

#include "shoal/tensor.hpp"

namespace shoal::test {

enum class SoakModel { kSteady, kShapes, kTimes3, kEcho };
inline constexpr const char* kSoakModelNames[] = {"steady", "shapes", "times3", "echo"};
inline constexpr const char* name_of(SoakModel model) { return kSoakModelNames[static_cast<int>(model)]; }

/// Everything that decides a request's answer.
struct SoakRequest {
  SoakModel model{};
  int size = 0;  ///< which of the model's sizes
  int seed = 0;  ///< which of its contents
  friend auto operator<=>(const SoakRequest&, const SoakRequest&) = default;
};

inline SoakRequest random_request(std::mt19937& random) {
  SoakRequest request{.model = static_cast<SoakModel>(random() % 4), .seed = static_cast<int>(random() % 3)};
  // Every other picture has the size that is compiled at load.
  request.size = random() % 2 ? 0 : static_cast<int>(random() % 40);
  return request;
}

inline Shape shape_of(const SoakRequest& request) {
  switch (request.model) {
    case SoakModel::kSteady:
    case SoakModel::kShapes:
      return request.size == 0 ? Shape{1, 3, 64, 64} : Shape{1, 3, 32 + request.size % 8, 32 + request.size / 8};
    case SoakModel::kTimes3:
      return Shape{1 + request.size % 9, 16};
    default:
      return Shape{1 + request.size * 997};
  }
}

inline Tensor input_of(const SoakRequest& request) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape_of(request)).value();
  std::mt19937 generator(static_cast<unsigned>(request.seed * 1000 + request.size));
  for (float& value : tensor.values<float>()) value = static_cast<float>(generator() % 2000) / 1000.0f - 1.0f;
  return tensor;
}

/// FNV-1a over shape and bytes.
inline std::uint64_t hash_of(const Tensor& tensor) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 1099511628211u; };
  for (const char c : tensor.shape().to_string()) mix(static_cast<unsigned char>(c));
  for (const std::byte byte : tensor.view().bytes()) mix(static_cast<unsigned char>(byte));
  return hash;
}

// A client's history, a line each, written before it asks and after it was answered:
//   ask NUMBER MODEL SIZE SEED
//   answer NUMBER STATUS HASH
//   end
inline std::string ask_line(int number, const SoakRequest& request) {
  char line[96];
  std::snprintf(line, sizeof line, "ask %d %d %d %d\n", number, static_cast<int>(request.model), request.size, request.seed);
  return line;
}
inline std::string answer_line(int number, int status, std::uint64_t hash) {
  char line[96];
  std::snprintf(line, sizeof line, "answer %d %d %llu\n", number, status, static_cast<unsigned long long>(hash));
  return line;
}

}  // namespace shoal::test
