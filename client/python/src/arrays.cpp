#include "client/python/src/arrays.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/python/src/kept_object.hpp"
#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"

namespace shoal::python {
namespace {

using Array = nb::ndarray<nb::ro>;

// Names the capsule that is the base of an array in a tensor's memory.
constexpr char kMemory[] = "shoal.memory";

struct NumberType {
  DType dtype;
  int number;
};
constexpr NumberType kNumberTypes[] = {
    {DType::kFloat32, NPY_FLOAT},    {DType::kFloat64, NPY_DOUBLE}, {DType::kFloat16, NPY_HALF},  {DType::kUInt8, NPY_UBYTE},
    {DType::kInt8, NPY_BYTE},        {DType::kInt16, NPY_SHORT},    {DType::kUInt16, NPY_USHORT}, {DType::kInt32, NPY_INT},
    {DType::kUInt32, NPY_UINT},      {DType::kInt64, NPY_LONG},     {DType::kUInt64, NPY_ULONG},  {DType::kInt64, NPY_LONGLONG},
    {DType::kUInt64, NPY_ULONGLONG}, {DType::kBool, NPY_BOOL},
};

DType dtype_of(PyArray_Descr* descr) {
  for (const NumberType& type : kNumberTypes) {
    if (type.number == descr->type_num) return type.dtype;
  }
  const std::string_view name = descr->typeobj->tp_name;
  return name.ends_with("bfloat16") ? DType::kBFloat16 : DType::kInvalid;
}

PyArrayObject* as_array(nb::handle value) { return reinterpret_cast<PyArrayObject*>(value.ptr()); }

std::string text_of(nb::handle value) { return nb::str(value).c_str(); }

/// A new reference. Errors: raises FailedPrecondition.
PyArray_Descr* descr_of(DType dtype, std::string_view name) {
  for (const NumberType& type : kNumberTypes) {
    if (type.dtype == dtype) return PyArray_DescrFromType(type.number);
  }
  PyArray_Descr* descr = nullptr;
  if (dtype == DType::kBFloat16) {
    PyObject* const module = PyImport_ImportModule("ml_dtypes");
    if (!module) {
      PyErr_Clear();
      raise(failed_precondition("'{}' is bfloat16, which NumPy has by the package ml_dtypes: pip install ml_dtypes", name));
    }
    const nb::object type = nb::steal(module).attr("bfloat16");
    PyArray_DescrConverter(type.ptr(), &descr);
  }
  if (!descr) raise(internal_error("'{}' has the type {}, for which there is no NumPy type", name, dtype_name(dtype)));
  return descr;
}

Shape shape_of_dims(std::span<const std::int64_t> dims, std::string_view name) {
  auto shape = Shape::make(dims);
  if (!shape.ok()) raise(shape.status().with_context(format("'{}'", name)));
  return *std::move(shape);
}

/// The memory of a tensor that an array or a view of it lies in; null if it lies elsewhere.
const std::shared_ptr<void>* memory_of(PyArrayObject* array) {
  PyObject* base = PyArray_BASE(array);
  while (base && PyArray_Check(base)) base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(base));
  if (!base || !PyCapsule_IsValid(base, kMemory)) return nullptr;
  return static_cast<const std::shared_ptr<void>*>(PyCapsule_GetPointer(base, kMemory));
}

Tensor tensor_in(PyArrayObject* array, DType dtype, std::string_view name) {
  std::int64_t dims[NPY_MAXDIMS];
  const int rank = PyArray_NDIM(array);
  std::copy_n(PyArray_DIMS(array), rank, dims);
  const TensorView view{dtype, shape_of_dims({dims, static_cast<std::size_t>(rank)}, name),
                        static_cast<std::byte*>(PyArray_DATA(array))};
  if (const auto* const memory = memory_of(array)) return Tensor(view, *memory);
  return Tensor(view, KeptObject(nb::borrow(reinterpret_cast<PyObject*>(array))).share());
}

Tensor tensor_of_array(nb::object value, std::string_view name) {
  if (!PyArray_ISCARRAY_RO(as_array(value))) {  // not contiguous, not aligned, or of the other byte order
    PyArray_Descr* const descr = PyArray_DescrNewByteorder(PyArray_DESCR(as_array(value)), NPY_NATIVE);
    PyObject* const copy = PyArray_FromArray(as_array(value), descr, NPY_ARRAY_CARRAY_RO);
    if (!copy) throw nb::python_error();
    value = nb::steal(copy);
  }
  const DType dtype = dtype_of(PyArray_DESCR(as_array(value)));
  if (dtype == DType::kInvalid)
    raise(invalid_argument("'{}' is an array of {}, which is no type of a tensor: give float32, int64, ...", name,
                           text_of(value.attr("dtype"))));
  return tensor_in(as_array(value), dtype, name);
}

std::optional<DType> dtype_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) { return type.code == static_cast<std::uint8_t>(code) && type.bits == bits; };
  if (type.lanes != 1) return std::nullopt;
  if (is(Code::Float, 32)) return DType::kFloat32;
  if (is(Code::Float, 64)) return DType::kFloat64;
  if (is(Code::Float, 16)) return DType::kFloat16;
  if (is(Code::Bfloat, 16)) return DType::kBFloat16;
  if (is(Code::UInt, 8)) return DType::kUInt8;
  if (is(Code::Int, 8)) return DType::kInt8;
  if (is(Code::Int, 16)) return DType::kInt16;
  if (is(Code::UInt, 16)) return DType::kUInt16;
  if (is(Code::Int, 32)) return DType::kInt32;
  if (is(Code::UInt, 32)) return DType::kUInt32;
  if (is(Code::Int, 64)) return DType::kInt64;
  if (is(Code::UInt, 64)) return DType::kUInt64;
  if (is(Code::Bool, 8)) return DType::kBool;
  return std::nullopt;
}

