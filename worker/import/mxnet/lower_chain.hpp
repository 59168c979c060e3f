// What files of the table share that lower one operator to several.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {

/// Operators one behind the other.
class Chain {
 public:
  Chain(MxnetLowering& lowering, ValueId begin) : lowering_(lowering), end_{begin} {}
  Chain(MxnetLowering& lowering, std::vector<ValueId> begin) : lowering_(lowering), end_(std::move(begin)) {}
  Chain& add(const Operator& op, Attributes attributes, const std::vector<ValueId>& parameters = {}) {
    if (end_.empty()) return *this;  // the budget did not allow the one before
    std::vector<ValueId> inputs{end_[0]};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    end_ = lowering_.add(op, std::move(attributes), std::move(inputs));
    return *this;
  }
  /// The first output of the last one.
  std::vector<ValueId> end() const { return end_.empty() ? std::vector<ValueId>() : std::vector<ValueId>{end_[0]}; }

 private:
  MxnetLowering& lowering_;
  std::vector<ValueId> end_;
};

/// A constant vector of these numbers, of type T. kNoValue if it is over the budget.
template <typename T>
ValueId add_constant(MxnetLowering& lowering, const std::vector<T>& numbers) {
  const std::uint64_t size_bytes = numbers.size() * sizeof(T) + value_bytes(lowering.node.name);
  if (const Status taken = lowering.budget.take("a constant", 1, size_bytes); !taken.ok()) {
    lowering.attributes.fail_node(taken.code(), taken.message());
    return kNoValue;
  }
  constexpr DType kDType = std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  const auto bytes = std::make_shared<std::vector<std::byte>>(numbers.size() * sizeof(T));
  if (!numbers.empty()) std::memcpy(bytes->data(), numbers.data(), bytes->size());
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  return lowering.graph.add_value({.name = lowering.node.name + "_constant",
                                   .dtype = kDType,
                                   .shape = shape,
                                   .constant = Constant{kDType, shape, *bytes, bytes}});
}

}  // namespace shoal::worker
