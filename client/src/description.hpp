// Description: what DESCRIBE says of a model, parsed, and the check of a request's inputs against it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/pool.hpp"
#include "shoal/result.hpp"
#include "shoal/runner.hpp"
#include "shoal/tensor.hpp"

namespace shoal::client {

struct Description {
  ModelInfo info;
  std::uint32_t model_id = 0;
  std::uint32_t signature = 0;
  std::vector<std::string> ignored_inputs;  ///< labels: accepted and left out
};

/// Errors: kInternal: JSON that no daemon of this release sends.
Result<Description> parse_description(std::string_view json);
/// {"what": what}, with "model", "version" and "pid" where they are given.
std::string control_json(std::string_view what, std::string_view model = {}, std::uint64_t version = 0, std::uint64_t pid = 0);

/// One question that changes what is served.
struct ChangeRequest {
  std::string_view what, model, path;
  int workers = 0;
  bool force = false;
};
/// Its JSON. A relative path becomes an absolute one: the daemon has another working directory.
std::string change_json(const ChangeRequest& change);
/// Errors: kInternal: JSON that no daemon of this release sends.
Result<ModelChange> parse_change(std::string_view json);
/// The "message" of an error reply; the text itself when there is none.
std::string parse_message(std::string_view json);
/// The names in {"models": [...]}, whose elements are names or objects with "name".
Result<std::vector<std::string>> parse_names(std::string_view json);

/// Which of the given inputs is the model's first, second, ...
///   Errors  kInvalidArgument: unknown, missing or doubled name, dtype, shape; model and input named
Result<std::vector<std::size_t>> match_inputs(const Description& model, std::span<const TensorSpec> given);

}  // namespace shoal::client
