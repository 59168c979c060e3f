// Loops in the vector instructions that the processor has. The build itself is for every x86-64.
#pragma once

namespace shoal::worker::cpu {

/// Does the processor have AVX2 and F16C?
bool has_avx2();

// A function made for AVX2 may inline one that is made for less, and `flatten` inlines everything. What is not inlined, such as
// libm, stays as it is, so no code for AVX2 can be taken for code that every machine runs. The body is a copy: what it captured
// cannot change while a loop writes bytes.
template <typename Body>
[[gnu::target("avx2,f16c"), gnu::flatten, gnu::noinline]] void run_with_avx2(Body body) {
  body();
}

/// Calls body(), which captures by value, and is compiled twice: for every machine, and for AVX2. Both give the same bits: the
/// folder is compiled without fused multiplications and additions, and vectors never change the order of a sum.
template <typename Body>
void vectorized(const Body& body) {
  has_avx2() ? run_with_avx2(body) : body();
}

}  // namespace shoal::worker::cpu
