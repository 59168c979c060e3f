#include "shoal/completion_queue.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/completion/request_state.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {

using completion::ReadyItem;
using completion::RequestState;

namespace {

Status no_request() { return failed_precondition("this Request has no model: it was default-constructed or moved from"); }

Status still_under_way(const RequestState& request) {
  return failed_precondition("model '{}': the request is under way: take it from its CompletionQueue first",
                             request.model.name());
}

const Outcome& never_submitted() {
  static const Outcome outcome{.outputs = Status(StatusCode::kFailedPrecondition, "this Request was never submitted")};
  return outcome;
}

const Outcome& unanswered() {
  static const Outcome outcome{.outputs = Status(StatusCode::kFailedPrecondition, "this Request is under way")};
  return outcome;
}

Status unknown_name(const Model& model, std::string_view what, std::string_view name, const std::vector<TensorSpec>& known) {
  return not_found("model '{}' has no {} '{}': it has {}", model.name(), what, name, names_of(known));
}

void set_tensor(Tensors& tensors, std::string_view name, Tensor tensor) {
  const auto place = std::ranges::find(tensors, name, &NamedTensor::name);
  if (place == tensors.end())
    tensors.push_back({std::string(name), std::move(tensor)});
  else
    place->tensor = std::move(tensor);
}

}  // namespace

// ---- Request ----

Request::Request(Model model) : state_(std::make_shared<RequestState>(std::move(model))) {}

Status Request::set(bool is_input, std::string_view name, Tensor tensor) {
  if (!state_) return no_request();
  if (is_under_way()) return still_under_way(*state_);
  const auto info = model().info();
  const std::vector<TensorSpec>& specs = is_input ? info->inputs : info->outputs;
  const auto spec = std::ranges::find(specs, name, &TensorSpec::name);
  const std::string_view what = is_input ? "input" : "output";
  if (spec == specs.end()) return unknown_name(model(), what, name, specs);
  if (Status matches = check_matches(*spec, tensor.dtype(), tensor.shape(), what); !matches.ok())
    return matches.with_context(format("model '{}'", model().name()));
  set_tensor(is_input ? state_->inputs : state_->outputs, name, std::move(tensor));
  return {};
}

Status Request::set_input(std::string_view name, Tensor tensor) { return set(true, name, std::move(tensor)); }
Status Request::set_output(std::string_view name, Tensor tensor) { return set(false, name, std::move(tensor)); }

Status Request::set_input(std::size_t index, Tensor tensor) {
  const auto info = model().info();
  if (state_ && index >= info->inputs.size())
    return not_found("model '{}' has no input {}: it has {}", model().name(), index, info->inputs.size());
  return set(true, state_ ? info->inputs[index].name : std::string_view(), std::move(tensor));
}

SubmitOptions& Request::options() {
  static SubmitOptions of_none;
  return state_ ? state_->options : of_none = {};
}
void Request::set_timeout(std::chrono::nanoseconds timeout) { options().timeout = timeout; }
void Request::set_priority(std::int8_t priority) { options().priority = priority; }
void Request::set_flow(std::uint64_t flow) { options().flow = flow; }
void Request::set_version(std::uint64_t version) { options().version = version; }
void Request::set_id(std::uint64_t id) {
  if (state_) state_->id = id;
}
std::uint64_t Request::id() const { return state_ ? state_->id : 0; }

const Model& Request::model() const {
  static const Model none;
  return state_ ? state_->model : none;
}

bool Request::is_under_way() const { return state_ && state_->is_under_way.load(std::memory_order_acquire); }

const Outcome& Request::outcome() const {
  if (!state_ || !state_->handle) return never_submitted();
  return is_under_way() && !state_->handle->is_done() ? unanswered() : state_->handle->outcome();
}

void Request::cancel() const {
  if (is_under_way() && state_->handle) state_->handle->cancel();
}

// ---- CompletionQueue ----

struct CompletionQueue::State {
  std::shared_ptr<completion::ClientCore> core;
  std::shared_ptr<completion::ReadyList> list = std::make_shared<completion::ReadyList>();

  ~State() {
    for (const auto& item : list->close()) {
      if (const auto handle = std::static_pointer_cast<RequestState>(item)->handle) handle->cancel();
    }
  }
  std::size_t take(std::span<Completion> completions) {
    std::size_t count = 0;
    while (count < completions.size()) {
      auto request = std::static_pointer_cast<RequestState>(list->take());
      if (!request) break;
      completions[count].tag = request->tag;
      request->is_under_way.store(false, std::memory_order_release);
      completions[count++].request = Request(std::move(request));
    }
    return count;
  }
};

CompletionQueue::CompletionQueue(const Client& client) : state_(std::make_unique<State>()) { state_->core = client.core_; }
CompletionQueue::CompletionQueue(CompletionQueue&&) noexcept = default;
CompletionQueue& CompletionQueue::operator=(CompletionQueue&&) noexcept = default;
CompletionQueue::~CompletionQueue() = default;

Status CompletionQueue::submit(Request& request, std::uint64_t tag) {
  const std::shared_ptr<RequestState>& submitted = request.state_;
  if (!submitted) return no_request();
  completion::ClientCore* const core = state_ ? state_->core.get() : nullptr;
  if (!core || submitted->model.core_.get() != core)
    return failed_precondition("model '{}': the request is for another client than the CompletionQueue", submitted->model.name());
  SHOAL_RETURN_IF_ERROR(core->usable());
  if (submitted->is_under_way.exchange(true, std::memory_order_acquire)) return still_under_way(*submitted);
  submitted->tag = tag;
  state_->list->begin(submitted);
  try {
    core->submit(submission_of(*submitted, submitted), submitted->handle);
  } catch (...) {
    state_->list->withdraw(*submitted);
    submitted->is_under_way.store(false, std::memory_order_release);
    throw;
  }
  return {};
}

std::size_t CompletionQueue::next(std::span<Completion> completions, std::chrono::steady_clock::time_point deadline,
                                  std::stop_token stop) {
  while (state_ && state_->core && !completions.empty()) {
    if (const std::size_t count = state_->take(completions); count > 0) return count;
    if (state_->list->size() == 0 || stop.stop_requested() || !state_->core->usable().ok()) return 0;
    if (deadline != deadline.max() && std::chrono::steady_clock::now() >= deadline) return 0;
    state_->core->wait(*state_->list, deadline, stop);
  }
  return 0;
}

std::size_t CompletionQueue::poll(std::span<Completion> completions) {
  if (!state_ || !state_->core) return 0;
  if (const std::size_t count = state_->take(completions); count > 0) return count;
  state_->core->poll();
  return state_->take(completions);
}

Result<int> CompletionQueue::fd() {
  if (!state_ || !state_->core) return failed_precondition("this CompletionQueue is of no Pool and no Engine");
  SHOAL_RETURN_IF_ERROR(state_->core->usable());
  SHOAL_ASSIGN_OR_RETURN(const int fd, state_->list->fd());
  SHOAL_RETURN_IF_ERROR(state_->core->callbacks().start(*state_->core));
  return fd;
}

std::size_t CompletionQueue::under_way() const { return state_ ? state_->list->size() : 0; }

}  // namespace shoal
