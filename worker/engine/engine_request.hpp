// EngineRequest: a request to a model in this process, and its handle.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fork_guard.hpp"
#include "shm/base/mutex.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {

// These texts fit into a std::string itself: they need no memory, so that every request gets an outcome without any.
inline Status given_up() { return {StatusCode::kCancelled, "given up"}; }
inline Status engine_is_gone() { return {StatusCode::kCancelled, "engine is gone"}; }
inline Status no_memory_at_all() { return {StatusCode::kFailedPrecondition, "out of memory"}; }

/// Memory of Engine's loan(), which requests use where it lies. The mark is the type of what destroys it.
struct LoanDeleter {
  std::shared_ptr<void> memory;
  void operator()(void*) {}
};
inline Tensor mark_as_loan(Tensor tensor) {
  const TensorView view = tensor.view();
  return Tensor(view, std::shared_ptr<void>(view.data, LoanDeleter{tensor.owner()}));
}
inline bool is_loan(const Tensor& tensor) { return std::get_deleter<LoanDeleter>(tensor.owner()) != nullptr; }

/// One submitted run.
///   Threads  thread-safe
class EngineRequest {
 public:
  explicit EngineRequest(completion::Submission submission)
      : inputs(submission.inputs.begin(), submission.inputs.end()),
        outputs(submission.outputs.begin(), submission.outputs.end()),
        submitted_ns(monotonic_now_ns()) {
    const SubmitOptions& options = submission.options;
    if (submission.notice) notices_.add(std::move(submission.notice));
    if (options.timeout.count() != 0)
      deadline_ns = submitted_ns + static_cast<std::uint64_t>(std::max<std::int64_t>(options.timeout.count(), 0));
  }

  bool is_done() const {
    const MutexLock lock(mutex_);
    return is_done_;
  }
  bool wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) {
    const std::stop_callback wake_up(stop, [this] {
      const MutexLock lock(mutex_);
      done_.notify_all();
    });
    const auto now = std::chrono::steady_clock::now(), last = now.max();
    const auto until = limit < last - now ? now + limit : last;
    const MutexLock lock(mutex_);
    while (!is_done_ && !stop.stop_requested() && done_.wait_until(mutex_, until)) {
    }
    return is_done_;
  }
  const Outcome& outcome() {
    const MutexLock lock(mutex_);
    while (!is_done_) done_.wait(mutex_);
    return outcome_;  // never changes again
  }
  void cancel() { complete({.outputs = given_up()}); }
  void add_notice(std::shared_ptr<completion::Notice> notice) {
    completion::Notices now;
    {
      const MutexLock lock(mutex_);
      (is_done_ ? now : notices_).add(std::move(notice));
    }
    tell(now);
  }

  /// From here on the model may be run. False when there is an outcome already.
  bool begin() {
    const MutexLock lock(mutex_);
    is_begun_ = !is_done_;
    return is_begun_;
  }

  void complete(Outcome outcome) {
    if (finish(std::move(outcome))) tell(notices_);  // nobody adds to them any more
  }

  /// Copies inputs that are not marked as loans: the caller may use their memory for the next request.
  ///   Errors  kFailedPrecondition (out of memory)
  Status copy_inputs() {
    for (NamedTensor& input : inputs) {
      const TensorView& given = input.tensor.view();
      if (is_loan(input.tensor) || !given.data || given.size_bytes() == 0) continue;
      SHOAL_ASSIGN_OR_RETURN(Tensor copied, Tensor::create(given.dtype, given.shape));
      std::ranges::copy(given.bytes(), copied.view().data);
      input.tensor = std::move(copied);
    }
    return {};
  }

  Tensors inputs;  ///< do not change once it is queued
  const Tensors outputs;
  const std::uint64_t submitted_ns;
  std::uint64_t deadline_ns = 0;

 private:
  bool finish(Outcome outcome) {
    const MutexLock lock(mutex_);
    if (is_done_) return false;
    if (outcome.outputs.ok()) {
      if (Status copied = copy_to_own(*outcome.outputs); !copied.ok()) outcome.outputs = std::move(copied);
    }
    outcome_ = std::move(outcome);
    if (is_begun_ && outcome_.ran == Ran::kNo && outcome_.attempts == 0) {  // given up in the middle
      outcome_.ran = Ran::kMaybe;
      outcome_.attempts = 1;
    }
    is_done_ = true;
    done_.notify_all();
    return true;
  }
  // Now, and not while the model runs: a request that was given up may be submitted again with the same memory.
  Status copy_to_own(Tensors& results) const try {
    for (const NamedTensor& own : outputs) {
      const auto result = std::ranges::find(results, own.name, &NamedTensor::name);
      if (result == results.end()) continue;
      const Tensor came = std::exchange(result->tensor, own.tensor);
      SHOAL_RETURN_IF_ERROR(
          check_matches({own.name, came.dtype(), came.shape()}, own.tensor.dtype(), own.tensor.shape(), "the memory for output"));
      std::ranges::copy(came.view().bytes(), result->tensor.view().data);
    }
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory_at_all();
  }
  static void tell(completion::Notices& notices) {
    while (const auto notice = notices.take()) notice->notify();  // which wakes whoever waits
  }

  mutable Mutex mutex_;
  Condition done_;
  bool is_begun_ SHOAL_GUARDED_BY(mutex_) = false, is_done_ SHOAL_GUARDED_BY(mutex_) = false;
  Outcome outcome_ SHOAL_GUARDED_BY(mutex_);
  completion::Notices notices_;  ///< guarded by mutex_ until the request is done
};

inline Status forked() {
  return failed_precondition("this process was forked from the process that loaded the model: load it again after fork");
}

/// The caller's end: destroying it cancels the request. A forked child has no thread that answers, and may find the lock taken.
class EnginePrediction final : public completion::PendingOutcome {
 public:
  EnginePrediction(std::shared_ptr<completion::ClientCore> core, std::shared_ptr<EngineRequest> request)
      : core_(std::move(core)), request_(std::move(request)) {}
  ~EnginePrediction() override { cancel(); }
  bool is_done() const override { return fork_guard_.in_child() || request_->is_done(); }
  bool ready() override { return is_done(); }
  bool wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) override {
    return fork_guard_.in_child() || request_->wait_for(limit, stop);
  }
  const Outcome& outcome() override {
    static const Outcome in_child{.outputs = forked(), .ran = Ran::kMaybe};
    return fork_guard_.in_child() ? in_child : request_->outcome();
  }
  void cancel() override {
    if (!fork_guard_.in_child()) request_->cancel();
  }
  void give_up() override { cancel(); }
  void add_notice(std::shared_ptr<completion::Notice> notice) override { request_->add_notice(std::move(notice)); }
  std::shared_ptr<completion::ClientCore> core() override { return core_; }

 private:
  const ForkGuard fork_guard_;
  const std::shared_ptr<completion::ClientCore> core_;
  std::shared_ptr<EngineRequest> request_;
};

}  // namespace shoal
