#include "shoal/classifier.hpp"

#include <algorithm>
#include <utility>

#include "client/tasks/moved_from.hpp"
#include "client/tasks/scores.hpp"
#include "client/tasks/strings.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {

struct Classifier::Impl {
  Predictor predictor;
  std::vector<std::string> own_labels;  ///< of the options
  std::size_t top_k = 0;
  std::size_t output = 0;  ///< its place

  const std::vector<std::string>& labels() const { return own_labels.empty() ? predictor.info().labels : own_labels; }

  /// Classes per item; -1 if they are not known yet. Errors: the output is no list of them.
  Result<std::int64_t> count_classes(const DataDesc& described) const {
    const Shape& shape = described.shape;
    std::int64_t classes = 1;
    bool is_list = shape.rank() > 0, is_open = false;
    for (int axis = shape.rank() > 1 ? 1 : 0; axis < shape.rank(); ++axis) {  // behind the batch
      is_open = is_open || shape[axis] < 0;
      if (shape[axis] < 0 || shape[axis] == 1) continue;
      is_list = is_list && classes == 1 && shape[axis] > 0;
      classes = shape[axis];
    }
    if (is_list) return is_open ? -1 : classes;
    return failed_precondition("model '{}': output '{}' is {}, not a list of classes (batch x classes)", predictor.info().name,
                               described.name, descriptor_text(described));
  }

  Status check_labels(const DataDesc& described, std::int64_t classes) const {
    // With one label too few, classes would get the names of others.
    if (labels().empty() || static_cast<std::int64_t>(labels().size()) == classes) return {};
    return failed_precondition("model '{}': output '{}' has {} classes, but {} {} {}", predictor.info().name, described.name,
                               classes, own_labels.empty() ? "its labels file has" : "the options have", labels().size(),
                               own_labels.empty() ? "lines" : "labels");
  }
};

Classifier::Classifier(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Classifier> Classifier::create(Client client, std::string model, const ClassifierOptions& given) {
  const ClassifierOptions options = whole(given);
  SHOAL_ASSIGN_OR_RETURN(Predictor predictor,
                         Predictor::create(std::move(client), std::move(model),
                                           {.inputs = options.inputs, .outputs = options.outputs, .version = options.version}));
  auto impl = std::make_shared<Impl>(Impl{std::move(predictor), tasks::strings_of(options.labels), options.top_k});
  const std::span<const DataDesc> outputs = impl->predictor.outputs();
  const std::string_view name = options.output;
  const auto found = name.empty() ? outputs.begin() : std::ranges::find(outputs, name, &DataDesc::name);
  if (found == outputs.end())
    return not_found("model '{}' has no output '{}' (it has: {})", impl->predictor.info().name, name, names_of(outputs));
  impl->output = static_cast<std::size_t>(found - outputs.begin());
  if (found->shape.is_known()) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t classes, impl->count_classes(*found));
    if (classes > 0) SHOAL_RETURN_IF_ERROR(impl->check_labels(*found, classes));
  }
  return Classifier(std::move(impl));
}

const Predictor& Classifier::predictor() const& {
  static const Predictor none;
  return impl_ ? impl_->predictor : none;
}

Result<std::vector<Classes>> Classifier::read(const Tensors& outputs) const {
  if (!impl_) return tasks::moved_from("Classifier");
  if (impl_->output >= outputs.size())
    return failed_precondition("model '{}' has answered without an output", impl_->predictor.info().name);
  const auto& [name, tensor] = outputs[impl_->output];
  const DataDesc described{name, tensor.dtype(), tensor.shape()};
  SHOAL_ASSIGN_OR_RETURN(const std::int64_t count, impl_->count_classes(described));
  SHOAL_RETURN_IF_ERROR(impl_->check_labels(described, count));
  auto scores = Numbers(tensor.view()).as<float>();
  if (!scores.ok()) return scores.status().with_context(format("model '{}': output '{}'", impl_->predictor.info().name, name));
  const auto classes = static_cast<std::size_t>(count);
  std::vector<Classes> all;
  for (std::size_t first = 0; first < scores->size(); first += classes) {
    const std::vector<float> probabilities = tasks::to_probabilities(std::span(*scores).subspan(first, classes));
    all.push_back(tasks::top_classes(probabilities, impl_->labels(), impl_->top_k));
  }
  return all;
}

namespace {

template <typename Input>
Result<std::vector<Classes>> classify_with(const Classifier& classifier, const Predictor& predictor, Input input,
                                           const SubmitOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const Tensors outputs, predictor.predict(std::move(input), options));
  return classifier.read(outputs);
}

}  // namespace

Result<std::vector<Classes>> Classifier::classify(Tensors inputs, const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("Classifier");
  return classify_with(*this, impl_->predictor, std::move(inputs), options);
}

Result<std::vector<Classes>> Classifier::classify(Tensor input, const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("Classifier");
  return classify_with(*this, impl_->predictor, std::move(input), options);
}

Result<std::vector<Classes>> Classifier::classify(Numbers input, const SubmitOptions& options) const {
  if (!impl_) return tasks::moved_from("Classifier");
  return classify_with(*this, impl_->predictor, input, options);
}

}  // namespace shoal
