// SHOAL_CHECK: for bugs of this process, always compiled in. Never for anything that came from outside.
#pragma once

namespace shoal::internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define SHOAL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::shoal::internal::check_failed(#condition, __FILE__, __LINE__))
