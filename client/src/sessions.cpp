// PoolCore: sessions, and the states that a request leaves out.
#include <algorithm>
#include <utility>

#include "client/src/pool_core.hpp"
#include "client/src/session_state.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"

namespace shoal::client {
namespace {

constexpr int kIdleLooks = 4;  // a session is idle for at least so many looks

bool has_step_under_way(const SessionState& session) {
  const auto step = session.step.lock();
  return step && !step->is_done();
}

}  // namespace

// A model that does not exist, or has no state, shows at the first step.
Result<std::shared_ptr<SessionState>> PoolCore::open_session(std::string_view model) {
  SHOAL_RETURN_IF_ERROR(usable());
  SHOAL_RETURN_IF_ERROR(check_model_name(model));
  if (!has_arenas()) return failed_precondition("this pool was made without arenas: it cannot open sessions");
  const auto session = std::make_shared<SessionState>();
  session->model = model;
  const Lock lock(*this);
  close_idle_sessions(monotonic_now_ns());
  session->used_ns = idle_clock_ns_;
  if (sessions_.size() >= options_.session_limit) {
    return overloaded("model '{}': {} sessions of this pool are open, and PoolOptions::session_limit allows no more: close some",
                      model, sessions_.size());
  }
  session->place = sessions_.insert(sessions_.end(), session);
  return session;
}

void PoolCore::close_session(SessionState& session) {
  if (fork_guard_.in_child()) return;
  const Lock lock(*this);
  drop_session(session, Status(StatusCode::kCancelled, "closed"));  // nobody reads it; a text of this length allocates nothing
}

Status PoolCore::reset_session(SessionState& session) {
  SHOAL_RETURN_IF_ERROR(usable());
  const Lock lock(*this);
  SHOAL_RETURN_IF_ERROR(use_session(session));
  session.forget();
  return {};
}

void PoolCore::drop_session(SessionState& session, Status why) {
  if (!session.closed.ok()) return;
  session.closed = std::move(why);
  if (!has_step_under_way(session)) session.forget();  // a step that is not sent yet begins with them
  sessions_.erase(session.place);                      // last, because the list may have the only reference
}

// Between two looks this process may have been stopped, so that time counts in part only, however long it was.
void PoolCore::close_idle_sessions(std::uint64_t now_ns) {
  const auto idle_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(options_.session_idle.count(), 0));
  if (idle_ns == 0) return;
  idle_clock_ns_ += std::min(now_ns - std::exchange(looked_for_idle_ns_, now_ns), idle_ns / kIdleLooks + 1);
  while (!sessions_.empty() && sessions_.front()->used_ns + idle_ns <= idle_clock_ns_) {
    SessionState& oldest = *sessions_.front();
    if (has_step_under_way(oldest)) {  // it is used now
      oldest.used_ns = idle_clock_ns_;
      sessions_.splice(sessions_.end(), sessions_, oldest.place);
      continue;
    }
    drop_session(oldest, not_found("model '{}': this session was closed, because it was not used for {} ms "
                                   "(PoolOptions::session_idle): open another one",
                                   oldest.model, idle_ns / 1'000'000));
  }
}

// For a step, or to begin anew.
Status PoolCore::use_session(SessionState& session) {
  close_idle_sessions(monotonic_now_ns());
  if (!session.closed.ok()) return session.closed;
  if (has_step_under_way(session)) {
    return failed_precondition(
        "model '{}': a step of this session is under way: wait for its outcome, also after you have canceled it", session.model);
  }
  session.used_ns = idle_clock_ns_;
  sessions_.splice(sessions_.end(), sessions_, session.place);
  return {};
}

Status PoolCore::begin(const std::shared_ptr<PendingRequest>& request) {
  if (is_closed_) return cancelled("the pool was destroyed");
  if (!request->session) return {};
  SHOAL_RETURN_IF_ERROR(use_session(*request->session));
  request->session->step = request;
  return {};
}

// Adds the states that the caller has left out, anew for each description. prepare() copies those that do not lie in the arena.
// Then it sets their order.
Status PoolCore::complete_inputs(PendingRequest& request) {
  request.inputs.resize(request.given);
  request.specs.resize(request.given);
  std::uint64_t frame_bytes = 0;
  for (const RequestInput& input : request.inputs) frame_bytes += input.arena ? 0 : input.view.size_bytes();
  frame_bytes_.fetch_sub(std::exchange(request.frame_bytes, frame_bytes) - frame_bytes, std::memory_order_relaxed);
  const std::vector<StatePair>& state = request.description->info.state;
  if (request.session) {
    if (state.empty())
      return failed_precondition("model '{}' has no `state` in its model.toml: it cannot have sessions", request.model.name);
    const auto has_kept = [&](const StatePair& pair) { return request.session->find(pair.in) != nullptr; };
    const auto kept = static_cast<std::size_t>(std::ranges::count_if(state, has_kept));
    if (kept != request.session->values.size() || (kept != 0 && kept != state.size()))
      return failed_precondition("model '{}' has other states than when this session began: reset() begins a new sequence",
                                 request.model.name);
  }
  for (std::size_t i = 0; !state.empty() && i < request.given; ++i) {  // before zeros are made after their shapes
    const Description& model = *request.description;
    SHOAL_RETURN_IF_ERROR(check_input_name(model.info.name, model.info.inputs, model.ignored_inputs, request.specs[i].name));
  }
  for (const StatePair& pair : state) {
    if (std::ranges::count(request.specs, pair.in, &TensorSpec::name) > 0) continue;
    if (Status added = add_state(pair, request); !added.ok()) return added.with_context(format("model '{}'", request.model.name));
  }
  return match_inputs(*request.description, request.specs, request.order);
}

Status PoolCore::add_state(const StatePair& pair, PendingRequest& request) {
  const ModelInfo& model = request.description->info;
  SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, zero_state(model.inputs, model.state, pair, request.specs));
  RequestInput input{.view = {spec.dtype, spec.shape, nullptr}};  // zeros
  if (const Tensor* const kept = request.session ? request.session->find(pair.in) : nullptr) {
    if (kept->dtype() != spec.dtype || kept->shape() != spec.shape) {
      return failed_precondition(
          "state '{}' of this session is {} of shape {}, and this step wants {} of shape {}: the model was reloaded, or the "
          "batch has changed. reset() begins a new sequence",
          pair.in, dtype_name(kept->dtype()), kept->shape().to_string(), dtype_name(spec.dtype), spec.shape.to_string());
    }
    input.view = kept->view();
    input.owner = kept->owner();
  }
  input.place_in(*input_);
  request.specs.push_back(std::move(spec));
  request.inputs.push_back(std::move(input));
  return {};
}

std::uint64_t PoolCore::bytes_of_sessions() const {
  std::uint64_t bytes = 0;
  for (const auto& session : sessions_) {
    for (const SessionState::Value& value : session->values) bytes += value.now.size_bytes();
  }
  return bytes;
}

}  // namespace shoal::client
