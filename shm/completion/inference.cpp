// Model::infer(): a request as an awaitable.
#include <atomic>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/completion/request_state.hpp"
#include "shoal/completion_queue.hpp"

namespace shoal {

using completion::Callback;
using completion::RequestState;

namespace {

/// Where a coroutine goes on. Whoever takes it, its answer or its end, is the only one.
struct Continuation {
  std::atomic<void*> coroutine{nullptr};
  void resume() {
    if (void* const address = coroutine.exchange(nullptr)) std::coroutine_handle<>::from_address(address).resume();
  }
};

}  // namespace

struct Inference::State {
  std::shared_ptr<completion::ClientCore> core;
  std::shared_ptr<RequestState> request;
  std::stop_token stop;
  Executor executor;
  Status refused;  ///< why it was not submitted
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
  std::shared_ptr<Continuation> continuation = std::make_shared<Continuation>();
};

Inference::Inference(std::unique_ptr<State> state) : state_(std::move(state)) {}
Inference::Inference(Inference&&) noexcept = default;
// The coroutine may end while it waits: then nobody wants the answer, nor is it copied to memory that may end with the coroutine.
Inference::~Inference() {
  if (!state_ || !state_->continuation->coroutine.exchange(nullptr)) return;
  state_->on_stop.reset();
  state_->request->handle.get()->give_up();
}

Inference Model::infer(Request request, std::stop_token stop, Executor executor) const {
  auto state = std::make_unique<Inference::State>();
  state->core = core();
  state->request = std::move(request.state_);
  state->stop = std::move(stop);
  state->executor = std::move(executor);
  return Inference(std::move(state));
}

// Once the callback is registered, the coroutine may go on in another thread, and end with all that is here.
bool Inference::await_suspend(std::coroutine_handle<> coroutine) {
  State& state = *state_;
  const std::shared_ptr<RequestState> request = state.request;
  const std::shared_ptr<completion::ClientCore> core = state.core;
  if (!core || !request)
    state.refused = failed_precondition("this Model or Request is none: it was default-constructed or moved from");
  else if (request->model.core() != core)
    state.refused = failed_precondition("model '{}': the request is for another client", request->model.name());
  else if (state.refused = core->usable(); state.refused.ok())
    state.refused = core->callbacks().start(*core);
  if (!state.refused.ok()) return false;
  const auto callback = std::make_shared<Callback>();
  const std::shared_ptr<Continuation> continuation = state.continuation;
  callback->run = [request, continuation] {
    request->is_under_way.store(false, std::memory_order_release);
    continuation->resume();
  };
  callback->executor = std::move(state.executor);
  if (request->is_under_way.exchange(true, std::memory_order_acquire)) {
    state.refused = failed_precondition("model '{}': the request is under way", request->model.name());
    return false;
  }
  std::shared_ptr<completion::PendingOutcome> handle;
  try {
    core->submit(request->submission(nullptr), request->handle);
    handle = request->handle.get();
    state.on_stop.emplace(std::move(state.stop), [handle] { handle->cancel(); });
  } catch (...) {
    if (handle) handle->give_up();
    request->is_under_way.store(false, std::memory_order_release);
    throw;
  }
  if (handle->is_done()) {  // it goes on here: a loop over requests that are refused at once does not nest
    request->is_under_way.store(false, std::memory_order_release);
    return false;
  }
  continuation->coroutine = coroutine.address();
  core->callbacks().add(*handle, callback);
  return true;
}

Result<Tensors> Inference::await_resume() {
  if (!state_->refused.ok()) return state_->refused;
  state_->on_stop.reset();
  return state_->request->handle.get()->outcome().outputs;
}

}  // namespace shoal
