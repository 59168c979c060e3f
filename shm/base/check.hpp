// SHOAL_CHECK: aborts on a bug of this process; always compiled in. Never use it on data from outside.
#pragma once

namespace shoal::internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define SHOAL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::shoal::internal::check_failed(#condition, __FILE__, __LINE__))
