// The extension module shoal._shoal: everything that needs the daemon's client only. The package wraps it.
#include <nanobind/nanobind.h>

#include "client/python/src/arrays.hpp"
#include "client/python/src/client.hpp"
#include "client/python/src/pool.hpp"
#include "worker/engine/spin_count.hpp"

NB_MODULE(_shoal, module) {
  module.attr("VERSION") = SHOAL_VERSION;
  module.attr("OPENMP_SPIN_COUNT") = shoal::kOpenMpSpinCount;  // for the package, before it loads libgomp
  nanobind::set_leak_warnings(false);                          // futures and pools that a program still has at its end
  shoal::python::import_numpy();
  shoal::python::define_client(module);
  shoal::python::define_pool(module);
}
