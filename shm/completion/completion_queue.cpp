#include "shoal/completion_queue.hpp"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

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

Status check_fits(const Model& model, bool is_input, std::string_view name, const Tensor& tensor) {
  const auto info = model.info();
  const std::string_view what = is_input ? "input" : "output";
  const std::vector<TensorSpec>& specs = is_input ? info->inputs : info->outputs;
  const auto spec = std::ranges::find(specs, name, &TensorSpec::name);
  if (spec == specs.end()) return unknown_name(model, what, name, specs);
  const Status matches = check_matches(*spec, tensor.dtype(), tensor.shape(), what);
  return matches.ok() ? matches : matches.with_context(format("model '{}'", model.name()));
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
  const std::string_view what = is_input ? "input" : "output";
  if (tensor.size_bytes() > 0 && !tensor.view().data)
    return invalid_argument("model '{}': {} '{}': its tensor has no bytes", model().name(), what, name);
  Status fits = check_fits(model(), is_input, name, tensor);
  if (const auto& core = state_->core(); !fits.ok() && core && core->usable().ok()) {
    core->poll();  // the model may have changed
    fits = check_fits(model(), is_input, name, tensor);
  }
  if (fits.ok()) set_tensor(is_input ? state_->inputs : state_->outputs, name, std::move(tensor));
  return fits;
}

Status Request::set_input(std::string_view name, Tensor tensor) { return set(true, name, std::move(tensor)); }
Status Request::set_output(std::string_view name, Tensor tensor) { return set(false, name, std::move(tensor)); }

Status Request::set_input(std::size_t index, Tensor tensor) {
  const auto info = model().info();
  if (state_ && index >= info->inputs.size())
    return not_found("model '{}' has no input {}: it has {}", model().name(), index, info->inputs.size());
  return set(true, state_ ? info->inputs[index].name : std::string_view(), std::move(tensor));
}

void Request::set_timeout(std::chrono::nanoseconds timeout) {
  if (state_) state_->options.timeout = timeout;
}
void Request::set_priority(std::int8_t priority) {
  if (state_) state_->options.priority = priority;
}
void Request::set_flow(std::uint64_t flow) {
  if (state_) state_->options.flow = flow;
}
void Request::set_version(std::uint64_t version) {
  if (state_) state_->options.version = version;
}
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
  const auto handle = state_ ? state_->handle.get() : nullptr;
  if (!handle) return never_submitted();
  return is_under_way() && !handle->is_done() ? unanswered() : handle->outcome();  // the request keeps it
}

void Request::cancel() const {
  if (const auto handle = state_ ? state_->handle.get() : nullptr) handle->cancel();
}

// ---- CompletionQueue ----

struct CompletionQueue::State {
  explicit State(std::shared_ptr<completion::ClientCore> its) : core(std::move(its)) {}
  // In a forked child nothing is done: a thread of the parent may hold a lock.
  ~State() {
    if (!core || !core->usable().ok()) return;
    std::shared_ptr<RequestState> first;  // of a chain: a destructor needs no memory
    list->close([&](const std::shared_ptr<ReadyItem>& item) {
      auto request = std::static_pointer_cast<RequestState>(item);
      request->next_given_up = std::exchange(first, request);
    });
    while (const auto request = std::exchange(first, nullptr)) {
      first = std::move(request->next_given_up);
      if (const auto handle = request->handle.get()) handle->give_up();
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
    wake_if_idle();
    return count;
  }
  // Those who wait have nothing to wait for any more.
  void wake_if_idle() {
    if (waiters.load() > 0 && list->size() == 0) core->wake(*list);
  }

  const std::shared_ptr<completion::ClientCore> core;
  const std::shared_ptr<completion::ReadyList> list = std::make_shared<completion::ReadyList>(/*endless=*/false);
  std::atomic<int> waiters{0};
};

CompletionQueue::CompletionQueue(const Client& client) : state_(std::make_unique<State>(client.core_)) {}
CompletionQueue::CompletionQueue(CompletionQueue&&) noexcept = default;
CompletionQueue& CompletionQueue::operator=(CompletionQueue&&) noexcept = default;
CompletionQueue::~CompletionQueue() = default;

Status CompletionQueue::usable() const {
  if (!state_ || !state_->core) return failed_precondition("this CompletionQueue is of no Pool and no Engine, or was moved from");
  return state_->core->usable();
}

Status CompletionQueue::submit(Request& request, std::uint64_t tag) {
  const std::shared_ptr<RequestState> submitted = request.state_;
  if (!submitted) return no_request();
  SHOAL_RETURN_IF_ERROR(usable());
  completion::ClientCore& core = *state_->core;
  if (submitted->model.core().get() != &core)
    return failed_precondition("model '{}': the request is for another client than the CompletionQueue", submitted->model.name());
  if (submitted->is_under_way.exchange(true, std::memory_order_acquire)) return still_under_way(*submitted);
  submitted->tag = tag;
  state_->list->begin(submitted);
  try {
    core.submit(submitted->submission(submitted), submitted->handle);
  } catch (...) {
    state_->list->withdraw(*submitted);
    submitted->is_under_way.store(false, std::memory_order_release);
    state_->wake_if_idle();
    throw;
  }
  return {};
}

std::size_t CompletionQueue::next(std::span<Completion> completions, std::chrono::steady_clock::time_point deadline,
                                  std::stop_token stop) {
  if (completions.empty()) return 0;
  while (usable().ok()) {
    if (const std::size_t count = state_->take(completions); count > 0) return count;
    if (state_->list->size() == 0 || stop.stop_requested()) return 0;
    if (deadline != deadline.max() && std::chrono::steady_clock::now() >= deadline) return 0;
    state_->waiters.fetch_add(1);
    try {
      state_->core->wait(*state_->list, deadline, stop);
    } catch (...) {
      state_->waiters.fetch_sub(1);
      throw;
    }
    state_->waiters.fetch_sub(1);
  }
  return 0;
}

std::size_t CompletionQueue::poll(std::span<Completion> completions) {
  if (!usable().ok()) return 0;
  if (const std::size_t count = state_->take(completions); count > 0) return count;
  state_->core->poll();
  return state_->take(completions);
}

Result<int> CompletionQueue::fd() {
  SHOAL_RETURN_IF_ERROR(usable());
  SHOAL_ASSIGN_OR_RETURN(const int fd, state_->list->fd());
  SHOAL_RETURN_IF_ERROR(state_->core->callbacks().start(*state_->core));
  return fd;
}

std::size_t CompletionQueue::under_way() const { return usable().ok() ? state_->list->size() : 0; }

}  // namespace shoal
