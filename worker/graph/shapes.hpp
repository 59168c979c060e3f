// What the shape and dtype rules of operators share.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

using SourceValues = std::span<const Value* const>;
using ResultValues = std::span<Value* const>;

// Whole rules that several operators have.

Status infer_same(const Node& node, SourceValues src, ResultValues dst);  ///< any number of equal inputs, output like them
/// Equal inputs of any number type, output like them.
Status infer_numeric(const Node& node, SourceValues src, ResultValues dst);
/// One input, floating point, output like it.
Status infer_float_elementwise(const Node& node, SourceValues src, ResultValues dst);
void same_parameters(const Node& node, std::span<Value* const> src);  ///< all inputs have one dtype and shape

// What the rules share.

bool is_float(DType dtype);
bool is_integer(DType dtype);      ///< signed and unsigned; bool is none
bool is_open(const Shape& shape);  ///< rank 0, or with an unknown dimension, as a model may describe an input
void set_result(Value& dst, DType dtype, const Shape& shape);
/// "axis" counted from the back when negative. Errors: kInvalidArgument naming node, axis and shape.
Result<int> normalize_axis(const Node& node, std::int64_t axis, const Shape& shape);
/// A Shape of these dimensions. Errors: kInvalidArgument when there are more than kMaxRank.
Result<Shape> make_shape(const Node& node, std::span<const std::int64_t> dims);
/// Errors: kInvalidArgument unless all have the dtype of the first.
Status check_same_dtype(const Node& node, SourceValues src);
/// Errors: kInvalidArgument unless src has floating-point elements.
Status check_float(const Node& node, const Value& src);
/// Errors: kUnimplemented when src is bool.
Status check_number(const Node& node, const Value& src);
/// Errors: kInvalidArgument unless src has `least` to `most` axes.
Status check_rank(const Node& node, const Value& src, int least, int most = kMaxRank);
/// Errors: kInvalidArgument naming both shapes unless src has this shape; `role` is what src is to the operator ("weight").
Status check_shape(const Node& node, const char* role, const Value& src, const Shape& expected);
/// Errors: kInvalidArgument naming the attribute unless all its numbers are from `least` to 2^31 - 1: rules may then multiply two
/// of them.
Status check_numbers(const Node& node, const char* attribute, const Dims& numbers, std::int64_t least);
/// The shape to which both are broadcast by NumPy's rule. Errors: kInvalidArgument naming both.
Result<Shape> broadcast(const Node& node, const Value& left, const Value& right);
/// Kernels count the positions of a window in the padded image: a padded image may not be larger than a tensor. `first` is the
/// first axis of space. The numbers of `pad` have been checked.
Status check_padded(const Node& node, const Dims& pad, const Value& data, int first);
/// Sets a parameter's shape when it is not known yet.
void supply(Value& parameter, DType dtype, const Shape& shape);
DType statistics_type(DType data);  ///< of a normalization's parameters with such data: float64 or float32
/// The tuple as attributes are written: "(1, 2)".
std::string to_text(const Dims& dims);

}  // namespace shoal::worker
