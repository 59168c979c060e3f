// Operators that make tensors of numbers and shapes.
#include <algorithm>
#include <cmath>

#include "shm/base/format.hpp"
#include "worker/graph/types.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/import/mxnet/mxnet_types.hpp"
#include "worker/ops/creation.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// In MXNet's older interface a size of 0 is one that the readers of the result decide, and () is no shape. NumPy's has neither.
enum class Interface { kOld, kNumpy };

Dims shape_of(AttributeReader& attributes, Interface interface) {
  Dims shape = attributes.tuple("shape", Dims{}, 0);
  if (interface == Interface::kNumpy) return shape;
  if (shape.empty()) attributes.fail("shape", "is missing or empty, so it is not known how many axes there are");
  std::ranges::replace(shape, 0, kOpenSize);
  return shape;
}

auto fill(double value, Interface interface = Interface::kOld) {
  return [=](MxnetLowering& lowering) {
    FillAttributes fill{.value = value};
    fill.shape = shape_of(lowering.attributes, interface);
    fill.dtype = lowering.attributes.dtype("dtype", DType::kFloat32);
    lowering.attributes.ignore({"ctx"});
    return lowering.add(ops::kFill, fill, {});
  };
}

/// The type is a number here; -1 if the readers of the result decide.
Values zeros_without_dtype(MxnetLowering& lowering) {
  const std::int64_t flag = lowering.attributes.integer("dtype", -1);
  const auto dtype = dtype_of_flag(flag);
  if (flag != -1 && !dtype) lowering.attributes.fail("dtype", "is no type");
  FillAttributes fill{.shape = shape_of(lowering.attributes, Interface::kOld), .dtype = dtype.value_or(DType::kFloat32)};
  lowering.attributes.ignore({"ctx"});
  return lowering.add(ops::kFill, fill, {});
}

auto full(Interface interface) {
  return [=](MxnetLowering& lowering) { return fill(lowering.attributes.number("value"), interface)(lowering); };
}

Values fill_like(MxnetLowering& lowering, double value, std::optional<DType> dtype) {
  FillAttributes fill{.value = value, .shape_of_input = true};
  fill.dtype = dtype;
  const ValueId data = lowering.inputs[0];
  // The type is that of the input itself: a cast before it may be left out only if the type is given.
  return lowering.add(ops::kFill, fill, {dtype ? shape_source(lowering.graph, data) : data});
}

auto zeros_or_ones_like(double value) {
  return [=](MxnetLowering& lowering) {
    AttributeReader& attributes = lowering.attributes;
    attributes.ignore({"ctx"});
    if (!attributes.has("dtype")) {
      attributes.ignore({"dtype"});
      return fill_like(lowering, value, std::nullopt);
    }
    return fill_like(lowering, value, attributes.dtype("dtype"));
  };
}

Values full_like(MxnetLowering& lowering) {
  const double value = lowering.attributes.number("fill_value");
  return zeros_or_ones_like(value)(lowering);
}

/// Types for which MXNet makes whole numbers of start and step: those without a sign, for which it takes its half types, too.
constexpr TypeSet kWhole = Types<Half, BFloat16, std::uint8_t, bool>();

/// How many numbers lie between start and stop. Reports what is too many, and what is none.
std::int64_t count_of(AttributeReader& attributes, double start, double stop, double step, std::int64_t repeat,
                      Interface interface) {
  const double numbers = std::ceil((stop - start) / step);
  if (step == 0)
    attributes.fail("step", "is 0");
  else if (!(numbers * static_cast<double>(repeat) <= static_cast<double>(kMaxElements)))
    attributes.fail_node(StatusCode::kInvalidArgument,
                         format("start {}, stop {} and step {} make too many numbers", start, stop, step));
  else if (numbers >= 1)
    return static_cast<std::int64_t>(numbers) * repeat;
  else if (interface == Interface::kOld)
    attributes.fail_node(StatusCode::kInvalidArgument,
                         format("start {}, stop {} and step {} make no numbers", start, stop, step));
  return 0;
}

auto arange(Interface interface) {
  return [=](MxnetLowering& lowering) {
    AttributeReader& attributes = lowering.attributes;
    const bool is_open = attributes.flag("infer_range", false) && !attributes.has("stop");
    RangeAttributes range;
    range.start = attributes.number("start");
    double stop = attributes.has("stop") ? attributes.number("stop") : range.start;
    if (!attributes.has("stop") && !is_open) range.start = 0;
    range.step = attributes.number("step", 1);
    range.repeat = attributes.integer("repeat", 1, 1);
    range.count = is_open ? kOpenSize : count_of(attributes, range.start, stop, range.step, range.repeat, interface);
    const DType dtype = attributes.dtype("dtype", DType::kFloat32);
    if (kWhole.holds(dtype)) {
      range.start = std::trunc(range.start);
      range.step = std::trunc(range.step);
    }
    range.dtype = dtype;
    attributes.ignore({"ctx", "stop"});
    return lowering.add(ops::kRange, range, {});
  };
}

