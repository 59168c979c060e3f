// PoolCore: what may take long is done here without the mutex: copying tensors and states, and growing arenas for them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "client/src/pool_core.hpp"
#include "client/src/session_state.hpp"
#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal::client {
namespace {

template <typename T>
T take_first(std::deque<T>& queue) {
  T first = std::move(queue.front());
  queue.pop_front();
  return first;
}

// Uses the slot again, unless a worker may still read it: that of an earlier step which nobody waits for.
Status copy_state(const Tensor& from, Tensor& to, Arena* arena) {
  if (to.owner().use_count() != 1 || to.size_bytes() != from.size_bytes() || !arena || !arena->offset_of(to.view())) {
    if (const auto slot = arena ? arena->allocate(from.size_bytes()) : nullptr) {
      to = Tensor({from.dtype(), from.shape(), slot->data()}, slot);
    } else {  // each step copies it
      SHOAL_ASSIGN_OR_RETURN(to, Tensor::create(from.dtype(), from.shape()));
    }
  }
  const std::size_t size_bytes = from.size_bytes();
  to.view() = {from.dtype(), from.shape(), to.view().data};
  if (size_bytes > 0) std::memcpy(to.view().data, from.view().data, size_bytes);
  return {};
}

}  // namespace

bool PoolCore::copy_outside() {
  for (bool has_copied = false;; has_copied = true) {
    if (answers_.empty() && unprepared_.empty() && to_move_.empty()) return has_copied;
    wake_next_driver();  // this thread may have been the driver, and copying takes long
    if (!answers_.empty())
      finish(take_first(answers_));
    else if (!unprepared_.empty())
      prepare(take_first(unprepared_));
    else
      move_session(*take_first(to_move_));
  }
}

// ---- answers ----

void PoolCore::finish(Answer answer) {
  PendingRequest& request = *answer.request;
  if (request.is_done()) {  // given up: the memory for its outputs may be gone
    leave_owners(answer.own_outputs, left_owners_);
    return complete(request, std::move(answer.outcome));
  }
  std::vector<Tensor> states;
  if (request.session) states = std::exchange(request.session->spare, {});
  const std::shared_ptr<Arena> arena = input_;
  ++copying_;
  request.is_being_copied = true;
  mutex_.unlock();
  Status copied = copy_answer(answer, arena.get(), states);
  mutex_.lock();
  --copying_;
  request.is_being_copied = false;
  if (copied.ok() && request.session) copied = keep_states(request, std::move(states));
  if (request.session && arena != input_) move_later(request.session);
  leave_owners(answer.own_outputs, left_owners_);
  if (!copied.ok()) {
    if (answer.outcome.outputs.ok()) leave_owners(*answer.outcome.outputs, left_owners_);
    answer.outcome.outputs = std::move(copied);
  }
  complete(request, std::move(answer.outcome));
  copied_.notify_all();
}

// Without memory it keeps the earlier arena until its next step.
void PoolCore::move_later(const std::shared_ptr<SessionState>& session) try {
  to_move_.push_back(session);
} catch (const std::bad_alloc&) {
}

// Tensors that came as frames go to this process's heap, the states of a session to slots of the input arena.
Status PoolCore::copy_answer(Answer& answer, Arena* arena, std::vector<Tensor>& states) try {
  const PendingRequest& request = *answer.request;
  const Tensors& outputs = *answer.outcome.outputs;
  std::size_t next_frame = 1;  // after the text
  for (NamedTensor& output : *answer.outcome.outputs) {
    const Tensor came = output.tensor;
    const auto bytes = came.owner() ? came.view().bytes() : answer.payload[next_frame++];
    const auto own = std::ranges::find(answer.own_outputs, output.name, &NamedTensor::name);
    if (own != answer.own_outputs.end()) {
      const Tensor& memory = own->tensor;
      SHOAL_RETURN_IF_ERROR(
          check_matches({output.name, came.dtype(), came.shape()}, memory.dtype(), memory.shape(), "the memory for output")
              .with_context(format("model '{}'", request.model.name)));
      output.tensor = memory;
    } else if (!came.owner()) {
      SHOAL_ASSIGN_OR_RETURN(output.tensor, Tensor::create(came.dtype(), came.shape()));
    }
    if (output.tensor.view().data == bytes.data()) continue;
    std::ranges::copy(bytes, output.tensor.view().data);
    if (!bytes.empty()) output_copies_.add(bytes.size());
  }
  answer.payload = {};
  if (!request.session) return {};
  const std::vector<StatePair>& pairs = request.description->info.state;
  states.resize(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto output = std::ranges::find(outputs, pairs[i].out, &NamedTensor::name);
    if (output == outputs.end())
      return internal_error("model '{}' has no output '{}' for its state '{}'", request.model.name, pairs[i].out, pairs[i].in);
    SHOAL_RETURN_IF_ERROR(copy_state(output->tensor, states[i], arena));
  }
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("the answer of a request", answer.request->model.name);
}

