#pragma once

namespace shoal::test {

/// Whether the tests run with AddressSanitizer or ThreadSanitizer. What they repeat by seed or size is then repeated less often:
/// they look for other mistakes there, and each repetition takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace shoal::test