bool is_contiguous(const Array& array) {
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) != 1 && array.stride(axis) != expected) return array.size() == 0;
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  return true;
}

/// Raises InvalidArgument because of what Python code raised that should have made an array.
[[noreturn]] void raise_no_array(const nb::python_error& cause, std::string_view name, std::string_view maker) {
  if (!cause.matches(PyExc_Exception) || cause.matches(PyExc_MemoryError)) throw cause;
  raise_from(cause,
             invalid_argument("'{}': {}: {}: {}", name, maker, text_of(cause.type().attr("__name__")), text_of(cause.value())));
}

Tensor tensor_of_dlpack(nb::handle value, std::string_view name) {
  Array array;
  if (!nb::try_cast<Array>(value, array)) {
    try {
      value.attr("__dlpack__")();  // once more: what it raised is lost
    } catch (const nb::python_error& error) {
      raise_no_array(error, name, "its __dlpack__ gives no array");
    }
    raise(invalid_argument("'{}': its __dlpack__ gives no array (of type {})", name, text_of(value.type())));
  }
  if (array.device_type() != nb::device::cpu::value)
    raise(invalid_argument("'{}' is in the memory of another device (DLPack's type {}): copy it to the CPU", name,
                           array.device_type()));
  const auto dtype = dtype_of(array.dtype());
  if (!dtype) raise(invalid_argument("'{}' has elements that no tensor has: give float32, int64, ...", name));
  if (!is_contiguous(array)) {
    if (*dtype == DType::kBFloat16) raise(invalid_argument("'{}' is not contiguous: give a contiguous copy", name));
    return tensor_of_array(nb::module_::import_("numpy").attr("from_dlpack")(value), name);
  }
  std::int64_t dims[NPY_MAXDIMS];
  const std::size_t rank = std::min<std::size_t>(array.ndim(), NPY_MAXDIMS);
  for (std::size_t axis = 0; axis < rank; ++axis) dims[axis] = static_cast<std::int64_t>(array.shape(axis));
  const TensorView view{*dtype, shape_of_dims({dims, rank}, name), static_cast<std::byte*>(const_cast<void*>(array.data()))};
  auto owned = std::make_unique<Array>(std::move(array));
  nb::capsule owner(owned.get(), [](void* pointer) noexcept { delete static_cast<Array*>(pointer); });
  owned.release();
  return Tensor(view, KeptObject(std::move(owner)).share());
}

}  // namespace

void import_numpy() {
  if (_import_array() < 0) throw nb::python_error();
}

Tensor tensor_of(nb::handle value, std::string_view name) {
  if (PyArray_Check(value.ptr())) return tensor_of_array(nb::borrow(value), name);
  if (nb::hasattr(value, "__dlpack__")) return tensor_of_dlpack(value, name);
  PyObject* const made = PyArray_FROM_O(value.ptr());
  if (!made) raise_no_array(nb::python_error(), name, "NumPy makes no array of it");
  return tensor_of_array(nb::steal(made), name);
}

