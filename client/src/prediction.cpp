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
  bool wait_for(std::chrono::nanoseconds limit) override {
    if (is_done() || limit.count() <= 0) return ready();
    return core_->wait_for_outcome(*request_, monotonic_now_ns() + static_cast<std::uint64_t>(limit.count()));
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
  void add_notice(std::shared_ptr<completion::Notice> notice) override { core_->add_notice(*request_, std::move(notice)); }
  std::shared_ptr<completion::ClientCore> core() override { return core_; }

 private:
  friend std::shared_ptr<PendingRequest> client::begin_handle(std::shared_ptr<PoolCore>,
                                                              std::shared_ptr<completion::PendingOutcome>&);
  const std::shared_ptr<PoolCore> core_;
  const std::shared_ptr<PendingRequest> request_;
};

// Nobody gets a hold on what only this caller has. While the core has the request, `request` has two holds.
std::shared_ptr<PendingRequest> begin_handle(std::shared_ptr<PoolCore> core,
                                             std::shared_ptr<completion::PendingOutcome>& handle) {
  const auto* const earlier = handle.use_count() == 1 ? dynamic_cast<const PoolPrediction*>(handle.get()) : nullptr;
  if (earlier && earlier->core_ == core && earlier->request_.use_count() == 1 && earlier->request_->is_done()) {
    earlier->request_->begin_again();
    return earlier->request_;
  }
  const auto request = std::make_shared<PendingRequest>();
  handle = std::make_shared<PoolPrediction>(std::move(core), request);
  return request;
}

}  // namespace shoal::client
