#include "worker/exec/content_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "worker/exec/graph_plan.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

// Each piece is hashed with the hash so far as its seed. So the borders between pieces count, and no state of XXH3 is kept.
void ContentHash::add(std::span<const std::byte> bytes) { hash_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash_); }

// Attribute structs are aggregates without bases: the number of their members is found by trying initializers. So a new
// family of attributes needs no code here.
// `Anything` has no definition of its conversion, so it is not in the unnamed namespace: clang would warn.
namespace content_hash_detail {
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
struct Anything {
  template <typename T>
  requires(!IsOptional<T>::value)  // an optional also converts from its value type: that would be ambiguous
  operator T() const;              // NOLINT(google-explicit-constructor): only named in unevaluated code
};
}  // namespace content_hash_detail

namespace {

using content_hash_detail::Anything;
using content_hash_detail::IsOptional;

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
