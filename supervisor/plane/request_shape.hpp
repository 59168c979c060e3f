// The properties of a request's tensors that the ledger uses. They come from the message alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shm/wire/messages.hpp"

namespace shoal::supervisor {

struct RequestShape {
  std::uint64_t hash = 0;  // of dtypes and dimensions; without the first dimension if all inputs agree on it
  std::uint32_t rows = 1;  // that first dimension
  bool joinable = false;   // they agree: requests of equal hash can run together
};

inline RequestShape shape_of(const wire::Request& request) {
  RequestShape shape;
  const auto first_of = [](const wire::WireTensor& input) { return input.rank > 0 ? input.dims[0] : 0; };
  const std::int64_t rows = request.inputs.empty() ? 0 : first_of(request.inputs[0]);
  // Empty tensors cannot be joined: any number of such rows costs the same.
  shape.joinable = rows > 0 && std::ranges::all_of(request.inputs, [&](const auto& input) {
                     return first_of(input) == rows && input.size_bytes > 0;
                   });
  if (shape.joinable) shape.rows = static_cast<std::uint32_t>(std::min<std::int64_t>(rows, 1 << 30));
  const auto mix = [&](std::uint64_t value) {  // FNV-1a by words; then mixes the bits, because tables use the low ones
    shape.hash = (shape.hash ^ value) * 0x100000001b3;
    shape.hash ^= shape.hash >> 29;
  };
  for (const wire::WireTensor& input : request.inputs) {
    mix(std::uint64_t{input.dtype} << 8 | input.rank);
    for (int i = shape.joinable ? 1 : 0; i < input.rank; ++i) mix(static_cast<std::uint64_t>(input.dims[i]));
  }
  return shape;
}

}  // namespace shoal::supervisor
