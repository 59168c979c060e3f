#include "shoal/tensor.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"

namespace shoal::c {
namespace {

/// The caller's memory, until nobody uses it.
struct WrappedMemory {
  ~WrappedMemory() {
    if (deleter) deleter(data, arg);
  }
  void* data = nullptr;
  void* arg = nullptr;
  void (*deleter)(void*, void*) = nullptr;
};

Result<TensorView> view_of(DType dtype, const Shape& shape, void* data, std::size_t size) {
  const TensorView view{dtype, shape, static_cast<std::byte*>(data)};
  if (dtype == DType::kInvalid) return invalid_argument("dtype is none of SHOAL_FLOAT32 to SHOAL_BOOL");
  if (shape.element_count() < 0)
    return invalid_argument("the shape {} has a negative size, or too large ones", shape.to_string());
  if (shape.element_count() > 0 && view.size_bytes() == 0)
    return invalid_argument("the shape {} is too large", shape.to_string());
  if (size < view.size_bytes())
    return invalid_argument("size is {}, and {} of shape {} needs {} bytes", size, dtype_name(dtype), shape.to_string(),
                            view.size_bytes());
  if (!data && view.size_bytes() > 0) return invalid_argument("data is NULL");
  if (reinterpret_cast<std::uintptr_t>(data) % dtype_size_bytes(dtype) != 0)
    return invalid_argument("data is not aligned to {} bytes, the size of a {}", dtype_size_bytes(dtype), dtype_name(dtype));
  return view;
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

std::size_t shoal_dtype_size(shoal_dtype dtype) { return shoal::dtype_size_bytes(dtype_of(dtype)); }
const char* shoal_dtype_name(shoal_dtype dtype) { return shoal::dtype_name(dtype_of(dtype)).data(); }  // literals

shoal_status* shoal_dtype_parse(const char* name, shoal_dtype* dtype) {
  SHOAL_C_GIVES(dtype);
  SHOAL_C_NEEDS(name);
  return call([&] {
    const auto parsed = shoal::parse_dtype(name);
    if (parsed.ok()) *dtype = static_cast<shoal_dtype>(*parsed);
    return parsed.status();
  });
}

shoal_status* shoal_tensor_create(shoal_dtype dtype, const std::int64_t* dims, std::size_t rank, shoal_tensor** tensor) {
  SHOAL_C_GIVES(tensor);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::Shape shape, shape_of(dims, rank));
    return give(shoal::Tensor::create(dtype_of(dtype), shape), tensor);
  });
}

shoal_status* shoal_tensor_wrap(shoal_dtype dtype, const std::int64_t* dims, std::size_t rank, void* data, std::size_t size,
                                void (*deleter)(void*, void*), void* arg, shoal_tensor** tensor) {
  SHOAL_C_GIVES(tensor);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::Shape shape, shape_of(dims, rank));
    SHOAL_ASSIGN_OR_RETURN(const shoal::TensorView view, view_of(dtype_of(dtype), shape, data, size));
    const auto memory = std::make_shared<WrappedMemory>();
    SHOAL_RETURN_IF_ERROR(give(shoal::Tensor(view, memory), tensor));
    memory->data = data;
    memory->arg = arg;
    memory->deleter = deleter;  // last: nothing can fail any more
    return {};
  });
}

shoal_status* shoal_tensor_share(const shoal_tensor* tensor, shoal_tensor** shared) {
  SHOAL_C_GIVES(shared);
  SHOAL_C_NEEDS(tensor);
  return call([&] { return give(shoal::Tensor(object_of(tensor)), shared); });
}

void* shoal_tensor_data(const shoal_tensor* tensor) { return tensor ? object_of(tensor).view().data : nullptr; }
std::size_t shoal_tensor_size(const shoal_tensor* tensor) { return tensor ? object_of(tensor).size_bytes() : 0; }
shoal_dtype shoal_tensor_dtype(const shoal_tensor* tensor) {
  return tensor ? static_cast<shoal_dtype>(object_of(tensor).dtype()) : 0;
}
std::size_t shoal_tensor_rank(const shoal_tensor* tensor) { return tensor ? object_of(tensor).shape().dims().size() : 0; }
const std::int64_t* shoal_tensor_dims(const shoal_tensor* tensor) {
  static const shoal::Shape scalar;
  return (tensor ? object_of(tensor).shape() : scalar).begin();
}
std::int64_t shoal_tensor_element_count(const shoal_tensor* tensor) {
  return tensor ? object_of(tensor).shape().element_count() : 0;
}
void shoal_tensor_free(shoal_tensor* tensor) { free_handle(tensor); }

std::size_t shoal_outputs_count(const shoal_outputs* outputs) { return outputs ? object_of(outputs).size() : 0; }
const char* shoal_outputs_name(const shoal_outputs* outputs, std::size_t index) {
  return index < shoal_outputs_count(outputs) ? object_of(outputs)[index].name.c_str() : "";
}
const shoal_tensor* shoal_outputs_tensor(const shoal_outputs* outputs, std::size_t index) {
  return index < shoal_outputs_count(outputs) ? handle_of<shoal_tensor>(&object_of(outputs)[index].tensor) : nullptr;
}
const shoal_tensor* shoal_outputs_find(const shoal_outputs* outputs, const char* name) {
  if (!outputs || !name) return nullptr;
  const auto found = std::ranges::find(object_of(outputs), name, &shoal::NamedTensor::name);
  return found == object_of(outputs).end() ? nullptr : handle_of<shoal_tensor>(&found->tensor);
}
void shoal_outputs_free(shoal_outputs* outputs) { free_handle(outputs); }
