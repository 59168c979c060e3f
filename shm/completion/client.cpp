#include "shoal/client.hpp"

#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/completion/request_state.hpp"
#include "shoal/completion_queue.hpp"

namespace shoal {

using completion::Callback;
using completion::PendingOutcome;

namespace {

Status no_client() { return failed_precondition("this Client or Model is of no Pool and no Engine: it was default-constructed"); }

const Outcome& outcome_of_none() {
  static const Outcome none{.outputs = Status(StatusCode::kFailedPrecondition,
                                              "this Prediction has no request: it was default-constructed or moved from")};
  return none;
}

/// It failed before any client had it.
class Failed final : public PendingOutcome {
 public:
  explicit Failed(Status why) : outcome_{.outputs = std::move(why)} {}
  bool is_done() const override { return true; }
  bool ready() override { return true; }
  bool wait_for(std::chrono::nanoseconds, const std::stop_token&) override { return true; }
  const Outcome& outcome() override { return outcome_; }
  void cancel() override {}
  void give_up() override {}
  void add_notice(std::shared_ptr<completion::Notice> notice) override { notice->notify(); }
  std::shared_ptr<completion::ClientCore> core() override { return nullptr; }

 private:
  const Outcome outcome_;
};

}  // namespace

Prediction completion::failed(Status why) { return Prediction(std::make_shared<Failed>(std::move(why))); }

// ---- Prediction ----

bool Prediction::ready() const { return !pending_ || pending_->ready(); }
bool Prediction::wait_for(std::chrono::nanoseconds limit) const { return wait_for(limit, {}); }
bool Prediction::wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) const {
  return !pending_ || pending_->wait_for(limit, stop);
}
const Outcome& Prediction::outcome() const& { return pending_ ? pending_->outcome() : outcome_of_none(); }
void Prediction::cancel() const {
  if (pending_) pending_->cancel();
}

Status Prediction::then(std::function<void(const Outcome&)> callback, Executor executor) const {
  const auto core = pending_ ? pending_->core() : nullptr;
  if (!core) {  // it is complete, and there is no thread
    callback(outcome());
    return {};
  }
  SHOAL_RETURN_IF_ERROR(core->usable());
  SHOAL_RETURN_IF_ERROR(core->callbacks().start(*core));
  const auto registered = std::make_shared<Callback>();
  registered->run = [callback = std::move(callback), request = pending_] { callback(request->outcome()); };
  registered->executor = std::move(executor);
  core->callbacks().add(*pending_, registered);
  return {};
}

// ---- Client ----

Result<Model> Client::model(std::string_view name, std::uint64_t version) const {
  if (!core_) return no_client();
  SHOAL_ASSIGN_OR_RETURN(ModelInfo info, core_->describe(name, version));
  Model model;
  model.state_ = std::make_shared<const completion::ModelState>(completion::ModelState{
      core_, std::string(name), version, std::make_shared<const ModelInfo>(std::move(info)), core_->know()});
  return model;
}

Prediction Client::submit(std::string_view model, Tensors inputs, const SubmitOptions& options) const {
  if (!core_) return completion::failed(no_client());
  completion::HandleSlot handle;
  core_->submit({.model = model, .inputs = inputs, .outputs = {}, .options = whole(options), .notice = nullptr}, handle);
  return Prediction(handle.get());
}

Result<Tensor> Client::loan(DType dtype, const Shape& shape) const { return core_ ? core_->loan(dtype, shape) : no_client(); }
Result<Tensor> Client::loan_output(DType dtype, const Shape& shape) const {
  return core_ ? core_->loan_output(dtype, shape) : no_client();
}

void Client::poll_once() const {
  const auto core = core_;  // a callback may destroy this Client
  if (!core || !core->usable().ok()) return;
  core->poll();
  core->callbacks().run_in_own_loop();
}

// ---- Model ----

std::shared_ptr<const ModelInfo> Model::info() const {
  static const auto none = std::make_shared<const ModelInfo>();
  if (!state_) return none;
  auto known = state_->core->known_info(state_->name, state_->version, state_->known.get());
  return known ? known : state_->first_info;
}

const std::string& Model::name() const {
  static const std::string none;
  return state_ ? state_->name : none;
}

std::uint64_t Model::version() const { return state_ ? state_->version : 0; }

const std::shared_ptr<completion::ClientCore>& Model::core() const {
  static const std::shared_ptr<completion::ClientCore> none;
  return state_ ? state_->core : none;
}

Prediction Model::submit(Tensors inputs, const SubmitOptions& options) const {
  if (!state_) return completion::failed(no_client());
  SubmitOptions own = whole(options);
  if (own.version == 0) own.version = state_->version;
  const auto known = own.version == state_->version ? state_->known : nullptr;
  completion::HandleSlot handle;
  state_->core->submit({state_->name, inputs, {}, own, nullptr, known}, handle);
  return Prediction(handle.get());
}

Result<Tensors> Model::predict(Tensors inputs, const SubmitOptions& options) const {
  return submit(std::move(inputs), options).get();
}

Inference Model::infer(Tensors inputs, const SubmitOptions& options, std::stop_token stop, Executor executor) const {
  Request request(*this);
  if (request.state_) {
    request.state_->inputs = std::move(inputs);
    request.state_->options = whole(options);
  }
  return infer(std::move(request), std::move(stop), std::move(executor));
}

}  // namespace shoal
