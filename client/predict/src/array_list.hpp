// ArrayList: what an NDListHandle points to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::predict {

/// The arrays of a file, as float32. Immutable.
class ArrayList {
 public:
  struct Array {
    std::string name;  ///< empty if the file has no names
    std::vector<std::uint32_t> shape;
    std::vector<float> values;  ///< row-major
  };

  /// Reads the bytes of a file of arrays. Nothing refers to them afterwards.
  ///   Errors  those of worker::parse_mxnet_params(); kInvalidArgument: an array without a value, a size beyond 32 bits, too much
  ///           memory
  static Result<ArrayList> read(std::span<const std::byte> bytes);

  std::size_t size() const { return arrays_.size(); }
  /// Errors: kInvalidArgument: there is no such array.
  Result<const Array*> at(std::size_t index) const;

 private:
  std::vector<Array> arrays_;
};

}  // namespace shoal::predict
