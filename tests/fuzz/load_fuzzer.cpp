// libFuzzer: bytes as a whole load.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/whole_load.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shoal::fuzz::ByteSource bytes(std::span(data, size));
  const shoal::fuzz::LoadOutcome outcome = shoal::fuzz::check_whole_load(bytes);
  static std::size_t loosely_compared = 0;
  if (outcome.loosely_compared > 0)
    std::fprintf(stderr, "load_fuzzer: outputs compared with the loose tolerance so far: %zu\n",
                 loosely_compared += outcome.loosely_compared);
  if (!outcome.wrong.empty() || std::getenv("SHOAL_FUZZ_PRINT") != nullptr)
    std::fprintf(stderr, "load_fuzzer: %s\ndata: %s\nsymbol: %s\n", outcome.wrong.c_str(), outcome.data.shape.to_string().c_str(),
                 outcome.symbol.c_str());
  if (!outcome.wrong.empty()) std::abort();
  return 0;
}
