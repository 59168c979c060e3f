// What the cpu device's files share of oneDNN: the engine, descriptors, widths.
#pragma once

#include <concepts>
#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker::cpu {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

const dnnl::engine& engine();
/// The calling thread's stream.
dnnl::stream& stream();

/// Sets the calling thread's OpenMP width for a scope. A primitive is bound for ever to the width it is created under, and one
/// that runs under more than 1 before a fork() hangs the child: packing reorders are created and executed under 1.
class OmpWidth {
 public:
  explicit OmpWidth(int threads);
  ~OmpWidth();
  OmpWidth(const OmpWidth&) = delete;
  OmpWidth& operator=(const OmpWidth&) = delete;

 private:
  int before_;
};

/// oneDNN's own cache of primitives lets the equal layers of one graph share their code. What it holds would outlive our programs
/// beside every budget, at some 30 KB each, so it is emptied when the last scope ends: from then on a primitive lives as long as
/// the programs that run it. Its capacity is then what it was: the process may be an application that uses oneDNN, too.
///   Threads  thread-safe
class PrimitiveSharing {
 public:
  PrimitiveSharing();
  ~PrimitiveSharing();
  PrimitiveSharing(const PrimitiveSharing&) = delete;
  PrimitiveSharing& operator=(const PrimitiveSharing&) = delete;
};

dnnl::memory::dims dims_of(const Shape& shape);
/// Row-major float32.
Desc plain_desc(const dnnl::memory::dims& dims);
template <std::same_as<Shape> S>  // a template, so that plain_desc({2, 3}) means dims
Desc plain_desc(const S& shape) {
  return plain_desc(dims_of(shape));
}
/// Channels in blocks, as this machine's vectors are wide: nChw16c with AVX-512, nChw8c with AVX2; 3 to 5 axes. Empty when there
/// is none.
Desc blocked_desc(const dnnl::memory::dims& dims);
int channel_block();
/// Channels behind the positions, as nhwc; 3 to 5 axes.
Desc channels_last_desc(const dnnl::memory::dims& dims);
Desc any_desc(const dnnl::memory::dims& dims);
/// The two describe the same bytes: equal, or dense with nothing but batch and channels larger than 1.
bool same_memory(const Desc& a, const Desc& b);
bool is_plain(const Desc& desc);
/// The same layout with another number of images.
Desc desc_of_batch(const Desc& desc, std::int64_t images);
bool is_padded(const Desc& desc);  ///< its blocks hold zeros behind the last channel
/// A form that only the primitive it was made for can read, as Winograd's weights.
bool is_opaque(const Desc& desc);

/// A descriptor as text for WeightStore, and back. A plain one is WeightStore::kPlain, which has no way back without dims.
std::string form_of(const Desc& desc);
Desc desc_of(const std::string& form, const Desc& plain);

/// dst = src in another form; created and executed under width 1.
///   Errors  kInternal: what oneDNN says
Status pack(const Desc& src_desc, const void* src, const Desc& dst_desc, void* dst);
/// The implementation is none of oneDNN's slow "ref" ones.
template <typename PrimitiveDesc>
bool is_optimised(const PrimitiveDesc& pd) {
  return std::string(pd.impl_info_str()).rfind("ref", 0) != 0;
}

}  // namespace shoal::worker::cpu