// All new states become those of the session, or none does. A step that has ended meanwhile without OK changes nothing.
Status PoolCore::keep_states(const PendingRequest& request, std::vector<Tensor> states) try {
  SessionState& session = *request.session;
  if (request.is_done() || !session.closed.ok()) return {};
  const std::vector<StatePair>& pairs = request.description->info.state;
  if (!std::ranges::equal(session.values, pairs, {}, &SessionState::Value::in, &StatePair::in)) {
    std::vector<SessionState::Value> first;
    for (const StatePair& pair : pairs) first.push_back({pair.in, {}});
    session.values = std::move(first);
  }
  for (std::size_t i = 0; i < states.size(); ++i) std::swap(session.values[i].now, states[i]);
  session.spare = std::move(states);
  session.used_ns = idle_clock_ns_;
  sessions_.splice(sessions_.end(), sessions_, session.place);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("the answer of a request", request.model.name);
}

// ---- requests ----

// The order of the inputs, with the states that the caller has left out.
Status PoolCore::order_inputs(PendingRequest& request, const ModelEntry& entry) {
  request.is_prepared = request.is_prepared && request.description == entry.description;
  request.description = entry.description;
  return request.is_prepared ? match_inputs(*entry.description, request.specs, request.order) : complete_inputs(request);
}

// Parks the request for prepare() if it cannot be sent as it is.
bool PoolCore::waits_for_copies(const std::shared_ptr<PendingRequest>& request, const ModelEntry& entry) {
  const auto is_placed = [arena = input_.get()](const RequestInput& input) { return input.is_placed_in(arena); };
  const bool has_room = std::exchange(request->is_prepared, false) || missing_output_bytes(*request, entry) == 0;
  if (has_room && std::ranges::all_of(request->inputs, is_placed)) return false;
  unprepared_.push_back(request);
  request->is_being_prepared = true;
  park(request);
  return true;
}

// It is parked, so it may end meanwhile.
void PoolCore::prepare(const std::shared_ptr<PendingRequest>& request) try {
  request->is_being_prepared = false;
  if (!parked_.contains(request->seq) || !is_ready()) return;
  const ModelEntry* const known = entry_of(*request);
  if (!known || !known->description) return ask_description_for(request);  // it is another one now
  const std::uint64_t outputs_bytes = missing_output_bytes(*request, *known), frame_bytes_before = request->frame_bytes;
  std::uint64_t frame_bytes = frame_bytes_before;
  std::vector<RequestInput> inputs = request->inputs;
  const std::shared_ptr<Arena> input = input_, output = output_;
  request->is_being_prepared = true;
  mutex_.unlock();
  Status placed;
  try {
    for (auto next = inputs.begin(); next != inputs.end() && placed.ok(); ++next) {
      if (!next->is_placed_in(input.get())) placed = place_input(*next, *input, request->model.name, frame_bytes);
    }
    if (outputs_bytes > 0) output->allocate(outputs_bytes).reset();
  } catch (const std::bad_alloc&) {
    placed = out_of_memory("the inputs of a request", request->model.name);
  }
  mutex_.lock();
  request->is_being_prepared = false;
  const bool is_parked = parked_.contains(request->seq);
  if (is_parked) request->inputs.swap(inputs);
  for (RequestInput& no_longer_needed : inputs) leave_owner(no_longer_needed, left_owners_);
  if (!is_parked) {
    frame_bytes_.fetch_sub(frame_bytes - frame_bytes_before, std::memory_order_relaxed);
    return;
  }
  request->frame_bytes = frame_bytes;
  if (!placed.ok()) return fail(*request, std::move(placed));
  request->is_prepared = true;
  if (!is_ready()) return;  // then it is sent later
  ModelEntry* const still_known = entry_of(*request);
  if (!still_known || !still_known->description) return ask_description_for(request);
  parked_.erase(request->seq);
  send_request(request, *still_known);
} catch (const std::bad_alloc&) {
  fail(*request, out_of_memory("a request", request->model.name));
}

// ---- sessions ----

// To the present input arena, so that sessions that nobody uses do not keep an earlier one. A step under way has its own hold on
// the slot that a worker may read.
void PoolCore::move_session(SessionState& session) try {
  session.spare.clear();
  std::vector<Tensor> states(session.values.size()), moved(states.size());
  std::ranges::transform(session.values, states.begin(), &SessionState::Value::now);
  const std::shared_ptr<Arena> arena = input_;
  mutex_.unlock();
  try {
    for (std::size_t i = 0; arena && i < states.size(); ++i) {
      if (!states[i].owner() || arena->offset_of(states[i].view())) continue;
      if (!copy_state(states[i], moved[i], arena.get()).ok()) moved[i] = {};
    }
  } catch (const std::bad_alloc&) {  // then it stays until its next steps
  }
  mutex_.lock();
  // A step that has ended meanwhile left its earlier states there. They may be the last in an arena that is no longer used.
  std::vector<Tensor> left = std::exchange(session.spare, {});
  for (std::size_t i = 0; i < std::min(states.size(), session.values.size()); ++i) {
    if (moved[i].owner() && session.values[i].now.owner() == states[i].owner()) session.values[i].now = std::move(moved[i]);
  }
  mutex_.unlock();  // the last slot of an arena unmaps it, which takes long
  states.clear();
  left.clear();
  mutex_.lock();
} catch (const std::bad_alloc&) {  // likewise
}

}  // namespace shoal::client
