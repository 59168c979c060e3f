#include "worker/exec/cpu/onednn.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/mutex.hpp"

namespace shoal::worker::cpu {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

namespace {

std::size_t element_count_of(const dnnl::memory::dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::size_t{1},
                         [](std::size_t product, auto dim) { return product * static_cast<std::size_t>(dim); });
}

dnnl::stream make_stream() {
  try {
    return dnnl::stream(engine());
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw;
  }
}

}  // namespace

dnnl::stream& stream() {
  thread_local dnnl::stream in_order = make_stream();
  return in_order;
}

OmpWidth::OmpWidth(int threads) : before_(::omp_get_max_threads()) { ::omp_set_num_threads(threads); }
OmpWidth::~OmpWidth() { ::omp_set_num_threads(before_); }

namespace {

constexpr int kCachedPrimitives = 1024;

struct SharingState {
  Mutex mutex;
  int users SHOAL_GUARDED_BY(mutex) = 0;
  int capacity_before SHOAL_GUARDED_BY(mutex) = 0;
} sharing;

}  // namespace

PrimitiveSharing::PrimitiveSharing() {
  const MutexLock lock(sharing.mutex);
  if (sharing.users++ > 0) return;
  sharing.capacity_before = dnnl::get_primitive_cache_capacity();
  dnnl::set_primitive_cache_capacity(kCachedPrimitives);
}

PrimitiveSharing::~PrimitiveSharing() {
  const MutexLock lock(sharing.mutex);
  if (--sharing.users > 0) return;
  dnnl::set_primitive_cache_capacity(0);
  dnnl::set_primitive_cache_capacity(sharing.capacity_before);
}

dnnl::memory::dims dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

bool counts_positions(const Shape& src, std::span<const std::int64_t> pad) {
  for (int axis = 2; axis < src.rank(); ++axis) {
    const std::int64_t padding = pad.empty() ? 0 : pad[static_cast<std::size_t>(axis - 2)];
    if (src[axis] + 2 * padding > std::numeric_limits<int>::max()) return false;
  }
  return true;
}

Desc plain_desc(const dnnl::memory::dims& dims, Type type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, type, strides};
}

