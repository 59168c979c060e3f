// Makes a -symbol.json of bytes: valid graphs of any operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shoal::fuzz {

/// Takes numbers off the fuzzer's bytes; 0 when none are left.
class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  /// A number below `count`, which is at most 65536.
  std::size_t below(std::size_t count) {
    const std::size_t high = count > 256 ? std::size_t{next()} << 8 : 0;
    return (high | next()) % count;
  }
  /// True once in `count` times.
  bool one_in(std::size_t count) { return below(count) == 1; }  // not 0: what is left out is the usual case
  bool empty() const { return bytes_.empty(); }
  std::span<const std::uint8_t> rest() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// Tells whether a symbol file is valid: returns the rank of its first output, or nothing when the file is refused.
using SymbolJudge = std::function<std::optional<int>(const std::string& text)>;

/// A graph on the variable "data" of `rank` axes, which grows until the bytes end. Nodes that the judge refuses are left out
/// again. `only`: every node is this MXNet operator; empty: any.
std::string random_symbol(ByteSource& bytes, int rank, const SymbolJudge& judge, std::string_view only = {});

}  // namespace shoal::fuzz
