// Makers of Status: one per code, and one for errno.
#pragma once

#include <string_view>

#include "shm/base/format.hpp"
#include "shoal/result.hpp"
#include "shoal/status.hpp"

namespace shoal {

#define SHOAL_DEFINE_STATUS_MAKER(name, code)                  \
  template <typename... Args>                                  \
  Status name(std::string_view pattern, const Args&... args) { \
    return Status(StatusCode::code, format(pattern, args...)); \
  }
SHOAL_DEFINE_STATUS_MAKER(invalid_argument, kInvalidArgument)
SHOAL_DEFINE_STATUS_MAKER(not_found, kNotFound)
SHOAL_DEFINE_STATUS_MAKER(deadline_exceeded, kDeadlineExceeded)
SHOAL_DEFINE_STATUS_MAKER(overloaded, kOverloaded)
SHOAL_DEFINE_STATUS_MAKER(poison, kPoison)
SHOAL_DEFINE_STATUS_MAKER(cancelled, kCancelled)
SHOAL_DEFINE_STATUS_MAKER(unavailable, kUnavailable)
SHOAL_DEFINE_STATUS_MAKER(failed_precondition, kFailedPrecondition)
SHOAL_DEFINE_STATUS_MAKER(unimplemented, kUnimplemented)
SHOAL_DEFINE_STATUS_MAKER(data_loss, kDataLoss)
SHOAL_DEFINE_STATUS_MAKER(aborted, kAborted)
SHOAL_DEFINE_STATUS_MAKER(permission_denied, kPermissionDenied)
SHOAL_DEFINE_STATUS_MAKER(internal_error, kInternal)
#undef SHOAL_DEFINE_STATUS_MAKER

/// "what thing: strerror": ENOENT is kNotFound, EACCES and EPERM kPermissionDenied, a path that cannot be one kInvalidArgument,
/// ENOMEM and ENOSPC kFailedPrecondition, EMFILE and ENFILE (no descriptors) kUnavailable, the rest kInternal.
Status status_from_errno(std::string_view what, std::string_view thing, int error_number);

/// kFailedPrecondition, for every failed allocation: "model 'MODEL': out of memory: WHAT needs more than this machine has left".
///   model  may be empty
///   Returns  only "out of memory" if there is no memory for the message
Status out_of_memory(std::string_view what, std::string_view model = {}) noexcept;

}  // namespace shoal

/// Returns the Status from the calling function if it is not OK.
#define SHOAL_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::shoal::Status shoal_status_ = (expression); !shoal_status_.ok()) return shoal_status_; \
  } while (false)

#define SHOAL_CONCAT_INNER(a, b) a##b
#define SHOAL_CONCAT(a, b) SHOAL_CONCAT_INNER(a, b)
/// SHOAL_ASSIGN_OR_RETURN(auto x, make_x()): x is the value, or the function returns the Status.
#define SHOAL_ASSIGN_OR_RETURN(declaration, expression) \
  SHOAL_ASSIGN_OR_RETURN_IMPL(SHOAL_CONCAT(shoal_result_, __LINE__), declaration, expression)
#define SHOAL_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return result.status();                          \
  declaration = *std::move(result)
