#include "client/predict/src/predictor.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "client/predict/src/c_arguments.hpp"
#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal::predict {
namespace {

bool holds(const std::vector<std::string>& names, std::string_view name) { return std::ranges::count(names, name) > 0; }

void copy_bytes(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // no bytes may have no address
}

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::make(std::shared_ptr<SharedModel> model, std::vector<TensorSpec> inputs,
                                                   Ignored ignored) {
  SHOAL_ASSIGN_OR_RETURN(auto bound, model->bind(inputs));
  std::unique_ptr<Predictor> predictor(new Predictor(std::move(model), std::move(bound), std::move(inputs), std::move(ignored)));
  SHOAL_RETURN_IF_ERROR(predictor->make_inputs());
  SHOAL_RETURN_IF_ERROR(predictor->keep_shapes());
  return predictor;
}

Result<std::unique_ptr<Predictor>> Predictor::reshape(std::span<const TensorSpec> shapes) const {
  std::vector<TensorSpec> specs = specs_;
  for (const TensorSpec& given : shapes) {
    const auto spec = std::ranges::find(specs, given.name, &TensorSpec::name);
    if (spec != specs.end()) {
      spec->shape = given.shape;
    } else if (!holds(ignored_.labels, given.name) && !holds(ignored_.others, given.name)) {
      return invalid_argument("the predictor has no input {}; it has {}", in_quotes(given.name), names_of(specs_));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(auto reshaped, make(model_, std::move(specs), ignored_));
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TensorView& from = inputs_[i].tensor.view();
    if (TensorView& to = reshaped->inputs_[i].tensor.view(); to.shape == from.shape)
      copy_bytes(from.data, to.data, from.size_bytes());
  }
  return reshaped;
}

Status Predictor::make_inputs() {
  for (const TensorSpec& spec : specs_) {
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, model_->make_input(spec.dtype, spec.shape));
    std::ranges::fill(tensor.view().bytes(), std::byte{0});
    inputs_.push_back({spec.name, std::move(tensor)});
  }
  return {};
}

// Programs ask for shapes before they run, and keep the pointers.
Status Predictor::keep_shapes() {
  const std::vector<TensorSpec>& specs = bound_->outputs();
  shapes_.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Shape& shape = outputs_ ? (*outputs_)[i].tensor.shape() : specs[i].shape;
    shapes_[i].clear();
    for (const std::int64_t size : shape) {
      if (size > std::numeric_limits<std::uint32_t>::max())
        return invalid_argument("output {} has shape {}; 32 bits are too few for it", in_quotes(specs[i].name),
                                shape.to_string());
      shapes_[i].push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(size, 0)));
    }
  }
  return {};
}

Status Predictor::set_input(std::string_view name, const void* data, std::size_t count) {
  const auto input = std::ranges::find(inputs_, name, &NamedTensor::name);
  if (input == inputs_.end()) {
    if (holds(ignored_.labels, name)) return {};
    return invalid_argument("the predictor has no input {}; it has {}", in_quotes(name), names_of(specs_));
  }
  TensorView& view = input->tensor.view();
  if (const auto wanted = static_cast<std::size_t>(view.element_count()); count != wanted) {
    return invalid_argument("input {} has {} elements (shape {}), and {} are given", in_quotes(name), wanted,
                            view.shape.to_string(), count);
  }
  copy_bytes(data, view.data, view.size_bytes());
  return {};
}

Status Predictor::run() {
  outputs_ = nullptr;
  SHOAL_ASSIGN_OR_RETURN(const Tensors* const outputs, bound_->run(inputs_));
  outputs_ = outputs;
  const Status kept = keep_shapes();
  if (!kept.ok()) outputs_ = nullptr;
  return kept;
}

Status Predictor::check_index(std::size_t index) const {
  const std::size_t count = bound_->outputs().size();
  if (index < count) return {};
  return invalid_argument("there is no output {}: the predictor has {}, and 0 is the first", index, count);
}

Result<std::span<std::uint32_t>> Predictor::output_shape(std::size_t index) {
  SHOAL_RETURN_IF_ERROR(check_index(index));
  const TensorSpec& spec = bound_->outputs()[index];
  if (outputs_ == nullptr && spec.shape.element_count() < 0)
    return failed_precondition("the shape of output {} depends on data: ask for it after MXPredForward()", in_quotes(spec.name));
  return std::span(shapes_[index]);
}

Result<DType> Predictor::output_type(std::size_t index) const {
  SHOAL_RETURN_IF_ERROR(check_index(index));
  return bound_->outputs()[index].dtype;
}

Status Predictor::copy_output(std::size_t index, void* data, std::size_t count) const {
  SHOAL_RETURN_IF_ERROR(check_index(index));
  const std::string& name = bound_->outputs()[index].name;
  if (outputs_ == nullptr)
    return failed_precondition("output {} has no values: MXPredForward() was not called, or failed", in_quotes(name));
  const TensorView& view = (*outputs_)[index].tensor.view();
  if (const auto has = static_cast<std::size_t>(view.element_count()); count != has) {
    return invalid_argument("output {} has {} elements (shape {}), and there is room for {}", in_quotes(name), has,
                            view.shape.to_string(), count);
  }
  copy_bytes(view.data, data, view.size_bytes());
  return {};
}

}  // namespace shoal::predict
