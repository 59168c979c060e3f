#include "worker/c/program_inputs.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "worker/import/mxnet/attribute_reader.hpp"
#include "worker/import/names.hpp"

namespace shoal::c {
namespace {

using Indices = std::vector<std::size_t>;

constexpr std::array<std::string_view, 8> kKeys = {"data_indices", "param_indices", "static_alloc",      "static_shape",
                                                   "is_dynamic",   "inline_limit",  "forward_bulk_size", "backward_bulk_size"};

Result<Indices> indices_of(std::string_view key, std::string_view text) {
  const auto numbers = worker::parse_tuple(text);
  if (!numbers || std::ranges::any_of(*numbers, [](std::int64_t number) { return number < 0; }))
    return invalid_argument("{} is '{}', and must be positions, as in [0, 1]", key, text);
  return Indices(numbers->begin(), numbers->end());
}

Result<bool> truth_of(std::string_view key, std::string_view text) {
  for (const std::string_view yes : {"true", "True", "1"})
    if (text == yes) return true;
  for (const std::string_view no : {"false", "False", "0"})
    if (text == no) return false;
  return invalid_argument("{} is '{}', and must be true or false", key, text);
}

/// Positions that exist, each once.
Status check_positions(std::string_view key, const Indices& indices, const std::vector<std::string>& variables,
                       std::vector<std::string_view>& taken) {
  for (const std::size_t position : indices) {
    if (position >= variables.size())
      return invalid_argument("{}: the symbol has no input {}: it has {} ({})", key, position, variables.size(),
                              worker::listed(variables));
    if (!taken[position].empty())
      return invalid_argument("{}: input {} ('{}') is in {} already", key, position, variables[position], taken[position]);
    taken[position] = key;
  }
  return {};
}

bool names_one(const std::vector<TensorSpec>& specs, const std::string& name) {
  return std::ranges::find(specs, name, &TensorSpec::name) != specs.end();
}

}  // namespace

Result<ProgramFlags> program_flags(const char* const* keys, const char* const* values, std::size_t count) {
  SHOAL_RETURN_IF_ERROR(check_array(keys, count, "keys"));
  SHOAL_RETURN_IF_ERROR(check_array(values, count, "values"));
  ProgramFlags flags;
  bool static_alloc = false, static_shape = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!keys[i]) return invalid_argument("keys[{}] is NULL", i);
    const std::string_view key = keys[i];
    if (!values[i]) return invalid_argument("values[{}], of {}, is NULL", i, key);
    if (std::ranges::find(kKeys, key) == kKeys.end())
      return invalid_argument("there is no key '{}': there are {}", key, worker::listed(std::vector(kKeys.begin(), kKeys.end())));
    if (key.ends_with("_indices")) {
      SHOAL_ASSIGN_OR_RETURN((key == "data_indices" ? flags.data_indices : flags.param_indices), indices_of(key, values[i]));
    } else if (key.starts_with("static_")) {
      SHOAL_ASSIGN_OR_RETURN((key == "static_alloc" ? static_alloc : static_shape), truth_of(key, values[i]));
    } else if (key == "is_dynamic") {
      SHOAL_RETURN_IF_ERROR(truth_of(key, values[i]).status());
    } else if (const auto number = worker::parse_tuple(values[i]); !number || number->size() != 1) {
      return invalid_argument("{} is '{}', and must be a whole number", key, values[i]);
    }
  }
  if (static_shape && !static_alloc) return invalid_argument("static_shape is true, and static_alloc is not: MXNet wants both");
  return flags;
}

Result<std::vector<std::string>> program_inputs(const ProgramFlags& flags, const std::vector<std::string>& variables,
                                                const std::vector<TensorSpec>& inputs, const std::vector<std::string>& labels) {
  std::vector<std::string_view> taken(variables.size());  // by which flag
  const Indices params = flags.param_indices.value_or(Indices());
  if (flags.data_indices) SHOAL_RETURN_IF_ERROR(check_positions("data_indices", *flags.data_indices, variables, taken));
  SHOAL_RETURN_IF_ERROR(check_positions("param_indices", params, variables, taken));
  for (const std::size_t position : params) {
    if (names_one(inputs, variables[position]))
      return invalid_argument("param_indices: the parameters hold no value of input {} ('{}')", position, variables[position]);
  }
  std::vector<std::string> names;
  if (flags.data_indices) {
    for (const std::size_t position : *flags.data_indices) {
      const std::string& name = variables[position];
      if (!names_one(inputs, name) && std::ranges::find(labels, name) == labels.end())
        return invalid_argument("data_indices: input {} ('{}') is a parameter: the parameters hold its value", position, name);
      names.push_back(name);
    }
  } else {
    for (const TensorSpec& input : inputs) names.push_back(input.name);
  }
  for (const TensorSpec& input : inputs) {
    if (std::ranges::find(names, input.name) == names.end())
      return invalid_argument("data_indices: input {} ('{}') is missing: the parameters hold no value of it",
                              std::ranges::find(variables, input.name) - variables.begin(), input.name);
  }
  return names;
}

}  // namespace shoal::c
