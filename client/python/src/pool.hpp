// Pool and Session for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

/// Adds Pool and Session to the module, behind define_client().
void define_pool(nanobind::module_& module);

}  // namespace shoal::python
