// EngineSession: a sequence of requests to an Engine's model with states.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "shm/base/fork_guard.hpp"
#include "shm/base/mutex.hpp"
#include "shoal/client.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// What shoal::Session is for a Pool: a state that one step answers is an input of the next. The states are copies: the caller
/// may change the outputs. A step that ends with an error changes nothing.
///   Threads  thread-safe, but one step at a time
///   Fork     a child can only close and destroy it
class EngineSession : public std::enable_shared_from_this<EngineSession> {
 public:
  EngineSession(Client client, ModelInfo info) : client_(std::move(client)), info_(std::move(info)) {}

  /// Submits the next step.
  ///   Errors  kFailedPrecondition: a step is under way, the session is closed, a state could not be kept, or in a forked child
  Result<Prediction> submit(Tensors inputs, const SubmitOptions& options) SHOAL_EXCLUDES(mutex_);
  /// Keeps the states that the last step has answered. To be called when it has ended, before its outputs are handed out.
  void end_step() SHOAL_EXCLUDES(mutex_);
  /// The next step begins a new sequence. Errors: kFailedPrecondition (as submit()).
  Status reset() SHOAL_EXCLUDES(mutex_);
  void close() SHOAL_EXCLUDES(mutex_);

 private:
  /// An error in a forked child: a thread that the child does not have may hold the mutex.
  Status usable() const;
  void keep_states() SHOAL_REQUIRES(mutex_);
  Status check_idle() SHOAL_REQUIRES(mutex_);

  const ForkGuard fork_guard_;
  const Client client_;
  const ModelInfo info_;
  Mutex mutex_;
  Prediction step_ SHOAL_GUARDED_BY(mutex_);  ///< until its states are kept
  Result<Tensors> states_ SHOAL_GUARDED_BY(mutex_) = Tensors();
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;
};

/// Adds EngineSession to the module, behind Inbox.
void define_engine_session(nb::module_& module);

}  // namespace shoal::python
