#include "worker/serve/probe.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "shm/base/errors.hpp"
#include "shm/wire/status_page.hpp"
#include "worker/graph/floats.hpp"

namespace shoal::worker {
namespace {

template <typename T>
std::vector<double> as_doubles(const TensorView& view) {
  std::vector<T> values(static_cast<std::size_t>(view.element_count()));
  if (!values.empty()) std::memcpy(values.data(), view.data, view.size_bytes());  // at any address
  return {values.begin(), values.end()};
}

std::vector<double> to_doubles(const TensorView& view) {
  switch (view.dtype) {
    case DType::kFloat16:
      return as_doubles<Half>(view);
    case DType::kBFloat16:
      return as_doubles<BFloat16>(view);
    case DType::kFloat32:
      return as_doubles<float>(view);
    case DType::kFloat64:
      return as_doubles<double>(view);
    case DType::kUInt8:
    case DType::kBool:
      return as_doubles<std::uint8_t>(view);
    case DType::kInt8:
      return as_doubles<std::int8_t>(view);
    case DType::kInt16:
      return as_doubles<std::int16_t>(view);
    case DType::kUInt16:
      return as_doubles<std::uint16_t>(view);
    case DType::kInt32:
      return as_doubles<std::int32_t>(view);
    case DType::kUInt32:
      return as_doubles<std::uint32_t>(view);
    case DType::kInt64:
      return as_doubles<std::int64_t>(view);
    case DType::kUInt64:
      return as_doubles<std::uint64_t>(view);
    case DType::kInvalid:
      break;
  }
  return {};
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
  const std::vector<double> wanted = to_doubles(tensor.view()), values = to_doubles(got);
  double scale = 1, worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
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
