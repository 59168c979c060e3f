// Tensors as every part of Shoal passes them: element type, shape, and bytes in row-major order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"

namespace shoal {

/// Element types. The numbers travel on the wire and are never changed.
enum class DType : std::uint8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,  ///< IEEE 754 binary16
  kBFloat16 = 4,
  kUInt8 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kUInt16 = 8,
  kInt32 = 9,
  kUInt32 = 10,
  kInt64 = 11,
  kUInt64 = 12,
  kBool = 13,  ///< one byte, 0 or 1
};

/// Bytes of one element; 0 for a number that is no DType.
std::size_t dtype_size_bytes(DType dtype);
/// NumPy's name: "float32", "uint8", "bool"; "bfloat16" as in ml_dtypes; "invalid" for a number that is no DType.
std::string_view dtype_name(DType dtype);
/// The type of that name. Errors: kInvalidArgument.
Result<DType> parse_dtype(std::string_view name);

inline constexpr int kMaxRank = 8;

/// Dimensions, outermost first. Rank 0 is a scalar of one element; a dimension may be 0, or -1 where a model leaves it open.
///   Threads  a value: thread-compatible
class Shape {
 public:
  Shape() = default;
  /// Aborts the process when there are more than kMaxRank: check foreign ranks before.
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }

  /// Product of the dimensions, 1 for a scalar. -1 when a dimension is negative or the product does not fit.
  std::int64_t element_count() const;
  /// "1x3x224x224"; "scalar" for rank 0; "?" for a negative dimension.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Sizes that a dimension may have, both ends included.
struct DimRange {
  std::int64_t lowest = 0, highest = std::numeric_limits<std::int64_t>::max();
  bool contains(std::int64_t size) const { return lowest <= size && size <= highest; }
  friend bool operator==(const DimRange&, const DimRange&) = default;
};

/// What a model says of one of its inputs or outputs.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;                        ///< -1 where any size is taken
  std::vector<DimRange> ranges = {};  ///< one per dimension, narrowing those that are -1; empty: nothing is narrowed
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Somebody else's tensor: type, shape and a pointer. Constness of the view is constness of its bytes.
///   Lifetime  valid while the owner of the bytes is
struct TensorView {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::byte* data = nullptr;

  std::int64_t element_count() const { return shape.element_count(); }
  std::size_t size_bytes() const { return static_cast<std::size_t>(element_count()) * dtype_size_bytes(dtype); }
  std::span<const std::byte> bytes() const { return {data, size_bytes()}; }
  std::span<std::byte> bytes() { return {data, size_bytes()}; }
  /// The elements as T; T must be the type that dtype means.
  template <typename T>
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(data), static_cast<std::size_t>(element_count())};
  }
  template <typename T>
  std::span<T> values() {
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(element_count())};
  }
};

/// A tensor that keeps its bytes alive: its own, or a slot of an arena. Copies share the bytes.
///   Threads  thread-compatible
class Tensor {
 public:
  Tensor() = default;
  /// New zeroed memory, 64-byte aligned. Errors: kInvalidArgument (shape open or too large).
  static Result<Tensor> create(DType dtype, const Shape& shape);
  /// Wraps memory that `owner` keeps alive.
  Tensor(TensorView view, std::shared_ptr<void> owner) : view_(view), owner_(std::move(owner)) {}

  DType dtype() const { return view_.dtype; }
  const Shape& shape() const { return view_.shape; }
  std::size_t size_bytes() const { return view_.size_bytes(); }
  const TensorView& view() const { return view_; }
  TensorView& view() { return view_; }
  template <typename T>
  std::span<const T> values() const {
    return view_.values<T>();
  }
  template <typename T>
  std::span<T> values() {
    return view_.values<T>();
  }
  const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

/// A tensor and the name of the input or output it is for.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using Tensors = std::vector<NamedTensor>;

}  // namespace shoal