Tensor writable_tensor_of(nb::handle value, std::string_view name) {
  if (!PyArray_Check(value.ptr()) || !PyArray_ISCARRAY(as_array(value)))
    raise(invalid_argument("output '{}' needs a NumPy array that is contiguous and can be written", name));
  return tensor_of_array(nb::borrow(value), name);
}

NamedObjects named_objects_of(nb::handle mapping, const char* what) {
  nb::object dict = nb::borrow(mapping);
  if (!PyDict_Check(mapping.ptr())) {
    if (!nb::isinstance(mapping, nb::module_::import_("collections.abc").attr("Mapping")))
      raise(invalid_argument("{} are a dict from names to arrays, and not of type {}", what,
                             text_of(mapping.type().attr("__name__"))));
    dict = nb::dict();
    if (PyDict_Update(dict.ptr(), mapping.ptr()) != 0) throw nb::python_error();
  }
  NamedObjects objects;
  objects.reserve(static_cast<std::size_t>(PyDict_Size(dict.ptr())));
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict.ptr(), &position, &key, &value)) {
    Py_ssize_t size = 0;
    const char* const name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
    if (!name) {
      PyErr_Clear();
      raise(invalid_argument("the names of {} are strings, and not {}", what, text_of(nb::repr(key))));
    }
    objects.emplace_back(std::string(name, static_cast<std::size_t>(size)), nb::borrow(value));
  }
  return objects;
}

Tensors tensors_of(nb::handle mapping) {
  NamedObjects objects = named_objects_of(mapping, "inputs");
  Tensors tensors;
  tensors.reserve(objects.size());
  for (auto& [name, value] : objects) {
    Tensor tensor = tensor_of(value, name);
    tensors.push_back({std::move(name), std::move(tensor)});
  }
  return tensors;
}

nb::object array_of(const Tensor& tensor, std::string_view name) {
  npy_intp dims[kMaxRank];
  std::copy_n(tensor.shape().begin(), tensor.shape().rank(), dims);
  std::byte* const data = tensor.size_bytes() > 0 ? tensor.view().data : nullptr;  // null: NumPy gives it memory of its own
  PyArray_Descr* const descr = descr_of(tensor.dtype(), name);
  PyObject* const made = PyArray_NewFromDescr(&PyArray_Type, descr, tensor.shape().rank(), dims, nullptr, data,
                                              data ? NPY_ARRAY_CARRAY : 0, nullptr);
  if (!made) throw nb::python_error();
  nb::object array = nb::steal(made);
  if (!data) return array;
  auto memory = std::make_unique<std::shared_ptr<void>>(tensor.owner());
  PyObject* const capsule = PyCapsule_New(memory.get(), kMemory, [](PyObject* object) {
    delete static_cast<std::shared_ptr<void>*>(PyCapsule_GetPointer(object, kMemory));
  });
  if (!capsule) throw nb::python_error();
  memory.release();
  if (PyArray_SetBaseObject(as_array(array), capsule) != 0) throw nb::python_error();
  return array;
}

nb::dict arrays_of(const Tensors& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) arrays[nb::str(name.data(), name.size())] = array_of(tensor, name);
  return arrays;
}

DType dtype_of(nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    const auto dtype = parse_dtype(nb::cast<nb::str>(value).c_str());
    if (dtype.ok()) return *dtype;
  }
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(value.ptr(), &descr) != NPY_SUCCEED) {
    PyErr_Clear();
    raise(invalid_argument("{} is no element type: give \"float32\", \"uint8\", ...", text_of(nb::repr(value))));
  }
  const DType dtype = dtype_of(descr);
  Py_DECREF(descr);
  if (dtype == DType::kInvalid) raise(invalid_argument("tensors have no elements of type {}", text_of(nb::repr(value))));
  return dtype;
}

Shape shape_of(nb::handle value) {
  std::vector<std::int64_t> dims;
  if (PyIndex_Check(value.ptr())) {
    dims.push_back(0);
    if (nb::try_cast(value, dims[0])) return value_of(Shape::make(dims));
  } else if (nb::try_cast(value, dims)) {
    return value_of(Shape::make(dims));
  }
  raise(invalid_argument("{} is no shape: give a tuple of ints", text_of(nb::repr(value))));
}

}  // namespace shoal::python
