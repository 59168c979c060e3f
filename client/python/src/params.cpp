// The extension module shoal._params: reads MXNet's files of arrays.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "client/python/src/status_errors.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/mxnet/mxnet_types.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::python {
namespace {

/// (name, dtype, shape, bytes) for each array; (name, None, (), b"") for one without a value.
nb::list read(const std::string& path) {
  const auto arrays_of_file = blocking([&]() -> Result<std::vector<worker::NamedArray>> {
    const auto file = worker::ForeignFile::open(path);
    if (!file.ok()) return file.status();
    worker::MemoryBudget budget{worker::ImportLimits()};
    auto arrays = worker::parse_mxnet_params(*file, budget);
    if (arrays.ok()) {
      if (Status dense = worker::make_dense(*file, *arrays, budget); !dense.ok()) return dense;
    }
    return arrays;
  });
  nb::list list;
  for (const worker::NamedArray& named : arrays_of_file) {
    const worker::Constant& array = named.array;
    nb::list dims;
    for (const std::int64_t dim : array.shape) dims.append(dim);
    nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(array.bytes.data()),
                                                               static_cast<Py_ssize_t>(array.bytes.size())));
    if (!bytes.is_valid()) throw nb::python_error();
    const bool has_value = array.dtype != DType::kInvalid;
    list.append(nb::make_tuple(named.name,
                               has_value ? nb::object(nb::str(std::string(dtype_name(array.dtype)).c_str())) : nb::none(),
                               nb::tuple(dims), bytes));
  }
  return list;
}

}  // namespace
}  // namespace shoal::python

NB_MODULE(_params, module) {
  using namespace nanobind::literals;
  module.def("read", &shoal::python::read, "path"_a);
  nanobind::dict flags;
  for (int flag = 0; const auto dtype = shoal::worker::dtype_of_flag(flag); ++flag)
    flags[std::string(shoal::dtype_name(*dtype)).c_str()] = flag;
  module.attr("FLAGS") = flags;  // MXNet's numbers of types
}
