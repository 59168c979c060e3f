// libFuzzer: bytes as a -symbol.json, read, upgraded and lowered to a Graph.
#include "worker/import/mxnet/mxnet_importer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const shoal::worker::ForeignFile file{"fuzz-symbol.json", std::as_bytes(std::span(data, size)), nullptr};
  constexpr shoal::worker::ImportLimits kLimits{.memory_bytes = std::uint64_t{64} << 20};
  const auto import = shoal::worker::import_mxnet_symbol(file, kLimits);
  static_cast<void>(import.ok());
  return 0;
}