namespace {

bool has_isa(dnnl::cpu_isa wanted) {
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

}  // namespace

bool has_bf16() { return has_isa(dnnl::cpu_isa::avx512_core); }
bool has_amx() { return has_isa(dnnl::cpu_isa::avx512_core_amx); }

int channel_block() {
  if (has_isa(dnnl::cpu_isa::avx512_core)) return 16;
  return has_isa(dnnl::cpu_isa::avx2) ? 8 : 0;
}

Desc blocked_desc(const dnnl::memory::dims& dims, Type type) {
  static constexpr Tag kTags[2][3] = {{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c}, {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c}};
  if (channel_block() == 0 || dims.size() < 3 || dims.size() > 5) return {};
  return {dims, type, kTags[channel_block() == 16 ? 1 : 0][dims.size() - 3]};
}

Desc channels_last_desc(const dnnl::memory::dims& dims, Type type) {
  static constexpr Tag kTags[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  return {dims, type, kTags[dims.size() - 3]};
}

Desc channel_range_desc(const dnnl::memory::dims& dims, std::int64_t whole, Type type) {
  dnnl::memory::dims whole_dims = dims;
  whole_dims[1] = whole;
  Desc desc = channels_last_desc(whole_dims, type);
  desc.data.dims[1] = desc.data.padded_dims[1] = dims[1];
  return desc;
}

Desc panels_desc(const dnnl::memory::dims& dims, std::int64_t columns) {
  dnnl_memory_desc_t data = plain_desc(dims).data;
  data.padded_dims[0] = (dims[0] + columns - 1) / columns * columns;
  auto& blocking = data.format_desc.blocking;
  blocking.inner_nblks = 1;
  blocking.inner_blks[0] = columns;
  blocking.inner_idxs[0] = 0;
  blocking.strides[0] = dims[1] * columns;
  blocking.strides[1] = columns;
  return Desc(data);
}

bool has_gaps(const Desc& desc) {
  if (desc.data.format_kind != dnnl_blocked || desc.data.format_desc.blocking.inner_nblks > 0) return false;
  return desc.get_size() != element_count_of(desc.dims()) * element_bytes(desc);
}

bool lies_channels_last(const Desc& desc) {
  const dnnl::memory::dims dims = desc.dims();
  return has_gaps(desc) || (dims.size() >= 3 && dims.size() <= 5 && desc == channels_last_desc(dims, desc.data_type()));
}

Desc any_desc(const dnnl::memory::dims& dims, Type type) { return {dims, type, Tag::any}; }

Desc as_type(const Desc& desc, Type type) {
  dnnl_memory_desc_t data = desc.data;
  data.data_type = dnnl::memory::convert_to_c(type);
  return Desc(data);
}

DType dtype_of(const Desc& desc) { return desc.data_type() == Type::bf16 ? DType::kBFloat16 : DType::kFloat32; }

std::size_t element_bytes(const Desc& desc) { return dnnl_data_type_size(desc.data.data_type); }

Desc desc_of_batch(const Desc& desc, std::int64_t images) {
  dnnl_memory_desc_t data = desc.data;
  data.dims[0] = data.padded_dims[0] = images;
  return Desc(data);
}

bool is_padded(const Desc& desc) {
  const auto& data = desc.data;
  return !std::equal(data.dims, data.dims + data.ndims, data.padded_dims);
}

bool is_row_data(const Desc& desc) { return desc.dims().size() <= 3 && desc.data_type() == Type::f32 && is_plain(desc); }

bool is_plain(const Desc& desc) { return desc == plain_desc(desc.dims(), desc.data_type()); }

bool is_opaque(const Desc& desc) { return desc.data.format_kind != dnnl_blocked || (desc.data.extra.flags != 0); }

bool same_memory(const Desc& a, const Desc& b) {
  if (a == b) return true;
  if (a.dims() != b.dims() || a.dims().size() < 3 || a.data_type() != b.data_type()) return false;
  const auto dims = a.dims();
  std::size_t elements = 1, positions = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    elements *= static_cast<std::size_t>(dims[axis]);
    if (axis >= 2) positions *= static_cast<std::size_t>(dims[axis]);
  }
  const auto is_dense = [&](const Desc& desc) {
    return desc.get_size() == elements * element_bytes(desc) && desc.data.format_kind == dnnl_blocked;
  };
  return positions == 1 && is_dense(a) && is_dense(b);
}

WeightForm form_of(const Desc& desc) {
  static_assert(std::is_trivially_copyable_v<dnnl_memory_desc_t>);
  WeightForm form{.dtype = dtype_of(desc)};
  if (!is_plain(desc)) form.layout.assign(reinterpret_cast<const char*>(&desc.data), sizeof desc.data);
  return form;
}

Desc desc_of(const WeightForm& form, const Desc& plain) {
  if (form.layout == WeightForm::kPlain) return as_type(plain, form.dtype == DType::kBFloat16 ? Type::bf16 : Type::f32);
  dnnl_memory_desc_t data;
  SHOAL_CHECK(form.layout.size() == sizeof data);
  std::memcpy(&data, form.layout.data(), sizeof data);
  return Desc(data);
}

bool is_form(const WeightForm& form) {
  if (form.dtype != DType::kFloat32 && form.dtype != DType::kBFloat16) return false;
  dnnl_memory_desc_t data;
  if (form.layout.size() != sizeof data) return form.layout == WeightForm::kPlain;
  std::memcpy(&data, form.layout.data(), sizeof data);
  if (data.ndims < 1 || data.ndims > DNNL_MAX_NDIMS) return false;
  if (data.data_type != (form.dtype == DType::kFloat32 ? dnnl_f32 : dnnl_bf16)) return false;
  if (data.format_kind != dnnl_blocked) return true;
  const auto& blocking = data.format_desc.blocking;
  const auto is_axis = [&](dnnl_dim_t axis) { return axis >= 0 && axis < data.ndims; };
  return blocking.inner_nblks >= 0 && blocking.inner_nblks <= DNNL_MAX_NDIMS &&
         std::all_of(blocking.inner_idxs, blocking.inner_idxs + blocking.inner_nblks, is_axis);
}

Status pack(const Desc& src_desc, const void* src, const Desc& dst_desc, void* dst) try {
  const OmpWidth one(1);
  const PrimitiveSharing scope;
  const dnnl::reorder::primitive_desc pd(engine(), src_desc, engine(), dst_desc);
  dnnl::memory from(src_desc, engine(), const_cast<void*>(src)), to(dst_desc, engine(), dst);
  dnnl::reorder(pd).execute(stream(), from, to);
  stream().wait();
  return {};
} catch (const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
  return internal_error("pack weights: oneDNN says: {} (status {})", error.what(), static_cast<int>(error.status));
}

}  // namespace shoal::worker::cpu
