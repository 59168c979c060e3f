// The handle of a request to the pool.
#include "client/src/pool_core.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::client {

/// Destroying it cancels the request. In a forked child it is ready, with an error.
class PoolPrediction final : public completion::PendingOutcome {
 public:
  PoolPrediction(std::shared_ptr<PoolCore> core, std::shared_ptr<PendingRequest> request)
      : core_(std::move(core)), request_(std::move(request)) {}
  ~PoolPrediction() override {
    if (!request_->is_done()) core_->give_up(*request_);
  }

  bool is_done() const override { return request_->is_done() || core_->in_forked_child(); }
  bool ready() override {
    if (is_done()) return true;
    core_->poll();
    core_->expire(*request_);
    return request_->is_done();
  }
  bool wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) override {
    if (is_done() || limit.count() <= 0) return ready();
    return core_->wait_for_outcome(*request_, monotonic_now_ns() + static_cast<std::uint64_t>(limit.count()), stop);
  }
  const Outcome& outcome() override {
    if (request_->is_done()) return request_->outcome;
    static const Outcome in_forked_child{
        .outputs =
            Status(failed_precondition("this process was forked after the request was submitted: create the pool after fork"))};
    return core_->wait_for_outcome(*request_) ? request_->outcome : in_forked_child;
  }
  void cancel() override {
    if (!request_->is_done()) core_->cancel(*request_);
  }
  void give_up() override {
    if (!request_->is_done()) core_->give_up(*request_);
  }
  void add_notice(std::shared_ptr<completion::Notice> notice) override { core_->add_notice(*request_, std::move(notice)); }
  std::shared_ptr<completion::ClientCore> core() override { return core_; }

 private:
  friend std::shared_ptr<PendingRequest> client::begin_handle(const std::shared_ptr<PoolCore>&, completion::HandleSlot&);
  const std::shared_ptr<PoolCore> core_;
  const std::shared_ptr<PendingRequest> request_;
};

std::shared_ptr<PendingRequest> begin_handle(const std::shared_ptr<PoolCore>& core, completion::HandleSlot& slot) {
  if (const auto handle = slot.take_if_unshared()) {
    const auto* const earlier = dynamic_cast<const PoolPrediction*>(handle.get());
    if (earlier && earlier->core_ == core && core->is_unshared(earlier->request_)) {
      const std::shared_ptr<PendingRequest> request = earlier->request_;
      request->begin_again();
      slot.set(handle);
      return request;
    }
  }
  const auto request = std::make_shared<PendingRequest>();
  slot.set(std::make_shared<PoolPrediction>(core, request));
  return request;
}

}  // namespace shoal::client
