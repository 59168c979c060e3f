#include "worker/exec/content_hash.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "worker/exec/graph_plan.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu;

std::uint64_t rotate(std::uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }
std::uint64_t mix(std::uint64_t state, std::uint64_t word) { return rotate(state + word * kPrime2, 31) * kPrime1; }

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

void ContentHash::add(std::span<const std::byte> bytes) {
  // Four independent lanes, so that the multiplier's latency is hidden; then the rest.
  std::array<std::uint64_t, 4> lanes{state_, state_ + kPrime1, state_ ^ kPrime2, state_ - kPrime1};
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    for (std::size_t lane = 0; lane < 4; ++lane) lanes[lane] = mix(lanes[lane], word_at(bytes.data() + at + 8 * lane));
  }
  state_ = mix(state_, bytes.size());
  for (const auto lane : lanes) state_ = mix(state_, lane);
  for (; at < bytes.size(); ++at) state_ = mix(state_, std::to_integer<std::uint64_t>(bytes[at]));
}

std::uint64_t ContentHash::value() const {
  std::uint64_t x = state_;
  x = (x ^ (x >> 33)) * kPrime2;
  x = (x ^ (x >> 29)) * kPrime1;
  return x ^ (x >> 32);
}

namespace {

// Attribute structs are aggregates without bases: their members are found by how many initialisers they take, so that a new
// family of attributes is hashed without a line here.
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
struct Anything {
  template <typename T>
  requires(!IsOptional<T>::value)  // an optional is made from what it holds; both ways would be ambiguous
  operator T() const;              // NOLINT(google-explicit-constructor): only named in unevaluated code
};
template <typename T, typename... Args>
constexpr std::size_t count_fields(Args... args) {
  if constexpr (requires { T{args..., Anything{}}; }) {
    return count_fields<T>(args..., Anything{});
  } else {
    return sizeof...(Args);
  }
}

template <typename T>
void hash_field(ContentHash& hash, const T& field);

template <typename... Fields>
void hash_fields(ContentHash& hash, const Fields&... fields) {
  (hash_field(hash, fields), ...);
}

template <typename T>
void hash_struct(ContentHash& hash, const T& value) {
  constexpr std::size_t kCount = count_fields<T>();
  static_assert(kCount <= 12, "add a row here");
  if constexpr (kCount == 1) {
    const auto& [a] = value;
    hash_fields(hash, a);
  }
  if constexpr (kCount == 2) {
    const auto& [a, b] = value;
    hash_fields(hash, a, b);
  }
  if constexpr (kCount == 3) {
    const auto& [a, b, c] = value;
    hash_fields(hash, a, b, c);
  }
  if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = value;
    hash_fields(hash, a, b, c, d);
  }
  if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = value;
    hash_fields(hash, a, b, c, d, e);
  }
  if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, f] = value;
    hash_fields(hash, a, b, c, d, e, f);
  }
  if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, f, g] = value;
    hash_fields(hash, a, b, c, d, e, f, g);
  }
  if constexpr (kCount == 8) {
    const auto& [a, b, c, d, e, f, g, h] = value;
    hash_fields(hash, a, b, c, d, e, f, g, h);
  }
  if constexpr (kCount == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = value;
    hash_fields(hash, a, b, c, d, e, f, g, h, i);
  }
  if constexpr (kCount == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = value;
    hash_fields(hash, a, b, c, d, e, f, g, h, i, j);
  }
  if constexpr (kCount == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    hash_fields(hash, a, b, c, d, e, f, g, h, i, j, k);
  }
  if constexpr (kCount == 12) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    hash_fields(hash, a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
void hash_field(ContentHash& hash, const T& field) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    hash.add(std::string_view(field));
  } else if constexpr (IsVector<T>::value) {
    hash.add(static_cast<std::uint64_t>(field.size()));
    for (const auto& element : field) hash_field(hash, element);
  } else if constexpr (IsOptional<T>::value) {
    hash.add(static_cast<std::uint64_t>(field.has_value()));
    if (field) hash_field(hash, *field);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    hash.add(std::as_bytes(std::span(&field, 1)));
  } else if constexpr (std::is_same_v<T, Shape>) {
    hash.add(std::as_bytes(field.dims()));
  } else {
    hash_struct(hash, field);
  }
}

void hash_attributes(ContentHash& hash, const Attributes& attributes) {
  hash.add(static_cast<std::uint64_t>(attributes.index()));
  std::visit(
      [&](const auto& value) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) hash_struct(hash, value);
      },
      attributes);
}

}  // namespace

std::uint64_t hash_graph(const Graph& graph) {
  ContentHash hash;
  const std::vector<bool> is_read = find_read_values(graph);
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    hash.add(value.name);
    if (!value.constant || !is_read[id]) continue;
    hash.add(static_cast<std::uint64_t>(value.constant->dtype));
    hash.add(std::as_bytes(value.constant->shape.dims()));
    hash.add(value.constant->bytes);
  }
  for (const Node& node : graph.nodes) {
    hash.add(node.op->name);
    hash.add(node.name);
    hash_attributes(hash, node.attributes);
    hash.add(std::as_bytes(std::span(node.inputs)));
    hash.add(std::as_bytes(std::span(node.outputs)));
  }
  hash.add(std::as_bytes(std::span(graph.inputs)));
  for (const GraphOutput& output : graph.outputs) {
    hash.add(output.name);
    hash.add(static_cast<std::uint64_t>(output.value));
  }
  return hash.value();
}

}  // namespace shoal::worker
