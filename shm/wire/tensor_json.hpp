// Integers and TensorSpecs in the JSON that clients, supervisor and zygotes exchange.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::wire {

/// An integer. Throws std::runtime_error for a fraction and for a number that Integer cannot hold: json::get() would convert
/// them, which is undefined behavior for some.
template <typename Integer>
Integer to_integer(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned() ? std::in_range<Integer>(value.get<std::uint64_t>())
                                               : value.is_number_integer() && std::in_range<Integer>(value.get<std::int64_t>());
  if (!fits) throw std::runtime_error("a number that is no integer, or too large");
  return value.is_number_unsigned() ? static_cast<Integer>(value.get<std::uint64_t>())
                                    : static_cast<Integer>(value.get<std::int64_t>());
}
/// The integer at `key`, or `otherwise` if there is none.
template <typename Integer>
Integer to_integer(const nlohmann::json& object, const char* key, Integer otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : to_integer<Integer>(*found);
}
template <typename Integer>
std::vector<Integer> to_integers(const nlohmann::json& list) {
  std::vector<Integer> integers;
  for (const nlohmann::json& value : list) integers.push_back(to_integer<Integer>(value));
  return integers;
}

/// [{"name", "dtype", "shape"}, ...]; a shape of null is Shape::any(). A spec with ranges also has "ranges": [[lowest, highest],
/// ...], one per dimension, and one with a layout "layout".
nlohmann::json to_json(std::span<const TensorSpec> specs);
/// The reverse. Throws nlohmann::json::exception, std::runtime_error or shoal::Error on anything unexpected. The caller, which
/// parses a whole message, catches them and makes a Status.
std::vector<TensorSpec> to_specs(const nlohmann::json& list);
/// [{"out", "in", "shape"}, ...], and the reverse, likewise.
nlohmann::json to_json(std::span<const StatePair> state);
std::vector<StatePair> to_state(const nlohmann::json& list);

}  // namespace shoal::wire
