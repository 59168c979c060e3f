#pragma once

namespace shoal::test {

/// Whether the tests run with AddressSanitizer or ThreadSanitizer, which have a malloc() of their own and keep what was freed.
/// What tests repeat by seed or size they repeat less often then, because it takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace shoal::test
