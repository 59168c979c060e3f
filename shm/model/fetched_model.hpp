// What the process that fetches models answers, as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

struct FetchedModel {
  std::string path;         ///< of the model on this machine, absolute: what find_versions() takes
  std::uint64_t bytes = 0;  ///< of its files
  std::vector<std::string> warnings;
};

std::string fetched_text(const FetchedModel& model);
/// Checks an answer as a stranger's. An answer may also be failure_text().
///   Errors  kInternal: not such an answer; what the answer says
Result<FetchedModel> parse_fetched(std::string_view text);

}  // namespace shoal
