#include "shm/c/call.hpp"

#include <new>

#include "shm/base/errors.hpp"

namespace shoal::c {
namespace {

// Its text fits into a std::string itself.
shoal_status* no_memory() noexcept {
  static shoal_status status{.status = {StatusCode::kFailedPrecondition, "out of memory"}, .is_static = true};
  return &status;
}

}  // namespace

shoal_status* status_handle(Ended ended) noexcept {
  if (ended.status.ok()) return nullptr;
  auto* const status = new (std::nothrow) shoal_status{.status = std::move(ended.status), .retry_after = ended.retry_after};
  return status ? status : no_memory();
}

shoal_status* status_of_exception() noexcept try {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const Error& error) {
    return status_handle(error.status());
  } catch (const std::exception& error) {
    return status_handle(internal_error("{}", error.what()));
  }
} catch (const std::exception&) {
  return no_memory();
}

shoal_status* null_argument(const char* function, const char* argument) noexcept try {
  return status_handle(invalid_argument("{}: {} is NULL", function, argument));
} catch (const std::exception&) {
  return no_memory();
}

}  // namespace shoal::c
