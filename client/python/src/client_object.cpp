// The parts of ClientObject that each extension module has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/python/src/client.hpp"

namespace shoal::python {

using std::chrono::nanoseconds;

nanoseconds duration_of(nb::handle seconds, const char* name) {
  const double count = PyFloat_AsDouble(seconds.ptr());
  if (PyErr_Occurred() || std::isnan(count)) {
    PyErr_Clear();
    raise(invalid_argument("{} is a number of seconds, and not {}", name, nb::repr(seconds).c_str()));
  }
  constexpr double kMost = 9e9;  // 285 years
  return nanoseconds(static_cast<std::int64_t>(std::min(std::max(count, -kMost), kMost) * 1e9));
}

SubmitOptions options_of(nb::handle timeout) {
  SubmitOptions options;
  if (timeout.is_none()) return options;
  options.timeout = duration_of(timeout, "timeout");
  if (options.timeout.count() == 0) options.timeout = nanoseconds(-1);  // 0 would be the model's default
  return options;
}

SubmitOptions options_of(nb::handle timeout, nb::handle version, nb::handle priority, nb::handle flow) {
  SubmitOptions options = options_of(timeout);
  options.version = number_of<std::uint64_t>(version, "version");
  options.priority = number_of<std::int8_t>(priority, "priority", std::numeric_limits<std::int8_t>::min());
  if (flow.is_valid()) options.flow = number_of<std::uint64_t>(flow, "flow");
  return options;
}

const Client& ClientObject::client() const {
  if (in_forked_child())
    raise(
        failed_precondition("this process was forked after the Pool or Engine was made: make a new one in the child, or start "
                            "processes by multiprocessing's \"spawn\""));
  if (is_closed_) raise(failed_precondition("this Pool or Engine is closed"));
  return client_;
}

}  // namespace shoal::python
