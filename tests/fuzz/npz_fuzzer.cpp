// libFuzzer: bytes as an archive of .npy files.
#include "worker/import/npz.hpp"
#include "worker/import/sparse_array.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const shoal::worker::ForeignFile file{"fuzz.npz", std::as_bytes(std::span(data, size)), nullptr};
  shoal::worker::MemoryBudget budget({.memory_bytes = std::uint64_t{64} << 20});
  auto arrays = shoal::worker::parse_npz(file, budget);
  if (arrays.ok()) static_cast<void>(shoal::worker::make_dense(file, *arrays, budget).ok());
  return 0;
}
