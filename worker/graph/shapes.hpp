// What the shape and dtype rules of operators share.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

// Whole rules that several operators have.

Status infer_same(const Node& node, SourceValues src, ResultValues dst);  ///< any number of equal inputs, output like them
/// Equal inputs of any number type, output like them.
Status infer_numeric(const Node& node, SourceValues src, ResultValues dst);
/// One input, floating point, output like it.
Status infer_float_elementwise(const Node& node, SourceValues src, ResultValues dst);
void same_parameters(const Node& node, std::span<TypedValue> src);  ///< all inputs have one dtype and shape

// What the rules share.

bool is_float(DType dtype);
bool is_integer(DType dtype);  ///< signed and unsigned; bool is none
/// any(), or with an unknown dimension, as a model may describe an input.
bool is_open(const SymbolicShape& shape);
void set_result(TypedValue& dst, DType dtype, const SymbolicShape& shape);
/// "axis" counted from the back when negative. Errors: kInvalidArgument naming node, axis and shape.
Result<int> normalize_axis(const Node& node, std::int64_t axis, const SymbolicShape& shape);
/// A shape of these dimensions. Errors: kInvalidArgument when there are more than kMaxRank.
Result<SymbolicShape> make_shape(const Node& node, std::span<const Dim> dims);
/// The size of an axis of a result that depends on data, from 0 to `most`.
Dim size_from_data(const TypedValue& dst, int axis, Dim most);
/// The size of an axis of a result that its readers decide (DimTable::open_size). Errors: kInvalidArgument: none of them does.
Result<Dim> size_from_readers(const Node& node, const TypedValue& dst, int axis);
/// Errors: kInvalidArgument unless all have the dtype of the first.
Status check_same_dtype(const Node& node, SourceValues src);
/// Errors: kInvalidArgument unless src has floating-point elements.
Status check_float(const Node& node, const TypedValue& src);
/// Errors: kUnimplemented when src is bool.
Status check_number(const Node& node, const TypedValue& src);
/// Errors: kInvalidArgument unless src has `least` to `most` axes.
Status check_rank(const Node& node, const TypedValue& src, int least, int most = kMaxRank);
/// Errors: kInvalidArgument naming both shapes if src is known to have another shape; `role` is what src is to the operator
/// ("weight").
Status check_shape(const Node& node, const char* role, const TypedValue& src, const SymbolicShape& expected);
/// Errors: kInvalidArgument naming the attribute unless all its numbers are from `least` to 2^31 - 1: rules may then multiply two
/// of them.
Status check_numbers(const Node& node, const char* attribute, const Dims& numbers, std::int64_t least);
/// The shape to which both are broadcast by NumPy's rule. Errors: kInvalidArgument naming both.
Result<SymbolicShape> broadcast(const Node& node, const TypedValue& left, const TypedValue& right);
/// Kernels count the positions of a window in the padded image: a padded image may not be larger than a tensor. `first` is the
/// first axis of space. The numbers of `pad` have been checked.
Status check_padded(const Node& node, const Dims& pad, const TypedValue& data, int first);
/// Sets a parameter's shape when it is not known yet.
void supply(TypedValue& parameter, DType dtype, const SymbolicShape& shape);
DType statistics_type(DType data);  ///< of a normalization's parameters with such data: float64 or float32
/// The tuple as attributes are written: "(1, 2)".
std::string to_text(const Dims& dims);

}  // namespace shoal::worker
