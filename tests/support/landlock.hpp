// What Landlock can do here: it is not in every kernel.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace shoal::test {

/// The version of the kernel's Landlock; 0 when it has none.
inline long landlock_version() { return std::max(0L, ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1)); }

}  // namespace shoal::test
