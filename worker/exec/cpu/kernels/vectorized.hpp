// Loops in the vector instructions that the processor has. The build itself is for every x86-64.
#pragma once

namespace shoal::worker::cpu {

/// Does the processor have AVX2 and F16C?
bool has_avx2();
/// Does it have the parts of AVX-512 that all servers with AVX-512 have (F, BW, DQ, VL), and AVX2?
bool has_avx512();

// A function made for AVX2 may inline one that is made for less, and `flatten` inlines everything. What is not inlined, such as
// libm, stays as it is, so no code for AVX2 can be taken for code that every machine runs. The body is a copy: what it captured
// cannot change while a loop writes bytes.
template <typename Body>
[[gnu::target("avx2,f16c"), gnu::flatten, gnu::noinline]] void run_with_avx2(Body body) {
  body();
}
template <typename Body>
[[gnu::target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten, gnu::noinline]] void run_with_avx512(Body body) {
  body();
}

/// Calls body(), which captures by value, and is compiled three times: for every machine, for AVX2 and for AVX-512. All give the
/// same bits: the folder is compiled without fused multiplications and additions, and vectors never change the order of a sum.
template <typename Body>
void vectorized(const Body& body) {
  if (has_avx512())
    run_with_avx512(body);
  else if (has_avx2())
    run_with_avx2(body);
  else
    body();
}

}  // namespace shoal::worker::cpu