Values arange_like(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  RangeAttributes range;
  range.start = attributes.number("start", 0);
  range.step = attributes.number("step", 1);
  range.repeat = attributes.integer("repeat", 1, 1);
  range.axis = attributes.optional_integer("axis", std::nullopt);
  attributes.ignore({"ctx"});
  return lowering.add(ops::kRange, range);
}

Values linspace(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  RangeAttributes range{.in_float64 = true};
  range.start = attributes.number("start");
  const double stop = attributes.number("stop");
  range.count = attributes.integer("num", {}, 0);
  const std::int64_t steps = attributes.flag("endpoint", true) ? range.count - 1 : range.count;
  range.step = steps > 0 ? (stop - range.start) / static_cast<double>(steps) : 0;
  range.dtype = attributes.dtype("dtype", DType::kFloat32);
  attributes.ignore({"ctx"});
  return lowering.add(ops::kRange, range, {});
}

Values eye(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  EyeAttributes eye;
  eye.rows = attributes.integer("N", {}, 0);
  const std::int64_t columns = attributes.optional_integer("M", 0).value_or(0);
  if (columns < 0) attributes.fail("M", "is negative");
  eye.columns = columns > 0 ? columns : eye.rows;
  eye.offset = attributes.integer("k", 0);
  eye.dtype = attributes.dtype("dtype", DType::kFloat32);
  attributes.ignore({"ctx"});
  return lowering.add(ops::kEye, eye, {});
}

Values identity_matrix(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const Dims shape = attributes.tuple("shape", {}, 0);
  if (shape.size() != 2 || shape[0] != shape[1]) attributes.fail("shape", "is not that of a square matrix");
  EyeAttributes eye;
  if (!shape.empty()) eye.rows = eye.columns = shape[0];
  eye.dtype = attributes.dtype("dtype", DType::kFloat32);
  attributes.ignore({"ctx"});
  return lowering.add(ops::kEye, eye, {});
}

Values index_array(MxnetLowering& lowering) {
  return lowering.add(ops::kPositions, PositionsAttributes{lowering.attributes.tuple("axes", Dims{})},
                      {shape_source(lowering.graph, lowering.inputs[0])});
}

auto shape_array(bool counts) {
  return [=](MxnetLowering& lowering) {
    return lowering.add(ops::kShapeOf, ShapeOfAttributes{counts}, {shape_source(lowering.graph, lowering.inputs[0])});
  };
}

}  // namespace

std::vector<MxnetOperator> creation_operators() {
  std::vector<MxnetOperator> all;
  all.push_back({"_zeros", 0, 0, -1, fill(0)});
  all.push_back({"_zeros_without_dtype", 0, 0, -1, zeros_without_dtype});
  all.push_back({"_ones", 0, 0, -1, fill(1)});
  all.push_back({"_full", 0, 0, -1, full(Interface::kOld)});
  all.push_back({"_npi_zeros", 0, 0, -1, fill(0, Interface::kNumpy)});
  all.push_back({"_npi_ones", 0, 0, -1, fill(1, Interface::kNumpy)});
  all.push_back({"_npi_full", 0, 0, -1, full(Interface::kNumpy)});
  add_aliases(all, {"", 1, 1, -1, zeros_or_ones_like(0)}, {"zeros_like", "_np_zeros_like", "_sparse_zeros_like"});
  add_aliases(all, {"", 1, 1, -1, zeros_or_ones_like(1)}, {"ones_like", "_np_ones_like"});
  all.push_back({"_npi_full_like", 1, 1, -1, full_like});
  all.push_back({"_arange", 0, 0, -1, arange(Interface::kOld)});
  all.push_back({"_npi_arange", 0, 0, -1, arange(Interface::kNumpy)});
  add_aliases(all, {"", 1, 1, -1, arange_like}, {"_contrib_arange_like", "_npx_arange_like"});
  add_aliases(all, {"", 0, 0, -1, linspace}, {"_linspace", "_npi_linspace"});
  add_aliases(all, {"", 0, 0, -1, eye}, {"_eye", "_npi_eye"});
  all.push_back({"_npi_identity", 0, 0, -1, identity_matrix});
  all.push_back({"_contrib_index_array", 1, 1, -1, index_array});
  add_aliases(all, {"", 1, 1, -1, shape_array(false)}, {"shape_array", "_npx_shape_array"});
  all.push_back({"size_array", 1, 1, -1, shape_array(true)});
  return all;
}

}  // namespace shoal::worker
