// A Client whose models are functions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"
#include "shoal/client.hpp"

namespace shoal::test {

/// Runs one model, a function, in the thread that submits.
///   Lifetime  a test that uses callbacks calls callbacks().stop() at its end
class FunctionClient : public completion::ClientCore {
 public:
  using Function = std::function<Result<Tensors>(Tensors inputs, const SubmitOptions& options)>;

  explicit FunctionClient(ModelInfo its_info = {}, Function its_function = {})
      : info(std::move(its_info)), function(std::move(its_function)) {}

  void submit(completion::Submission submission, completion::HandleSlot& handle) override {
    const auto done = std::make_shared<Done>(
        shared_from_this(),
        Outcome{.outputs = function(Tensors(submission.inputs.begin(), submission.inputs.end()), submission.options)});
    handle.set(done);
    if (submission.notice) done->add_notice(std::move(submission.notice));
  }
  Result<ModelInfo> describe(std::string_view model, std::uint64_t) override {
    if (!model.empty() && model != info.name) return not_found("no model '{}'", model);
    return info;
  }
  std::shared_ptr<const ModelInfo> known_info(std::string_view, std::uint64_t, void*) override {
    return {shared_from_this(), &info};
  }
  Result<Tensor> loan(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }
  Result<Tensor> loan_output(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }
  Status usable() override { return {}; }
  void wait(completion::ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) override {
    list.wait(until, stop);
  }
  void wake(completion::ReadyList& list) override { list.interrupt(); }
  void poll() override {}

  ModelInfo info;
  Function function;

 private:
  class Done final : public completion::PendingOutcome {
   public:
    Done(std::shared_ptr<completion::ClientCore> core, Outcome outcome) : core_(std::move(core)), outcome_(std::move(outcome)) {}
    bool is_done() const override { return true; }
    bool ready() override { return true; }
    bool wait_for(std::chrono::nanoseconds, const std::stop_token&) override { return true; }
    const Outcome& outcome() override { return outcome_; }
    void cancel() override {}
    void give_up() override {}
    void add_notice(std::shared_ptr<completion::Notice> notice) override { notice->notify(); }
    std::shared_ptr<completion::ClientCore> core() override { return core_; }

   private:
    const std::shared_ptr<completion::ClientCore> core_;
    const Outcome outcome_;
  };
};

}  // namespace shoal::test
