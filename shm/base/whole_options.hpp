// whole(): the options of a program that may have been compiled with an older header.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

namespace shoal {

/// A copy with defaults for the members that the program did not know, and without those that this library does not know. The
/// members are numbers, Text, List and pointers: what their bytes say is the same wherever these lie.
template <typename Options>
Options whole(const Options& given) {
  const std::size_t known = given.struct_size.bytes();
  if (known >= sizeof(Options)) return given;
  const Options defaults;
  alignas(Options) std::byte bytes[sizeof(Options)];
  std::memcpy(bytes, &defaults, sizeof(Options));
  std::memcpy(bytes, &given, known);
  return *std::launder(reinterpret_cast<const Options*>(bytes));  // the copy of what it refers to
}

}  // namespace shoal
