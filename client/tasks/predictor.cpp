#include "shoal/predictor.hpp"

#include <algorithm>
#include <utility>

#include "client/tasks/in_order.hpp"
#include "client/tasks/moved_from.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/completion/request_state.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"

namespace shoal {

struct Predictor::Impl {
  Client client;
  std::string model;
  std::uint64_t version = 0;
  ModelInfo info;
  std::vector<DataDesc> inputs, outputs;
  bool is_narrowed = false;  ///< some inputs may have sizes that the model takes and the program does not

  std::string where() const { return format("model '{}'", info.name); }

  Result<const DataDesc*> find(std::string_view input) const {
    const auto found = std::ranges::find(inputs, input, &DataDesc::name);
    if (found == inputs.end()) return check_input_name(info.name, inputs, {}, input);
    return &*found;
  }

  Result<Tensor> allocate(const DataDesc& descriptor, const Shape& shape) const {
    SHOAL_RETURN_IF_ERROR(check_matches(descriptor, descriptor.dtype, shape).with_context(where()));
    if (auto loan = client.loan(descriptor.dtype, shape); loan.ok()) return loan;
    return Tensor::create(descriptor.dtype, shape);
  }

  /// The shape that so many numbers have.
  Result<Shape> shape_of(const DataDesc& descriptor, std::size_t size) const {
    const auto count = static_cast<std::int64_t>(size);
    if (!descriptor.shape.is_known()) return Shape{count};
    Shape item = descriptor.shape;
    int open = -1, open_count = 0;
    for (int axis = 0; axis < item.rank(); ++axis) {
      if (item[axis] >= 0) continue;
      open = axis;
      item[axis] = 1;
      ++open_count;
    }
    if (open_count > 1) {
      return invalid_argument("{}: input '{}' is {}: with {} open dimensions, an array needs a shape", where(), descriptor.name,
                              descriptor_text(descriptor), open_count);
    }
    const std::int64_t item_size = item.element_count();
    if (open_count == 1 && item_size > 0 && count % item_size == 0) item[open] = count / item_size;
    if (item.element_count() == count) return item;
    return invalid_argument("{}: input '{}' is {}, which {} numbers do not fill: there must be {}{}", where(), descriptor.name,
                            descriptor_text(descriptor), size, open_count == 1 ? "a multiple of " : "", item_size);
  }

  Status check(const Tensors& given) const {
    if (!is_narrowed) return {};  // the client checks the rest
    for (const auto& [name, tensor] : given) {
      const auto descriptor = std::ranges::find(inputs, name, &DataDesc::name);
      if (descriptor == inputs.end()) continue;
      SHOAL_RETURN_IF_ERROR(check_matches(*descriptor, tensor.dtype(), tensor.shape()).with_context(where()));
    }
    return {};
  }
};

Predictor::Predictor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Predictor> Predictor::create(Client client, std::string model, const PredictorOptions& given) {
  const PredictorOptions options = whole(given);
  auto impl = std::make_shared<Impl>();
  impl->client = std::move(client);
  impl->version = options.version;
  SHOAL_ASSIGN_OR_RETURN(impl->info, impl->client.describe(model, options.version));
  impl->model = std::move(model);
  impl->is_narrowed = !options.inputs.empty();
  SHOAL_ASSIGN_OR_RETURN(impl->inputs, match_descriptors(impl->where(), "input", impl->info.inputs, options.inputs));
  SHOAL_ASSIGN_OR_RETURN(impl->outputs, match_descriptors(impl->where(), "output", impl->info.outputs, options.outputs));
  return Predictor(std::move(impl));
}

const ModelInfo& Predictor::info() const& {
  static const ModelInfo none;
  return impl_ ? impl_->info : none;
}

std::span<const DataDesc> Predictor::inputs() const& {
  if (!impl_) return {};
  return impl_->inputs;
}

std::span<const DataDesc> Predictor::outputs() const& {
  if (!impl_) return {};
  return impl_->outputs;
}

Prediction Predictor::submit(Tensors inputs, const SubmitOptions& given) const {
  if (Status status = impl_ ? impl_->check(inputs) : tasks::moved_from("Predictor"); !status.ok())
    return completion::failed(std::move(status));
  SubmitOptions options = whole(given);
  if (options.version == 0) options.version = impl_->version;
  return impl_->client.submit(impl_->model, std::move(inputs), options);
}

Result<Tensors> Predictor::predict(Tensors inputs, const SubmitOptions& options) const {
  return submit(std::move(inputs), options).get();
}

Result<Tensors> Predictor::predict(Tensor input, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(const std::string_view name, only_input());
  Tensors inputs;
  inputs.push_back({std::string(name), std::move(input)});
  return predict(std::move(inputs), options);
}

Result<Tensors> Predictor::predict(Numbers input, const SubmitOptions& options) const {
  SHOAL_ASSIGN_OR_RETURN(const std::string_view name, only_input());
  SHOAL_ASSIGN_OR_RETURN(Tensor made, tensor(name, input));
  return predict(std::move(made), options);
}

Result<Tensors> Predictor::predict(std::span<const NamedNumbers> inputs, const SubmitOptions& options) const {
  Tensors tensors;
  for (const auto& [name, numbers, shape] : inputs) {
    SHOAL_ASSIGN_OR_RETURN(Tensor made, tensor(name, numbers, shape));
    tensors.push_back({std::string(name), std::move(made)});
  }
  return predict(std::move(tensors), options);
}

Result<std::vector<Tensors>> Predictor::predict_all(std::span<const Tensors> requests, const SubmitOptions& options) const {
  std::vector<Tensors> all;
  all.reserve(requests.size());
  SHOAL_RETURN_IF_ERROR(tasks::in_order(
      requests.size(), [&](std::size_t i) { return Result<Prediction>(submit(requests[i], options)); },
      [&](std::size_t, const Tensors& outputs) {
        all.push_back(outputs);
        return Status();
      }));
  return all;
}

Result<Tensor> Predictor::allocate(std::string_view input, const Shape& shape) const {
  if (!impl_) return tasks::moved_from("Predictor");
  SHOAL_ASSIGN_OR_RETURN(const DataDesc* const descriptor, impl_->find(input));
  return impl_->allocate(*descriptor, shape);
}

Result<Tensor> Predictor::tensor(std::string_view input, Numbers numbers, const Shape& shape) const {
  if (!impl_) return tasks::moved_from("Predictor");
  SHOAL_ASSIGN_OR_RETURN(const DataDesc* const descriptor, impl_->find(input));
  Shape whole = shape;
  if (!whole.is_known()) {
    SHOAL_ASSIGN_OR_RETURN(whole, impl_->shape_of(*descriptor, numbers.size()));
  }
  SHOAL_ASSIGN_OR_RETURN(Tensor made, impl_->allocate(*descriptor, whole));
  SHOAL_RETURN_IF_ERROR(numbers.copy_to(made.view(), format("{}: input '{}'", impl_->where(), input)));
  return made;
}

Result<std::string_view> Predictor::only_input() const {
  if (!impl_) return tasks::moved_from("Predictor");
  const DataDesc* only = nullptr;
  for (const DataDesc& input : impl_->inputs) {
    if (find_state(impl_->info.state, input.name)) continue;
    if (only) return invalid_argument("{} has several inputs: name them ({})", impl_->where(), names_of(impl_->inputs));
    only = &input;
  }
  if (!only) return invalid_argument("{} has no input besides its states ({})", impl_->where(), names_of(impl_->inputs));
  return std::string_view(only->name);
}

}  // namespace shoal
