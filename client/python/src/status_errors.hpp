// How a Status becomes an exception of shoal.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <utility>

#include "shoal/outcome.hpp"
#include "shoal/result.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// The exception for an error: an object of the class for its code.
///   Threads  with the GIL, like everything in this folder that does not say otherwise
inline nb::object error_of(const Status& status, std::chrono::nanoseconds retry_after = {}, Ran ran = Ran::kNo) {
  constexpr const char* kRan[] = {"no", "maybe", "yes"};
  const std::string_view code = status_code_name(status.code());
  const nb::object make = nb::module_::import_("shoal.errors").attr("_make");
  const std::string_view text = status.message();  // may name a file whose name is no UTF-8
  const nb::object message =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
  if (!message.is_valid()) throw nb::python_error();
  return make(nb::str(code.data(), code.size()), message, std::chrono::duration<double>(retry_after).count(),
              kRan[static_cast<int>(ran)]);
}

/// Raises it.
[[noreturn]] inline void raise(const Status& status, std::chrono::nanoseconds retry_after = {}, Ran ran = Ran::kNo) {
  const nb::object error = error_of(status, retry_after, ran);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

/// Raises it, because of an exception that Python code of the user's has raised.
[[noreturn]] inline void raise_from(const nb::python_error& cause, const Status& status) {
  const nb::object error = error_of(status);
  PyException_SetCause(error.ptr(), nb::borrow(cause.value()).release().ptr());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

/// The value, or the exception.
template <typename T>
T value_of(Result<T> result) {
  check(result.status());
  return *std::move(result);
}

/// Calls it without the GIL. Its value, or the exception.
template <typename Call>
auto blocking(const Call& call) {
  auto result = [&] {
    const nb::gil_scoped_release released;
    return call();
  }();
  return value_of(std::move(result));
}

}  // namespace shoal::python
