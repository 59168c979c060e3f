#include "shoal/pool.hpp"

#include "client/src/description.hpp"
#include "client/src/pool_core.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal {
namespace {

/// The user's end of a request; letting go of it gives the request up.
class PoolPrediction final : public PendingOutcome {
 public:
  PoolPrediction(std::shared_ptr<client::PoolCore> core, std::shared_ptr<client::Request> request)
      : core_(std::move(core)), request_(std::move(request)) {}
  ~PoolPrediction() override {
    if (!request_->is_done()) core_->give_up(*request_);
  }

  bool ready() override {
    if (request_->is_done()) return true;
    core_->poll();
    core_->expire(*request_);
    return request_->is_done();
  }
  bool wait_for(std::chrono::nanoseconds limit) override {
    if (limit.count() <= 0) return ready();
    return core_->wait_for_outcome(*request_, monotonic_now_ns() + static_cast<std::uint64_t>(limit.count()));
  }
  const Outcome& outcome() override {
    static const Outcome in_forked_child{
        .outputs =
            Status(failed_precondition("this process was forked after the request was submitted: create the pool after fork"))};
    return core_->wait_for_outcome(*request_, client::kForever) ? request_->outcome : in_forked_child;
  }
  void cancel() override { core_->cancel(*request_); }

 private:
  std::shared_ptr<client::PoolCore> core_;
  std::shared_ptr<client::Request> request_;
};

}  // namespace

Result<Pool> Pool::connect(Options options) {
  SHOAL_ASSIGN_OR_RETURN(auto core, client::PoolCore::connect(std::move(options)));
  return Pool(std::move(core));
}

Pool::Pool(std::shared_ptr<client::PoolCore> core) : core_(std::move(core)) {}
Pool::Pool(Pool&&) noexcept = default;

Pool& Pool::operator=(Pool&& other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}

Pool::~Pool() {
  if (core_) core_->close();
}

Prediction Pool::submit(std::string_view model, Tensors inputs, SubmitOptions options) {
  return Prediction(std::make_shared<PoolPrediction>(core_, core_->submit(model, std::move(inputs), options)));
}

Result<ModelInfo> Pool::describe(std::string_view model, std::uint64_t version) { return core_->describe(model, version); }
Result<Tensor> Pool::loan(DType dtype, const Shape& shape) { return core_->loan(dtype, shape); }

Result<std::vector<std::string>> Pool::list() {
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, core_->ask(client::control_json("list")));
  return client::parse_names(answer);
}

Result<std::string> Pool::stats() { return core_->ask(client::control_json("stats")); }
Result<std::string> Pool::crashes(std::string_view model) { return core_->ask(client::control_json("crashes", model)); }
Result<FlightRecords> Pool::trace(std::string_view model, std::uint64_t pid) {
  FlightRecords records;
  SHOAL_ASSIGN_OR_RETURN(records.description, core_->ask(client::control_json("trace", model, 0, pid), &records.events));
  return records;
}
Status Pool::stop() { return core_->ask(client::control_json("stop"), nullptr, true).status(); }

Result<ModelChange> Pool::load(std::string_view name, std::string_view path) {
  return core_->change({.what = "load", .model = name, .path = path});
}
Result<ModelChange> Pool::reload(std::string_view name, std::string_view path, bool force) {
  return core_->change({.what = "reload", .model = name, .path = path, .force = force});
}
Result<ModelChange> Pool::unload(std::string_view name) { return core_->change({.what = "unload", .model = name}); }
Result<ModelChange> Pool::scale(std::string_view name, int workers) {
  return core_->change({.what = "scale", .model = name, .workers = workers});
}
Result<ModelChange> Pool::drain(std::string_view name) { return core_->change({.what = "drain", .model = name}); }
void Pool::poll() { core_->poll(); }

}  // namespace shoal
