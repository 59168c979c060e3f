// c_call: what every function of the C API does with failures.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "shoal/status.hpp"

namespace shoal::predict {

/// Keeps why `function` failed for the calling thread.
void set_last_error(const char* function, std::string_view why) noexcept;
/// What set_last_error() kept last in this thread; "" if nothing. Valid until its next call.
const char* last_error() noexcept;

/// Runs the body of a C function. No exception leaves it.
///   body     returns a Status
///   Returns  what the C function returns: 0, or -1 with last_error() set
template <typename Body>
int c_call(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) return 0;
    set_last_error(function, status.to_string());
  } catch (const std::bad_alloc&) {
    set_last_error(function, "FAILED_PRECONDITION: out of memory");
  } catch (const std::exception& error) {
    set_last_error(function, error.what());
  }
  return -1;
}

}  // namespace shoal::predict
