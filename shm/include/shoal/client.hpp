// Client: runs models, in the pool or in this process. Also Prediction, and Model: one model of a Client.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "shoal/model_info.hpp"
#include "shoal/outcome.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

namespace completion {
class ClientCore;
class PendingOutcome;
struct ModelState;
struct RequestState;
}  // namespace completion
class CompletionQueue;
class Inference;
class Request;

/// Runs a task somewhere else, at once or later: in an event loop, on a pool of threads. It is called in a thread of the library
/// (or in Client::poll_once()), must not block, and must not throw.
using Executor = std::function<void(std::function<void()>)>;

/// A submitted request. It completes exactly once. Destroying all copies of its Prediction cancels it, unless then() was called.
/// A Prediction without a request (default-constructed, or moved from) is ready; its outcome is kFailedPrecondition.
///   Lifetime  get() and outcome() return references that are valid while the Prediction or a copy of it is. A temporary
///             Prediction returns a copy: `const auto& x = pool.submit(...).get();` is safe
///   Threads   thread-compatible; copies may be used by different threads
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::shared_ptr<completion::PendingOutcome> pending) : pending_(std::move(pending)) {}

  bool ready() const;                                   ///< never blocks
  bool wait_for(std::chrono::nanoseconds limit) const;  ///< true if it is ready
  /// The same. Also returns when a stop is requested; the request goes on.
  bool wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) const;
  /// Waits. Returns the outputs in the model's order, or why there are none.
  const Result<Tensors>& get() const& { return outcome().outputs; }
  Result<Tensors> get() && { return std::as_const(*this).outcome().outputs; }
  /// Waits. Returns everything that is known of the request.
  const Outcome& outcome() const&;
  Outcome outcome() && { return std::as_const(*this).outcome(); }
  void cancel() const;  ///< best effort: the outcome is kCancelled, or what the model had answered already

  /// Calls `callback` once the request is complete: exactly once, also when it failed, was canceled, or was complete before. The
  /// request then goes on without a Prediction. The first call starts the library's thread, in which the callback runs, unless
  /// this program calls Client::poll_once(): then callbacks run there. With an executor, that one runs it. The callback of a
  /// Prediction without a request, or whose Pool or Engine is gone, runs at once in this thread.
  ///   callback  must not throw. In the library's thread it must not wait for another request
  ///   Errors    kUnavailable (the thread cannot be started), kFailedPrecondition (a forked child). The callback is not called
  ///             then, as if this throws std::bad_alloc
  Status then(std::function<void(const Outcome&)> callback, Executor executor = {}) const;

 private:
  std::shared_ptr<completion::PendingOutcome> pending_;
};

/// One model of a Client: its description is known, so a request is sent when it is submitted.
///   Lifetime  a copy is cheap. When the Client's Pool or Engine is destroyed, everything here answers kCancelled
///   Threads   thread-safe
class Model {
 public:
  Model() = default;  ///< none: everything answers kFailedPrecondition

  const std::string& name() const;
  std::uint64_t version() const;  ///< that was asked for; 0 = the default version, whichever that is
  /// The description that is now known; a later call may return another one, after a reload. Never null.
  std::shared_ptr<const ModelInfo> info() const;

  /// As Client::submit(), predict(). A version in the options counts instead of the model's own.
  Prediction submit(Tensors inputs, const SubmitOptions& options = {}) const;
  Result<Tensors> predict(Tensors inputs, const SubmitOptions& options = {}) const;
  /// `co_await model.infer(inputs)` gives a Result<Tensors>. The coroutine goes on in the library's thread, as a callback of
  /// Prediction::then() does, or where `executor` runs it.
  ///   stop  when a stop is requested, the request is canceled; the coroutine waits until it has its outcome
  Inference infer(Tensors inputs, const SubmitOptions& options = {}, std::stop_token stop = {}, Executor executor = {}) const;
  /// The same for a request that is used again. It must not be under way.
  Inference infer(Request request, std::stop_token stop = {}, Executor executor = {}) const;

 private:
  friend class Client;
  friend class CompletionQueue;
  friend class Inference;
  friend struct completion::RequestState;
  const std::shared_ptr<completion::ClientCore>& core() const;
  std::shared_ptr<const completion::ModelState> state_;
};

/// What runs models: Pool::client() runs them in the local daemon's workers, Engine::client() in this process. Code written for
/// one also runs with the other.
///   Lifetime  a copy is cheap, and refers to the same Pool or Engine. When that is destroyed, everything here answers kCancelled
///   Threads   thread-safe
class Client {
 public:
  Client() = default;  ///< none: everything answers kFailedPrecondition
  explicit Client(std::shared_ptr<completion::ClientCore> core) : core_(std::move(core)) {}

  /// Asks for the model's description, which may take as long as the model loads. `version` 0 is the default version.
  ///   Errors  kNotFound (no such model or version), kUnavailable, kCancelled
  Result<Model> model(std::string_view name, std::uint64_t version = 0) const;
  /// model(), and what is then known of it.
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version = 0) const {
    const Result<Model> described = this->model(model, version);
    return described.ok() ? Result<ModelInfo>(*described->info()) : described.status();
  }

  /// Submits one request and returns at once. Every failure arrives in the Prediction. Throws std::bad_alloc only if there is no
  /// memory for the Prediction itself, or for its request; nothing is submitted then.
  ///   inputs   one per model input, in any order; shape and dtype as describe() says. Those of ModelInfo::state may be left out
  Prediction submit(std::string_view model, Tensors inputs, const SubmitOptions& options = {}) const;
  /// Submits one request and waits for its outputs.
  Result<Tensors> predict(std::string_view model, Tensors inputs, const SubmitOptions& options = {}) const {
    return submit(model, std::move(inputs), options).get();
  }

  /// Returns a tensor with undefined bytes that requests use without a copy: shared memory of a Pool, memory of this process for
  /// an Engine. See Pool::loan().
  Result<Tensor> loan(DType dtype, const Shape& shape) const;
  /// The same for Request::set_output(): the model writes its output there.
  Result<Tensor> loan_output(DType dtype, const Shape& shape) const;

  /// Sends and receives without waiting, and calls the callbacks of what is complete. For a program whose own loop calls it now
  /// and then: the library then starts no thread, from the first call on. One that would rather sleep until something is complete
  /// uses CompletionQueue::next() or fd().
  void poll_once() const;

 private:
  friend class CompletionQueue;
  std::shared_ptr<completion::ClientCore> core_;
};

/// What Model::infer() returns: to be awaited once. A coroutine that is destroyed while it waits cancels its request.
///   Lifetime  the coroutine keeps it while it is suspended. It must not be destroyed while another thread resumes it:
///             destroy it where its executor runs, or let a stop_token end its wait
class [[nodiscard]] Inference {
 public:
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> coroutine);  ///< false: it failed at once
  Result<Tensors> await_resume();

  Inference(Inference&&) noexcept;
  ~Inference();

 private:
  friend class Model;
  struct State;
  explicit Inference(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shoal
