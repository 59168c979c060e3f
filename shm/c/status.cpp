#include <cstdlib>

#include "shm/base/clock.hpp"
#include "shm/c/handles.hpp"

using shoal::StatusCode;

const char* shoal_code_name(shoal_code code) {
  const bool is_known = code >= 0 && code <= static_cast<shoal_code>(StatusCode::kInternal);
  return is_known ? shoal::status_code_name(static_cast<StatusCode>(code)).data() : "UNKNOWN";  // literals: they end with 0
}

shoal_code shoal_status_code(const shoal_status* status) {
  return status ? static_cast<shoal_code>(status->status.code()) : SHOAL_OK;
}
const char* shoal_status_message(const shoal_status* status) { return status ? status->status.message().c_str() : ""; }
std::int64_t shoal_status_retry_after_ns(const shoal_status* status) { return status ? status->retry_after.count() : 0; }
void shoal_status_free(shoal_status* status) {
  if (status && !status->is_static) delete status;
}

std::int64_t shoal_now_ns() { return static_cast<std::int64_t>(shoal::monotonic_now_ns()); }

void shoal_string_free(char* text) { std::free(text); }
