// A Client whose requests a test completes.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"
#include "shoal/client.hpp"

namespace shoal::test {

/// Serves the model "m": input "x" and output "y" of float32[-1]. A request waits until answer() or cancel().
///   Lifetime  a test that uses callbacks calls callbacks().stop() at its end
///   Threads   thread-safe
class ManualClient final : public completion::ClientCore {
 public:
  void submit(completion::Submission submission, completion::HandleSlot& handle) override {
    const auto request = std::make_shared<Request>();
    if (submission.notice) request->notices.add(std::move(submission.notice));
    request->inputs.assign(submission.inputs.begin(), submission.inputs.end());
    handle.set(std::make_shared<Handle>(shared_from_this(), request));
    const std::lock_guard lock(mutex_);
    waiting_.push_back(request);
  }
  Result<ModelInfo> describe(std::string_view model, std::uint64_t) override {
    if (model != info_->name) return not_found("no model '{}'", model);
    return *info_;
  }
  std::shared_ptr<const ModelInfo> known_info(std::string_view, std::uint64_t, void*) override { return info_; }
  Result<Tensor> loan(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }
  Result<Tensor> loan_output(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }
  Status usable() override { return is_forked_ ? Status(failed_precondition("a forked child")) : Status(); }
  void wait(completion::ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) override {
    list.wait(until, stop);
  }
  void wake(completion::ReadyList& list) override { list.interrupt(); }
  void poll() override {}

  /// Answers the request that has waited longest: its input is its output. False if none waits.
  bool answer() {
    std::shared_ptr<Request> request;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return false;
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Tensors outputs = request->inputs;
    if (!outputs.empty()) outputs[0].name = "y";
    request->complete({.outputs = std::move(outputs), .ran = Ran::kYes});
    return true;
  }
  void pretend_to_be_forked(bool is_forked) { is_forked_ = is_forked; }
  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  struct Request {
    std::mutex mutex;
    bool is_done = false;
    Outcome outcome;
    completion::Notices notices;
    Tensors inputs;

    void complete(Outcome result) {
      completion::Notices told;
      {
        const std::lock_guard lock(mutex);
        if (std::exchange(is_done, true)) return;
        outcome = std::move(result);
        std::swap(told, notices);
      }
      while (const auto notice = told.take()) notice->notify();
    }
  };
  class Handle final : public completion::PendingOutcome {
   public:
    Handle(std::shared_ptr<completion::ClientCore> core, std::shared_ptr<Request> request)
        : core_(std::move(core)), request_(std::move(request)) {}
    ~Handle() override { cancel(); }
    bool is_done() const override {
      const std::lock_guard lock(request_->mutex);
      return request_->is_done;
    }
    bool ready() override { return is_done(); }
    bool wait_for(std::chrono::nanoseconds, const std::stop_token&) override { return is_done(); }
    const Outcome& outcome() override { return request_->outcome; }
    void cancel() override { request_->complete({.outputs = Status(StatusCode::kCancelled, "canceled")}); }
    void give_up() override { cancel(); }
    void add_notice(std::shared_ptr<completion::Notice> notice) override {
      bool is_late = false;
      {
        const std::lock_guard lock(request_->mutex);
        is_late = request_->is_done;
        if (!is_late) request_->notices.add(notice);
      }
      if (is_late) notice->notify();
    }
    std::shared_ptr<completion::ClientCore> core() override { return core_; }

   private:
    const std::shared_ptr<completion::ClientCore> core_;
    const std::shared_ptr<Request> request_;
  };

  static ModelInfo describe_m() {
    ModelInfo info;
    info.name = "m";
    info.inputs = {{"x", DType::kFloat32, {-1}}};
    info.outputs = {{"y", DType::kFloat32, {-1}}};
    return info;
  }

  const std::shared_ptr<const ModelInfo> info_ = std::make_shared<const ModelInfo>(describe_m());
  std::atomic<bool> is_forked_{false};
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Request>> waiting_;
};

}  // namespace shoal::test
