// Session: a sequence of requests to a model with states.
#pragma once

#include <memory>

#include "shoal/client.hpp"

namespace shoal {

namespace client {
class PoolCore;
struct SessionState;
}  // namespace client

/// One sequence. Each *step* is a request to a model that has `state` in its model.toml: what one step answers as a state is an
/// input of the next. The first step begins with zeros. Between two steps the states lie in this process, in memory that workers
/// can only read. So the next step runs on any worker, also when the one that ran the last step has died, or the daemon has. A
/// step that ends without OK, for whatever reason, changes nothing: it may be sent again. Pool::open_session() makes sessions.
///   Lifetime  its memory is freed by the destructor, by that of its Pool, and when it was not used for PoolOptions::session_idle
///   Threads   thread-safe, but one step at a time
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();  ///< a step that is under way goes on

  /// Submits the next step and returns at once. The session has the new states as soon as the step has ended with OK, whether or
  /// not anybody has looked at its outcome.
  ///   inputs   those of the model that are no states, in any order. A state that is given counts instead of the session's
  ///   options  as for Pool::submit(). A step without a version goes to the model's default version, also when that has changed
  ///   Returns  the outputs in the model's order, states included
  ///   Errors   those of Pool::submit(). kFailedPrecondition: a step is under way; the model has no state; or those of the
  ///            session do not fit, because the model was reloaded with others, or the batch has changed: see reset(). kNotFound:
  ///            the session was closed, because it was not used for PoolOptions::session_idle
  Prediction submit(Tensors inputs, const SubmitOptions& options = {});
  /// Submits the next step and waits for its outputs.
  Result<Tensors> predict(Tensors inputs, const SubmitOptions& options = {}) { return submit(std::move(inputs), options).get(); }
  /// The next step begins a new sequence.
  ///   Errors  kFailedPrecondition (a step is under way), kNotFound (as for submit()), kCancelled (the pool was destroyed)
  Status reset();

 private:
  friend class Pool;
  Session(std::shared_ptr<client::PoolCore> core, std::shared_ptr<client::SessionState> state);
  void close();
  std::shared_ptr<client::PoolCore> core_;
  std::shared_ptr<client::SessionState> state_;
};

}  // namespace shoal
