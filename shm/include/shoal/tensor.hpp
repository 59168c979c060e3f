// Tensors: element type, shape, and bytes in row-major order.
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
#include <type_traits>
#include <utility>
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

/// Bytes of one element; 0 for a value that is not a DType.
std::size_t dtype_size_bytes(DType dtype);
/// NumPy's name: "float32", "uint8", "bool"; "bfloat16" as in ml_dtypes; "invalid" for a value that is not
/// a DType.
std::string_view dtype_name(DType dtype);
/// The DType of that name. Errors: kInvalidArgument.
Result<DType> parse_dtype(std::string_view name);

inline constexpr int kMaxRank = 8;

/// Dimensions, outermost first. Rank 0 is a scalar of one element; a dimension may be 0, or -1 if a model leaves it open. In the
/// description of a model, any() means that it takes any shape, or that the shape is not known yet.
///   Threads  a value: thread-compatible
class Shape {
 public:
  Shape() = default;
  /// Throws shoal::Error (kInvalidArgument) for more than kMaxRank dimensions. make() returns that error instead.
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);
  /// For dimensions that come from a user or a file. Errors: kInvalidArgument (more than kMaxRank).
  static Result<Shape> make(std::span<const std::int64_t> dims);
  /// Any number of dimensions of any size. No tensor has it.
  static Shape any() {
    Shape shape;
    shape.rank_ = -1;
    return shape;
  }

  bool is_known() const { return rank_ >= 0; }  ///< false for any()
  int rank() const { return rank_; }            ///< -1 for any()
  /// 0 <= axis < rank().
  std::int64_t operator[](int axis) const& { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) & { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> dims() const& { return {begin(), end()}; }  ///< none for any()
  std::span<const std::int64_t> dims() && = delete;                         ///< of a temporary: keep the Shape
  const std::int64_t* begin() const& { return dims_.data(); }
  const std::int64_t* end() const& { return dims_.data() + (rank_ < 0 ? 0 : rank_); }
  const std::int64_t* begin() && = delete;  ///< as dims()
  const std::int64_t* end() && = delete;

  /// The product of the dimensions, 1 for a scalar. -1 if a dimension is negative, the product does not fit 63 bits, or for
  /// any().
  std::int64_t element_count() const;
  /// "1x3x224x224"; "scalar" for rank 0; "any" for any(); "?" for a negative dimension.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// The sizes that a dimension may have, both ends included.
struct DimRange {
  std::int64_t lowest = 0, highest = std::numeric_limits<std::int64_t>::max();
  bool contains(std::int64_t size) const { return lowest <= size && size <= highest; }
  friend bool operator==(const DimRange&, const DimRange&) = default;
};

/// The description of a model's input or output. `DataDesc` is its name in programs (shoal/data_desc.hpp).
struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape = Shape::any();         ///< -1 if any size is allowed; any() if any shape is
  std::vector<DimRange> ranges = {};  ///< one per dimension, limits those that are -1; empty: no limits
  /// One letter per dimension, as in "NCHW": N batch, T time, C channels, H height, W width. Empty if nobody has said it.
  std::string layout = {};
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// A state of a sequence (`state` in model.toml): an output of the model that is an input of the next step.
struct StatePair {
  std::string out, in;           ///< names of the output and of the input
  Shape shape = Shape::any();    ///< of both; -1 is the batch
  std::string batch_input = {};  ///< the input that has the batch; empty: the first one that is no state and no scalar
  int batch_axis = 0;            ///< the dimension of that input which is the batch
  friend bool operator==(const StatePair&, const StatePair&) = default;
};

/// A tensor whose bytes somebody else owns: type, shape and a pointer. The bytes of a const view are const.
///   Lifetime  valid while the owner of the bytes exists
struct TensorView {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::byte* data = nullptr;

  std::int64_t element_count() const { return shape.element_count(); }
  /// 0 when a dimension is open, the product does not fit 64 bits, or dtype is no DType.
  std::size_t size_bytes() const {
    std::size_t size = 0;
    const std::int64_t count = element_count();
    return count < 0 || __builtin_mul_overflow(static_cast<std::size_t>(count), dtype_size_bytes(dtype), &size) ? 0 : size;
  }
  std::span<const std::byte> bytes() const { return {data, size_bytes()}; }
  std::span<std::byte> bytes() { return {data, size_bytes()}; }
  /// The elements as T: float for float32, std::int64_t for int64, ...; std::uint16_t for float16 and bfloat16, bool or
  /// std::uint8_t for bool. Throws shoal::Error (kInvalidArgument) for another T, and for a tensor without bytes.
  template <typename T>
  std::span<const T> values() const {
    check_element(sizeof(T), std::is_floating_point_v<T>);
    return {reinterpret_cast<const T*>(data), size_bytes() / sizeof(T)};
  }
  template <typename T>
  std::span<T> values() {
    check_element(sizeof(T), std::is_floating_point_v<T>);
    return {reinterpret_cast<T*>(data), size_bytes() / sizeof(T)};
  }

 private:
  void check_element(std::size_t size_bytes, bool is_floating_point) const;
};

/// A tensor that keeps its bytes alive: memory of its own, or a slot of an arena. Copies share the bytes.
///   Threads  thread-compatible
class Tensor {
 public:
  Tensor() = default;
  /// Allocates zeroed memory, aligned to 64 bytes. Errors: kInvalidArgument (open or too large shape, no DType),
  /// kFailedPrecondition (out of memory).
  static Result<Tensor> create(DType dtype, const Shape& shape);
  /// Refers to memory that `owner` keeps alive.
  Tensor(TensorView view, std::shared_ptr<void> owner) : view_(view), owner_(std::move(owner)) {}
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  /// `other` is then as Tensor() makes it.
  Tensor(Tensor&& other) noexcept : view_(std::exchange(other.view_, {})), owner_(std::move(other.owner_)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    view_ = std::exchange(other.view_, {});
    owner_ = std::move(other.owner_);
    return *this;
  }

  DType dtype() const { return view_.dtype; }
  const Shape& shape() const& { return view_.shape; }
  Shape shape() && { return view_.shape; }
  std::size_t size_bytes() const { return view_.size_bytes(); }
  const TensorView& view() const& { return view_; }
  TensorView& view() & { return view_; }
  TensorView& view() && = delete;  ///< of a temporary, whose bytes end with it: keep the Tensor
  /// As TensorView::values().
  template <typename T>
  std::span<const T> values() const& {
    return view_.values<T>();
  }
  template <typename T>
  std::span<T> values() & {
    return view_.values<T>();
  }
  template <typename T>
  std::span<T> values() && = delete;  ///< of a temporary, whose bytes end with it: keep the Tensor
  template <typename T>
  std::span<const T> values() const&& = delete;
  const std::shared_ptr<void>& owner() const& { return owner_; }
  std::shared_ptr<void> owner() && { return std::move(owner_); }

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

/// A tensor and the name of its input or output.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using Tensors = std::vector<NamedTensor>;

}  // namespace shoal
