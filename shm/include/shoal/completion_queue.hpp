// CompletionQueue and Request: many requests from one thread, which are used again and again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "shoal/client.hpp"

namespace shoal {

/// One request to a model, which may be submitted again when it is complete. It keeps its inputs, so that only those that change
/// are set anew, and the memory that a request takes: in the long run, submitting it to a Pool allocates nothing, if nothing is
/// copied.
///   Lifetime  a copy is another handle of the same request. A request that was submitted to a queue goes on without handles
///   Threads   thread-compatible, except cancel(); nothing may be set while it is under way
class Request {
 public:
  Request() = default;  ///< none: everything answers kFailedPrecondition
  explicit Request(Model model);

  /// Sets an input; a Tensor of Client::loan() is used where it lies, any other one is copied when the request is submitted. What
  /// is used must not be changed while the request is under way, nor until an earlier run of it has ended, if it was canceled or
  /// its time was over.
  ///   Errors  kNotFound (the model has no such input), kInvalidArgument (dtype or shape: names input, expected and given),
  ///           kFailedPrecondition (the request is under way)
  Status set_input(std::string_view name, Tensor tensor);
  Status set_input(std::size_t index, Tensor tensor);
  /// Lets an output be written to `tensor`, each time that the request is submitted: where it lies if it is of
  /// Client::loan_output(); into other memory it is copied, when it comes. Its shape must be that of the output, or the request
  /// ends with kInvalidArgument. A worker may write a loan until it has ended the run, also one that was canceled or whose time
  /// was over: another request with this memory is sent when that is so.
  ///   Errors  as set_input()
  Status set_output(std::string_view name, Tensor tensor);
  void set_timeout(std::chrono::nanoseconds timeout);  ///< as SubmitOptions::timeout; likewise the next three
  void set_priority(std::int8_t priority);
  void set_flow(std::uint64_t flow);
  void set_version(std::uint64_t version);
  void set_id(std::uint64_t id);  ///< the caller's own number for it; not sent
  std::uint64_t id() const;

  const Model& model() const;
  bool is_under_way() const;
  /// Of the last time it was submitted: kFailedPrecondition if it never was, or is under way.
  const Outcome& outcome() const;
  const Result<Tensors>& outputs() const { return outcome().outputs; }
  void cancel() const;  ///< best effort, from any thread; it still completes

 private:
  friend class CompletionQueue;
  friend class Inference;
  friend class Model;
  explicit Request(std::shared_ptr<completion::RequestState> state) : state_(std::move(state)) {}
  Status set(bool is_input, std::string_view name, Tensor tensor);
  std::shared_ptr<completion::RequestState> state_;
};

/// A request that is complete.
struct Completion {
  std::uint64_t tag = 0;  ///< as given to submit()
  Request request;        ///< has the outcome; may be submitted again
};

/// Submits requests, and gives back those that are complete, in that order. Whoever waits in next() drives the connection of a
/// Pool: the library starts no thread. A program that would rather wait for a descriptor has fd().
///   Lifetime  destroying it ends its requests with kCancelled, and closes its descriptor
///   Threads   thread-safe: several threads may submit and wait
class CompletionQueue {
 public:
  /// Makes an empty queue for requests to models of `client`.
  explicit CompletionQueue(const Client& client);
  CompletionQueue(CompletionQueue&&) noexcept;
  CompletionQueue& operator=(CompletionQueue&&) noexcept;
  ~CompletionQueue();

  /// Sends the request, and returns at once: never blocks, and does not wait for somebody to call next(). Each request that was
  /// submitted with OK comes back exactly once, whatever becomes of it: also if it was refused at once (kOverloaded with
  /// `PoolOptions::in_flight_limit` or `EngineOptions::queue_limit` others under way).
  ///   Errors  kFailedPrecondition (the request is under way, none, or one for a model of another client; a forked child):
  ///   nothing
  ///           is submitted. Throws std::bad_alloc, likewise
  Status submit(Request& request, std::uint64_t tag);

  /// Waits until a request is complete, or until `deadline`, and takes as many as there are, at most `completions.size()`.
  /// Returns how many: 0 at the deadline, when nothing is under way, when a stop is requested, and in a forked child.
  std::size_t next(std::span<Completion> completions,
                   std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
                   std::stop_token stop = {});
  /// The same without waiting; receives if nothing is ready.
  std::size_t poll(std::span<Completion> completions);
  /// A descriptor that is readable while there are completions, for epoll, an event loop of Python's or libuv's. Level-triggered;
  /// nobody may read it. The first call starts the library's thread. In a program that calls Client::poll_once() there is none,
  /// and the descriptor becomes readable only within its calls. The queue closes it.
  ///   Errors  kUnavailable (no thread can be started), kFailedPrecondition (no descriptor is left)
  Result<int> fd();
  std::size_t under_way() const;  ///< requests that were submitted and not taken

 private:
  struct State;
  Status usable() const;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
