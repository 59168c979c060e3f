// A Status as JSON, for texts between our processes.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "shm/base/shortened.hpp"
#include "shoal/status.hpp"

namespace shoal::internal {

inline nlohmann::json status_json(const Status& status) {
  constexpr std::size_t kLongestMessage = 8 << 10;  // some list names of files
  return {{"code", static_cast<std::uint64_t>(status.code())}, {"message", shortened(status.message(), kLongestMessage)}};
}

/// Throws std::runtime_error or nlohmann's exceptions: not the JSON of a failure.
inline Status to_status(const nlohmann::json& object) {
  const nlohmann::json& code = object.at("code");
  if (!code.is_number_unsigned() || code.get<std::uint64_t>() == 0 ||
      code.get<std::uint64_t>() > static_cast<std::uint64_t>(StatusCode::kInternal))
    throw std::runtime_error("an error has no code");
  return Status(static_cast<StatusCode>(code.get<std::uint64_t>()), object.at("message").get<std::string>());
}

}  // namespace shoal::internal
