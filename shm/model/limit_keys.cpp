// The daemon's table [limits].
#include <algorithm>
#include <iterator>

#include "shm/model/toml_site.hpp"

namespace shoal::internal {
namespace {

struct LimitRow {
  std::string_view key;
  int ClientLimits::*member;
  std::int64_t most;
};
const LimitRow kLimits[] = {
    {"client_requests", &ClientLimits::client_requests, 1'000'000},
    {"client_message_mb", &ClientLimits::client_message_mb, 1 << 20},
    {"total_message_mb", &ClientLimits::total_message_mb, 1 << 24},
    {"total_arena_gb", &ClientLimits::total_arena_gb, 1 << 17},  // all addresses of a process
    {"client_queue_percent", &ClientLimits::client_queue_percent, 100},
    {"client_rate", &ClientLimits::client_rate, 100'000'000},
    {"client_bad_messages", &ClientLimits::client_bad_messages, 1'000'000'000},
    {"connections", &ClientLimits::connections, 1'000'000},
    {"connection_rate", &ClientLimits::connection_rate, 1'000'000},
    {"models", &ClientLimits::models, 1'000'000},
};

}  // namespace

void for_each_limit(const std::function<void(std::string_view key, int ClientLimits::*member)>& each) {
  for (const LimitRow& row : kLimits) each(row.key, row.member);
}

Result<ClientLimits> read_limits(const std::string& where, const toml::table& table) {
  ClientLimits limits;
  for (const auto& [key, node] : table) {
    const Site site{where, node, format("limits.{}", key.str())};
    const auto row = std::ranges::find(kLimits, key.str(), &LimitRow::key);
    if (row == std::end(kLimits)) {
      std::string known;
      for (const LimitRow& each : kLimits) known += format("{}{}", known.empty() ? "" : ", ", each.key);
      return site.error(format("is not a limit; there are {}", known));
    }
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t value, read_integer(site, 0, row->most));
    limits.*(row->member) = static_cast<int>(value);
  }
  return limits;
}

}  // namespace shoal::internal
