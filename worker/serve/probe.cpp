#include "worker/serve/probe.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "shm/base/errors.hpp"
#include "shm/tensor/floats.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::worker {
namespace {

/// The elements of a tensor, whose data may have any address.
class Elements {
 public:
  explicit Elements(const TensorView& view) : view_(view) {}
  double operator[](std::size_t index) const;

 private:
  template <typename T>
  double at(std::size_t index) const {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(view_.data) + index * sizeof value, sizeof value);
    return static_cast<double>(value);
  }
  const TensorView& view_;
};

double Elements::operator[](std::size_t index) const {
  switch (view_.dtype) {
    case DType::kFloat16:
      return at<Half>(index);
    case DType::kBFloat16:
      return at<BFloat16>(index);
    case DType::kFloat32:
      return at<float>(index);
    case DType::kFloat64:
      return at<double>(index);
    case DType::kUInt8:
    case DType::kBool:
      return at<std::uint8_t>(index);
    case DType::kInt8:
      return at<std::int8_t>(index);
    case DType::kInt16:
      return at<std::int16_t>(index);
    case DType::kUInt16:
      return at<std::uint16_t>(index);
    case DType::kInt32:
      return at<std::int32_t>(index);
    case DType::kUInt32:
      return at<std::uint32_t>(index);
    case DType::kInt64:
      return at<std::int64_t>(index);
    case DType::kUInt64:
      return at<std::uint64_t>(index);
    case DType::kInvalid:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Not a number is right where it is wanted, and nowhere else.
double distance(double got, double wanted) {
  if (got == wanted || (std::isnan(got) && std::isnan(wanted))) return 0;
  const double apart = std::abs(got - wanted);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

Status compare(const NamedTensor& expected, const TensorView& got, double tolerance) {
  const Tensor& tensor = expected.tensor;
  if (got.dtype != tensor.dtype() || got.shape != tensor.shape()) {
    return failed_precondition("golden output '{}' is {} {}, the model answered {} {}", expected.name, dtype_name(tensor.dtype()),
                               tensor.shape().to_string(), dtype_name(got.dtype), got.shape.to_string());
  }
  const TensorView expected_view = tensor.view();
  const Elements wanted(expected_view), values(got);
  double scale = 1, worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(got.element_count()); ++i) {
    if (std::isfinite(wanted[i])) scale = std::max(scale, std::abs(wanted[i]));
    const double apart = distance(values[i], wanted[i]);
    if (apart <= worst) continue;
    worst = apart;
    worst_at = i;
  }
  if (worst <= tolerance * scale) return {};
  return failed_precondition(
      "golden output '{}': element {} is {}, should be {}; at most {} apart are allowed (golden_tolerance {} of {})",
      expected.name, worst_at, values[worst_at], wanted[worst_at], tolerance * scale, tolerance, scale);
}

}  // namespace

ProbeRequest::ProbeRequest(const GoldenCase& golden) {
  wire::Request request;
  request.header = {
      .kind = static_cast<std::uint16_t>(wire::Kind::kRequest), .request_id = wire::kProbeRequest, .attempt = 1, .batch_size = 1};
  for (const Tensor& input : golden.inputs) {
    request.inputs.push_back(wire::to_wire(input.view()));
    request.inputs.back().location = static_cast<std::uint8_t>(wire::Location::kFrame);
  }
  wire::encode_request(request, head_);
  frames_.push_back(head_);
  for (const Tensor& input : golden.inputs) frames_.push_back(input.view().bytes());
}

Status judge_probe(const ServedModelView& served, Frames reply) {
  if (reply.empty()) return internal_error("model '{}': the probe was not answered", served.name);
  wire::Reply decoded;
  SHOAL_RETURN_IF_ERROR(wire::decode_reply(reply[0], decoded));
  if (const auto code = static_cast<StatusCode>(decoded.header.status); code != StatusCode::kOk) {
    const auto text = reply.size() > 1 ? reply[1] : std::span<const std::byte>();
    return Status(code, std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  }
  const auto& names = served.model.output_names();
  for (const NamedTensor& expected : served.golden.outputs) {
    const auto at = static_cast<std::size_t>(std::ranges::find(names, expected.name) - names.begin());
    if (at >= decoded.outputs.size() || at + 2 >= reply.size())
      return internal_error("model '{}': the probe's answer has no output '{}'", served.name, expected.name);
    const TensorView got{static_cast<DType>(decoded.outputs[at].dtype), wire::shape_of(decoded.outputs[at]),
                         const_cast<std::byte*>(reply[at + 2].data())};
    if (const Status same = compare(expected, got, served.golden.tolerance); !same.ok())
      return same.with_context(format("model '{}'", served.name));
  }
  return {};
}

}  // namespace shoal::worker
