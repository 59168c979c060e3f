#include "shoal/pool.hpp"

#include "client/src/description.hpp"
#include "client/src/pool_core.hpp"
#include "client/src/session_state.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/whole_options.hpp"
#include "shm/completion/request_state.hpp"

namespace shoal {
namespace {

Status moved_from() { return failed_precondition("this Pool was moved from: use the Pool that it was moved to"); }

Status session_moved_from() { return failed_precondition("this Session was moved from: use the Session that it was moved to"); }

}  // namespace

Result<Pool> Pool::connect(const Options& options) {
  SHOAL_ASSIGN_OR_RETURN(auto core, client::PoolCore::connect(whole(options)));
  return Pool(std::move(core));
}

Pool::Pool(std::shared_ptr<client::PoolCore> core) : core_(std::move(core)) {}
Pool::Pool(Pool&&) noexcept = default;

Pool& Pool::operator=(Pool&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->close();
  core_ = std::move(other.core_);
  return *this;
}

Pool::~Pool() {
  if (core_) core_->close();
}

Client Pool::client() const { return Client(core_); }

Prediction Pool::submit(std::string_view model, Tensors inputs, const SubmitOptions& options) {
  return core_ ? client().submit(model, std::move(inputs), options) : completion::failed(moved_from());
}

Result<Session> Pool::open_session(std::string_view model) {
  if (!core_) return moved_from();
  SHOAL_ASSIGN_OR_RETURN(auto state, core_->open_session(model));
  return Session(core_, std::move(state));
}

Session::Session(std::shared_ptr<client::PoolCore> core, std::shared_ptr<client::SessionState> state)
    : core_(std::move(core)), state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  if (this == &other) return *this;
  close();
  core_ = std::move(other.core_);
  state_ = std::move(other.state_);
  return *this;
}

Session::~Session() { close(); }

void Session::close() {
  if (core_) core_->close_session(*state_);
}

Prediction Session::submit(Tensors inputs, const SubmitOptions& options) {
  if (!core_) return completion::failed(session_moved_from());
  completion::HandleSlot handle;
  core_->submit({.model = state_->model, .inputs = inputs, .outputs = {}, .options = whole(options), .notice = nullptr}, state_,
                handle);
  return Prediction(handle.get());
}

Status Session::reset() { return core_ ? core_->reset_session(*state_) : session_moved_from(); }

Result<std::string> Pool::ask(const std::string& question, std::vector<std::byte>* attachment, bool ends_daemon) {
  return core_ ? core_->ask(question, attachment, ends_daemon) : moved_from();
}

Result<std::shared_ptr<const ModelChange>> Pool::make_change(std::string_view what, std::string_view name, std::string_view path,
                                                             bool force, int workers) {
  if (!core_) return moved_from();
  SHOAL_ASSIGN_OR_RETURN(ModelChange changed,
                         core_->change({.what = what, .model = name, .path = path, .workers = workers, .force = force}));
  return std::make_shared<const ModelChange>(std::move(changed));
}

Result<Tensor> Pool::loan(DType dtype, const Shape& shape) { return core_ ? core_->loan(dtype, shape) : moved_from(); }

Result<std::vector<std::string>> Pool::list() {
  SHOAL_ASSIGN_OR_RETURN(const std::string answer, ask(client::control_json("list")));
  return client::parse_names(answer);
}

Result<std::string> Pool::stats() { return ask(client::control_json("stats")); }
Result<std::string> Pool::crashes(std::string_view model) {
  SHOAL_RETURN_IF_ERROR(client::check_model_name(model));
  return ask(client::control_json("crashes", model));
}
Result<FlightRecords> Pool::trace(std::string_view model, std::uint64_t pid) {
  SHOAL_RETURN_IF_ERROR(client::check_model_name(model));
  FlightRecords records;
  SHOAL_ASSIGN_OR_RETURN(records.description, ask(client::control_json("trace", model, 0, pid), &records.events));
  return records;
}
Status Pool::stop() { return ask(client::control_json("stop"), nullptr, true).status(); }

PoolUsage Pool::usage() const { return core_ ? core_->usage() : PoolUsage(); }
void Pool::poll_once() { client().poll_once(); }

}  // namespace shoal
