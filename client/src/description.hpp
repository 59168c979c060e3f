// Description: the daemon's answer to `describe`, and the check of a request's inputs against it. Also other control JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/client.hpp"
#include "shoal/pool.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::client {

struct Description {
  ModelInfo info;
  std::uint32_t model_id = 0;
  std::uint32_t signature = 0;
  std::uint64_t timeout_ms = 0;             ///< the model's default when it was described; 0 = none
  std::vector<std::string> ignored_inputs;  ///< labels: accepted, not sent
  std::string fingerprint;                  ///< of the graph in the model's file; empty: none, or a daemon before 0.3
};

/// Errors: kInternal (JSON that no daemon sends).
Result<Description> parse_description(std::string_view json);
/// {"what": what}, with "model", "version" and "pid" if they are given.
std::string control_json(std::string_view what, std::string_view model = {}, std::uint64_t version = 0, std::uint64_t pid = 0);

/// A control request that changes what the daemon serves.
struct ChangeRequest {
  std::string_view what, model, path;
  int workers = 0;
  bool force = false;
};
/// Its JSON. A relative path, which is no URL, becomes absolute, because the daemon has another working directory. Errors: this
/// process's cannot be read: it is gone (kNotFound).
Result<std::string> change_json(const ChangeRequest& change);
/// Errors: kInternal (JSON that no daemon sends).
Result<ModelChange> parse_change(std::string_view json);
/// A control request for people: "'load' of model 'net'", "'stats'".
std::string name_question(std::string_view json);
/// Errors: kInvalidArgument (too long for a name of a model; names the limit).
Status check_model_name(std::string_view name);
/// The "message" of an error reply; the text itself if there is none.
std::string parse_message(std::string_view json);
/// The names in {"models": [...]}, whose elements are names or objects with "name".
Result<std::vector<std::string>> parse_names(std::string_view json);

/// Sets `order` to the index, in `given`, of the model's first, second, ... input.
///   Errors  kInvalidArgument (unknown, missing or repeated name; dtype; shape). They name the model and the input
Status match_inputs(const Description& model, std::span<const TensorSpec> given, std::vector<std::size_t>& order);

}  // namespace shoal::client
