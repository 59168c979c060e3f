// The error of an object that was moved from.
#pragma once

#include <string_view>

#include "shm/base/errors.hpp"

namespace shoal::tasks {

inline Status moved_from(std::string_view type) {
  return failed_precondition("this {} was moved from: use the one that it was moved to", type);
}

}  // namespace shoal::tasks
