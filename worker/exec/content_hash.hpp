// ContentHash: 64 bits of a model's structure and constants, of inputs, of records. Not secure against forgery. The home of
// xxHash.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shoal::worker {

struct Graph;

/// XXH3 of pieces of data. Order and borders matter: add(a), add(b) differs from add(b), add(a) and from add(ab).
///   Threads  a value
class ContentHash {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// Hashes operators, names, attributes, edges and the bytes of every constant that is read.
std::uint64_t hash_graph(const Graph& graph);

}  // namespace shoal::worker
