// call(): the door of every C function. Arguments are checked before it, and no exception comes out.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "shm/c/handles.hpp"
#include "shoal/result.hpp"

namespace shoal::c {

/// How a function ended, in C++.
struct Ended {
  Ended(Status its) : status(std::move(its)) {}  // NOLINT(google-explicit-constructor): `return status;`
  Ended(Status its, std::chrono::nanoseconds when) : status(std::move(its)), retry_after(when) {}
  Status status;
  std::chrono::nanoseconds retry_after{0};
};

/// What C is given for it: null for OK. Without memory, the status that needs none.
shoal_status* status_handle(Ended ended) noexcept;
/// The same for the exception that is being handled.
shoal_status* status_of_exception() noexcept;
/// "FUNCTION: ARGUMENT is NULL".
shoal_status* null_argument(const char* function, const char* argument) noexcept;

/// Runs the body of a C function.
///   body  returns a Status or an Ended
template <typename Body>
shoal_status* call(Body&& body) {
  try {
    return status_handle(body());
  } catch (const std::exception&) {  // not `...`: pthread_cancel() unwinds by an exception that must go on
    return status_of_exception();
  }
}

/// The same for a function that cannot tell of a failure: what fails is not done.
template <typename Body>
void call_quietly(Body&& body) {
  shoal_status_free(call([&] {
    body();
    return Status();
  }));
}

/// Hands the object over as an owned handle.
template <typename Handle>
Status give(typename Of<Handle>::Object object, Handle** handle) {
  *handle = handle_of<Handle>(new typename Of<Handle>::Object(std::move(object)));
  return {};
}
template <typename Handle>
Status give(Result<typename Of<Handle>::Object> result, Handle** handle) {
  return result.ok() ? give(*std::move(result), handle) : std::move(result).status();
}

}  // namespace shoal::c

/// Ends the function if this pointer is null.
#define SHOAL_C_NEEDS(argument) \
  if (!(argument)) return ::shoal::c::null_argument(__func__, #argument)
/// The same for a place that the function fills in: it is empty until then.
#define SHOAL_C_GIVES(place) \
  SHOAL_C_NEEDS(place);      \
  *(place) = {}
