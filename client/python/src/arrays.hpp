// NumPy arrays and tensors. Both directions share memory where that is possible.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// Once, before all others. Raises ImportError.
void import_numpy();

/// What a request reads: the memory of a loan, or of an array that is kept until the library no longer needs it. Takes NumPy's
/// arrays, what has __dlpack__ (in the memory of the CPU), and what NumPy makes an array of. An array that is not contiguous is
/// copied. `name` names it in errors.
///   Errors  raises InvalidArgument
Tensor tensor_of(nb::handle value, std::string_view name);
/// The same for an output: a NumPy array that can be written where it lies.
Tensor writable_tensor_of(nb::handle value, std::string_view name);
using NamedObjects = std::vector<std::pair<std::string, nb::object>>;
/// Of a dict, or another Mapping, from strings. `what` says in errors what they are. Errors: raises InvalidArgument.
NamedObjects named_objects_of(nb::handle mapping, const char* what);
/// The inputs of a request: the same, from strings to arrays.
Tensors tensors_of(nb::handle mapping);

/// A NumPy array in the tensor's memory, which it keeps.
///   Errors  raises FailedPrecondition: bfloat16 without the package ml_dtypes
nb::object array_of(const Tensor& tensor, std::string_view name);
/// By name.
nb::dict arrays_of(const Tensors& tensors);

/// Of a name, a NumPy dtype or a type. Errors: raises InvalidArgument.
DType dtype_of(nb::handle value);
/// Of an int or a sequence of ints. Errors: raises InvalidArgument.
Shape shape_of(nb::handle value);

}  // namespace shoal::python
