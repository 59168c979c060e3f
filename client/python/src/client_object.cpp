// The parts of ClientObject that each extension module has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/python/src/client.hpp"
#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"

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

SubmitOptions options_of(nb::handle timeout, std::uint64_t version, int priority, std::uint64_t flow) {
  SubmitOptions options{.version = version, .flow = flow};
  if (!timeout.is_none()) {
    options.timeout = duration_of(timeout, "timeout");
    if (options.timeout.count() == 0) options.timeout = nanoseconds(-1);  // 0 would be the model's default
  }
  if (priority < std::numeric_limits<std::int8_t>::min() || priority > std::numeric_limits<std::int8_t>::max())
    raise(invalid_argument("priority {} is not in -128 to 127", priority));
  options.priority = static_cast<std::int8_t>(priority);
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
