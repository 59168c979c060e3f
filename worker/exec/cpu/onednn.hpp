// What the files of the cpu device share: oneDNN's engine, descriptors, widths.
#pragma once

#include <concepts>
#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/weight_form.hpp"

namespace shoal::worker::cpu {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
/// The type of stored elements: f32 or bf16. Sums and element-wise functions are computed in f32 in any case.
using Type = dnnl::memory::data_type;

/// Does oneDNN have fast bf16 implementations for this machine? (AVX-512 is needed; AVX512_BF16 or AMX make them fast.)
bool has_bf16();
bool has_amx();

const dnnl::engine& engine();
/// The calling thread's stream, made by its first call. Throws std::bad_alloc if there is no memory; a later call tries again.
dnnl::stream& stream();

/// Sets the calling thread's OpenMP width for a scope. A primitive keeps the width it is created under. If a primitive runs under
/// more than 1 before a fork(), the child hangs; so packing reorders are created and executed under 1.
class OmpWidth {
 public:
  explicit OmpWidth(int threads);
  ~OmpWidth();
  OmpWidth(const OmpWidth&) = delete;
  OmpWidth& operator=(const OmpWidth&) = delete;

 private:
  int before_;
};

/// In its scope, equal layers of a graph share their code by oneDNN's own cache of primitives. That cache is emptied when the
/// last scope ends, because its primitives (some 30 KB each) would outlive our programs and be in no budget. So a primitive
/// lives as long as the programs that run it. The cache's capacity is restored: the application may use oneDNN, too. The
/// application's own entries are lost with ours: oneDNN 2.6 cannot remove some entries only (shoal/engine.hpp says so).
///   Threads  thread-safe
class PrimitiveSharing {
 public:
  PrimitiveSharing();
  ~PrimitiveSharing();
  PrimitiveSharing(const PrimitiveSharing&) = delete;
  PrimitiveSharing& operator=(const PrimitiveSharing&) = delete;
};

dnnl::memory::dims dims_of(const Shape& shape);
/// oneDNN counts the positions of windows in int. False when they do not fit on some axis of space; `pad` may be empty.
bool counts_positions(const Shape& src, std::span<const std::int64_t> pad);
/// Row-major.
Desc plain_desc(const dnnl::memory::dims& dims, Type type = Type::f32);
template <std::same_as<Shape> S>  // a template, so that plain_desc({2, 3}) means dims
Desc plain_desc(const S& shape, Type type = Type::f32) {
  return plain_desc(dims_of(shape), type);
}
/// Channels in blocks as wide as this machine's vectors: nChw16c with AVX-512, nChw8c with AVX2; 3 to 5 axes. Empty on other
/// machines.
Desc blocked_desc(const dnnl::memory::dims& dims, Type type = Type::f32);
int channel_block();
/// Channels behind the positions, as nhwc; 3 to 5 axes.
Desc channels_last_desc(const dnnl::memory::dims& dims, Type type = Type::f32);
/// A range of the channels of a larger value of float32 that lies channels last: its positions are `whole` channels apart.
Desc channel_range_desc(const dnnl::memory::dims& dims, std::int64_t whole, Type type);
/// A matrix of weights, one row for each column of a product's result, in panels of so many of these columns.
Desc panels_desc(const dnnl::memory::dims& dims, std::int64_t columns);
/// Is there other memory between its elements? False for padded blocks.
bool has_gaps(const Desc& desc);
/// Channels last: densely, or as a range of a tensor's channels.
bool lies_channels_last(const Desc& desc);
Desc any_desc(const dnnl::memory::dims& dims, Type type = Type::f32);
/// The same layout of elements of another type.
Desc as_type(const Desc& desc, Type type);
DType dtype_of(const Desc& desc);  ///< float32 or bfloat16
std::size_t element_bytes(const Desc& desc);
/// Do the two describe the same bytes? They are equal, or dense, of one type, and only batch and channels are larger than 1.
bool same_memory(const Desc& a, const Desc& b);
bool is_plain(const Desc& desc);  ///< row-major, of any type
/// Plain float32 with at most 3 axes, as sequences have it. For these Shoal's kernels are as fast as oneDNN's primitives, and
/// need no code that is generated for the shape.
bool is_row_data(const Desc& desc);
/// The same layout with another number of images.
Desc desc_of_batch(const Desc& desc, std::int64_t images);
bool is_padded(const Desc& desc);  ///< its blocks hold zeros after the last channel
/// Only the primitive that a form was made for can read it, such as Winograd's weights.
bool is_opaque(const Desc& desc);

/// A descriptor as a form for the WeightStore, and back. The layout of a plain one is WeightForm::kPlain, which has no
/// dimensions: those of `plain` count then.
WeightForm form_of(const Desc& desc);
Desc desc_of(const WeightForm& form, const Desc& plain);
/// Is it one of float32 or bf16, and does its layout hold no number that oneDNN would take as an index without a check?
bool is_form(const WeightForm& form);

/// dst = src in another form; created and executed under width 1.
///   Errors  kInternal: oneDNN's message. Throws std::bad_alloc
Status pack(const Desc& src_desc, const void* src, const Desc& dst_desc, void* dst);
/// Is the implementation not one of oneDNN's slow "ref" ones?
template <typename PrimitiveDesc>
bool is_optimized(const PrimitiveDesc& pd) {
  return std::string(pd.impl_info_str()).rfind("ref", 0) != 0;
}

}  // namespace shoal::worker::cpu
