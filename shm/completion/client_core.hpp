// ClientCore: what Client, Model, Request and CompletionQueue do, in the pool or in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>

#include "shm/completion/callbacks.hpp"
#include "shm/completion/pending_outcome.hpp"
#include "shm/completion/ready_list.hpp"
#include "shoal/model_info.hpp"
#include "shoal/outcome.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::completion {

/// What is submitted. Valid during the call.
struct Submission {
  std::string_view model;
  std::span<const NamedTensor> inputs;
  std::span<const NamedTensor> outputs;  ///< the caller's memory for some of them
  SubmitOptions options;
  std::shared_ptr<Notice> notice;  ///< null: none
  std::shared_ptr<void> known;     ///< of ClientCore::know(); null: the model is found by its name
};

/// The implementation of a Client.
///   Threads  thread-safe
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  virtual ~ClientCore() = default;
  /// Never blocks. Sets `handle` before anybody is told that the request is complete. In `handle` the caller may leave that of an
  /// earlier request that is complete: it is used again if nobody else has it. All failures are the request's outcome. Throws
  /// std::bad_alloc if there is no memory for a handle: `handle` is empty then, and nobody will be told.
  virtual void submit(Submission submission, HandleSlot& handle) = 0;
  virtual Result<ModelInfo> describe(std::string_view model, std::uint64_t version) = 0;
  /// For one model: with it, the model is looked up by its name once. May be null.
  virtual std::shared_ptr<void> know() { return nullptr; }
  /// The description that is known now; null if none is.
  ///   known  of know(), always for this model
  virtual std::shared_ptr<const ModelInfo> known_info(std::string_view model, std::uint64_t version, void* known) = 0;
  virtual Result<Tensor> loan(DType dtype, const Shape& shape) = 0;
  virtual Result<Tensor> loan_output(DType dtype, const Shape& shape) = 0;
  /// An error in a forked child, which has none of the threads and locks of this client.
  virtual Status usable() = 0;
  /// Waits until the list is done, until `until`, until a stop is requested, or for wake().
  virtual void wait(ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) = 0;
  /// Wakes those who wait for the list.
  virtual void wake(ReadyList& list) = 0;
  /// Sends and receives without waiting.
  virtual void poll() = 0;

  Callbacks& callbacks() { return callbacks_; }

 private:
  Callbacks callbacks_;
};

}  // namespace shoal::completion
