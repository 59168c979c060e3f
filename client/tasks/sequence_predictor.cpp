#include "shoal/sequence_predictor.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "client/tasks/moved_from.hpp"
#include "client/tasks/padding.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"
#include "shoal/pool.hpp"

namespace shoal {
namespace {

const NamedTensor* find(const Tensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

struct SequencePredictor::Impl {
  Predictor predictor;
  SequenceOptions options;
  bool has_one_length = false;     ///< the model takes no other
  std::optional<Session> session;  ///< of a Pool
  Tensors states;                  ///< without a session: the next call's inputs

  const ModelInfo& info() const { return predictor.info(); }
  std::string where() const { return format("model '{}'", info().name); }
  bool is_state(std::string_view input) const { return find_state(info().state, input) != nullptr; }

  /// Whether an input is a sequence: it has the time axis, which is open, or the only length.
  bool has_time(const DataDesc& input) const {
    if (is_state(input.name) || !input.shape.is_known() || input.shape.rank() <= options.time_axis) return false;
    return input.shape[options.time_axis] < 0 || has_one_length;
  }

  void choose_axis();
  Status choose_buckets();
  Result<std::int64_t> length_of(const Tensors& inputs) const;
  std::int64_t batch_of(const Tensors& inputs) const;
  Status pad(Tensors& inputs, std::int64_t length) const;
  Result<Tensor> cut(const Tensor& output, const DataDesc& described, std::int64_t padded, std::int64_t length,
                     std::int64_t batch) const;
  Result<Tensors> run(Tensors inputs, const SubmitOptions& given);
};

void SequencePredictor::Impl::choose_axis() {
  const auto inputs = predictor.inputs();
  for (const DataDesc& input : inputs) {
    if (options.time_axis < 0 && !is_state(input.name)) options.time_axis = axis_of(input, 'T');
  }
  if (options.time_axis < 0) options.time_axis = 1;
  has_one_length = std::ranges::none_of(inputs, [this](const DataDesc& input) { return has_time(input); });
}

Status SequencePredictor::Impl::choose_buckets() {
  List<std::int64_t>& buckets = options.buckets;
  if (!info().state.empty()) {
    if (buckets.empty()) return {};
    return invalid_argument("{} has states, which would go on over the padding of buckets: leave them out", where());
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] < 1 || (i > 0 && buckets[i] <= buckets[i - 1]))
      return invalid_argument("{}: bucket {} is {}: buckets must be at least 1, and ascend", where(), i, buckets[i]);
  }
  bool is_sequence = buckets.empty();
  std::string described;
  for (const DataDesc& input : predictor.inputs()) {
    described += format("{}'{}' {}", described.empty() ? "" : ", ", input.name, descriptor_text(input));
    if (!has_time(input)) continue;
    is_sequence = true;
    const auto axis = static_cast<std::size_t>(options.time_axis);
    const std::int64_t size = input.shape[options.time_axis];
    if (has_one_length && buckets.empty()) buckets = {size};
    for (const std::int64_t bucket : buckets) {
      if (size >= 0 ? size == bucket : input.ranges.empty() || input.ranges[axis].contains(bucket)) continue;
      return invalid_argument("{}: input '{}' is {}, which has no room for a bucket of {}: dimension {} is the time", where(),
                              input.name, descriptor_text(input), bucket, options.time_axis);
    }
  }
  if (is_sequence) return {};
  return failed_precondition(
      "{}: no input has dimension {}, the time, for buckets ({}): say which it is by `time_axis`, or by a layout with T", where(),
      options.time_axis, described);
}

Result<std::int64_t> SequencePredictor::Impl::length_of(const Tensors& inputs) const {
  const NamedTensor* first = nullptr;
  for (const DataDesc& input : predictor.inputs()) {
    const NamedTensor* const given = has_time(input) ? find(inputs, input.name) : nullptr;
    if (!given) continue;  // the client says that it is missing
    const Shape& shape = given->tensor.shape();
    if (!given->tensor.view().data && given->tensor.size_bytes() > 0)
      return invalid_argument("{}: input '{}' has no bytes", where(), input.name);
    if (shape.rank() != input.shape.rank())
      return invalid_argument("{}: input '{}' has shape {} (wants {})", where(), input.name, shape.to_string(),
                              shape_text(input));
    if (first && first->tensor.shape()[options.time_axis] != shape[options.time_axis]) {
      return invalid_argument("{}: input '{}' has {} steps, and input '{}' {}: a sequence has one length", where(), first->name,
                              first->tensor.shape()[options.time_axis], input.name, shape[options.time_axis]);
    }
    if (!first) first = given;
  }
  return first ? first->tensor.shape()[options.time_axis] : 0;
}

/// The batch of the first sequence: N of its layout, else the first dimension that is not the time.
std::int64_t SequencePredictor::Impl::batch_of(const Tensors& inputs) const {
  for (const DataDesc& input : predictor.inputs()) {
    const NamedTensor* const given = has_time(input) ? find(inputs, input.name) : nullptr;
    if (!given) continue;
    const int named = axis_of(input, 'N'), axis = named >= 0 ? named : options.time_axis == 0 ? 1 : 0;
    return axis < given->tensor.shape().rank() && axis != options.time_axis ? given->tensor.shape()[axis] : 1;
  }
  return 1;
}

Status SequencePredictor::Impl::pad(Tensors& inputs, std::int64_t length) const {
  const std::array<double, 1> padding{options.padding};
  for (auto& [name, tensor] : inputs) {
    const auto input = std::ranges::find(predictor.inputs(), name, &DataDesc::name);
    if (input == predictor.inputs().end() || !has_time(*input)) continue;
    Shape shape = tensor.shape();
    shape[options.time_axis] = length;
    SHOAL_ASSIGN_OR_RETURN(Tensor element, Tensor::create(tensor.dtype(), Shape{1}));
    SHOAL_RETURN_IF_ERROR(Numbers(padding).copy_to(element.view(), format("{}: the padding of '{}'", where(), name)));
    SHOAL_ASSIGN_OR_RETURN(Tensor padded, predictor.allocate(name, shape));
    if (padded.dtype() != tensor.dtype())
      return invalid_argument("{}: input '{}' is {} (wants {})", where(), name, dtype_name(tensor.dtype()),
                              dtype_name(padded.dtype()));
    tasks::pad(tensor.view(), tasks::steps_of(tensor.view(), options.time_axis), padded.view(),
               tasks::steps_of(padded.view(), options.time_axis), element.view().bytes());
    tensor = std::move(padded);
  }
  return {};
}

Result<Tensor> SequencePredictor::Impl::cut(const Tensor& output, const DataDesc& described, std::int64_t padded,
                                            std::int64_t length, std::int64_t batch) const {
  Shape shape = output.shape();
  const auto follows = [&](int axis) {  // the length of the input
    return has_one_length || described.shape.rank() != shape.rank() || described.shape[axis] < 0;
  };
  const auto kept = static_cast<std::size_t>(length);
  if (const int axis = options.time_axis; axis < shape.rank() && shape[axis] == padded && follows(axis)) {
    shape[axis] = length;
    return tasks::cut(output, tasks::steps_of(output.view(), axis), kept, shape);
  }
  // Rows of time x batch, as the layers of language models have them.
  if (shape.rank() < 1 || batch < 1 || shape[0] != padded * batch || !follows(0)) return output;
  tasks::Steps steps = tasks::steps_of(output.view(), 0);
  const auto rows = static_cast<std::size_t>(batch);
  steps.length = static_cast<std::size_t>(padded);
  if (options.time_axis == 0)
    steps.step_bytes *= rows;
  else
    steps.outer = rows;
  shape[0] = length * batch;
  return tasks::cut(output, steps, kept, shape);
}

Result<Tensors> SequencePredictor::Impl::run(Tensors inputs, const SubmitOptions& given) {
  SubmitOptions submit = whole(given);
  if (submit.version == 0) submit.version = options.version;
  if (session) return session->predict(std::move(inputs), submit);
  for (const NamedTensor& state : states) {
    if (!find(inputs, state.name)) inputs.push_back(state);
  }
  SHOAL_ASSIGN_OR_RETURN(Tensors outputs, predictor.predict(std::move(inputs), submit));
  states.clear();
  for (const StatePair& pair : info().state) {
    if (const NamedTensor* const output = find(outputs, pair.out)) states.push_back({pair.in, output->tensor});
  }
  return outputs;
}

SequencePredictor::SequencePredictor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SequencePredictor::SequencePredictor(SequencePredictor&&) noexcept = default;
SequencePredictor& SequencePredictor::operator=(SequencePredictor&&) noexcept = default;
SequencePredictor::~SequencePredictor() = default;

Result<SequencePredictor> SequencePredictor::create(Client client, std::string model, const SequenceOptions& given) {
  SequenceOptions options = whole(given);
  SHOAL_ASSIGN_OR_RETURN(Predictor predictor,
                         Predictor::create(std::move(client), std::move(model),
                                           {.inputs = options.inputs, .outputs = options.outputs, .version = options.version}));
  auto impl = std::make_unique<Impl>();
  impl->predictor = std::move(predictor);
  impl->options = std::move(options);
  impl->choose_axis();
  SHOAL_RETURN_IF_ERROR(impl->choose_buckets());
  return SequencePredictor(std::move(impl));
}

Result<SequencePredictor> SequencePredictor::create(Pool& pool, std::string model, const SequenceOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(SequencePredictor made, create(pool.client(), model, options));
  if (!made.impl_->info().state.empty()) {
    SHOAL_ASSIGN_OR_RETURN(made.impl_->session, pool.open_session(model));
  }
  return made;
}

Result<Tensors> SequencePredictor::predict(Tensors inputs, const SubmitOptions& options) {
  if (!impl_) return tasks::moved_from("SequencePredictor");
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t length, impl_->length_of(inputs));
  const auto& buckets = impl_->options.buckets;
  const auto bucket = std::ranges::lower_bound(buckets, length);
  if (bucket == buckets.end() || *bucket == length) return impl_->run(std::move(inputs), options);
  const std::int64_t padded = *bucket, batch = impl_->batch_of(inputs);
  SHOAL_RETURN_IF_ERROR(impl_->pad(inputs, padded));
  SHOAL_ASSIGN_OR_RETURN(Tensors outputs, impl_->run(std::move(inputs), options));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto described = impl_->predictor.outputs();
    const DataDesc nothing;
    SHOAL_ASSIGN_OR_RETURN(outputs[i].tensor,
                           impl_->cut(outputs[i].tensor, i < described.size() ? described[i] : nothing, padded, length, batch));
  }
  return outputs;
}

Result<Tensors> SequencePredictor::predict(Tensor input, const SubmitOptions& options) {
  if (!impl_) return tasks::moved_from("SequencePredictor");
  SHOAL_ASSIGN_OR_RETURN(const std::string_view name, impl_->predictor.only_input());
  Tensors inputs;
  inputs.push_back({std::string(name), std::move(input)});
  return predict(std::move(inputs), options);
}

Result<Tensors> SequencePredictor::predict(Numbers input, const SubmitOptions& options) {
  if (!impl_) return tasks::moved_from("SequencePredictor");
  SHOAL_ASSIGN_OR_RETURN(const std::string_view name, impl_->predictor.only_input());
  SHOAL_ASSIGN_OR_RETURN(Tensor made, impl_->predictor.tensor(name, input));
  return predict(std::move(made), options);
}

Status SequencePredictor::reset() {
  if (!impl_) return tasks::moved_from("SequencePredictor");
  impl_->states.clear();
  return impl_->session ? impl_->session->reset() : Status();
}

const Predictor& SequencePredictor::predictor() const& {
  static const Predictor none;
  return impl_ ? impl_->predictor : none;
}

}  // namespace shoal
