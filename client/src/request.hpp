// PendingRequest and ControlCall: what a thread of the pool waits for.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/src/arena.hpp"
#include "client/src/description.hpp"
#include "shm/base/errors.hpp"
#include "shm/completion/pending_outcome.hpp"
#include "shoal/client.hpp"

namespace shoal::client {

struct SessionState;

inline constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();  ///< as the end of a wait: no end

inline std::uint64_t count_ns(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
}

/// Without memory, the text is one that needs none: each request must end.
inline Status copy_of(const Status& why) noexcept try { return why; } catch (const std::bad_alloc&) {
  return Status(why.code(), "out of memory");
}

/// One input of a request: a slot of an input arena, or bytes that travel as a frame.
struct RequestInput {
  TensorView view;
  std::shared_ptr<void> owner;   ///< the slot, or the caller's memory
  const Arena* arena = nullptr;  ///< which `owner` keeps; null: a frame
  std::uint64_t offset = 0;
  bool is_placed = false;   ///< it lies in `arena`, or is a frame; otherwise it must be copied
  bool is_callers = false;  ///< `owner` is the caller's, and its deleter may do anything

  bool is_placed_in(const Arena* now) const { return is_placed && (!arena || arena == now); }
  /// If its bytes lie there.
  void place_in(const Arena& there) {
    const auto found = there.offset_of(view);
    if (!found) return;
    arena = &there;
    offset = *found;
    is_placed = true;
  }
};

/// Owners that callers gave to their tensors, and other things that end as owners do. To be destroyed without the core's mutex,
/// because a deleter may use the pool.
using Owners = std::vector<std::shared_ptr<void>>;
inline void leave(std::shared_ptr<void> owner, Owners& left) noexcept try {
  if (owner) left.push_back(std::move(owner));
} catch (const std::bad_alloc&) {  // it is destroyed with the mutex held
}
inline void leave_owner(RequestInput& input, Owners& left) noexcept {
  if (input.is_callers) leave(std::move(input.owner), left);
}
inline void leave_owners(Tensors& tensors, Owners& left) noexcept {
  for (NamedTensor& tensor : tensors) leave(std::exchange(tensor.tensor, {}).owner(), left);
}

/// Where an output goes: a slot of an output arena that was offered for it.
struct OutputSlot {
  std::shared_ptr<void> owner;  ///< null: none was offered
  std::byte* data = nullptr;
  std::uint64_t offset = 0, capacity_bytes = 0;
  bool is_callers = false;  ///< memory of the caller's, which may be offered again
};

/// A model or one version of it. Each has a description.
struct ModelKey {
  std::string name;
  std::uint64_t version = 0;  ///< 0 = the default version
  friend auto operator<=>(const ModelKey&, const ModelKey&) = default;
};

/// A request of this client, from submit() until its slots are released. The core's mutex guards it, except for the outcome of a
/// request that is done.
struct PendingRequest : completion::Waitable {
  std::uint64_t seq = 0;
  ModelKey model;
  std::shared_ptr<void> known;            ///< the KnownModel of its Model; null: it was submitted by name
  std::shared_ptr<SessionState> session;  ///< whose step it is, or null
  std::vector<TensorSpec> specs;          ///< of the inputs: in the caller's order, then the states that the caller has left out
  std::vector<RequestInput> inputs;       ///< in the same order
  std::size_t given = 0;                  ///< how many are the caller's
  std::vector<std::size_t> order;         ///< by input of the model: which of them it is
  SubmitOptions options;
  std::uint64_t deadline_ns = kForever;            ///< CLOCK_MONOTONIC; kForever: the model's default counts
  std::uint64_t sent_ns = 0;                       ///< when it was last sent
  std::vector<OutputSlot> output_slots;            ///< by output
  Tensors own_outputs;                             ///< memory of the caller's for some outputs
  std::uint64_t shape_key = 0;                     ///< hash of the input shapes, for remembering output sizes
  std::shared_ptr<const Description> description;  ///< that it was sent with
  std::uint64_t frame_bytes = 0;                   ///< of its inputs that travel as frames, until its slots are released
  bool is_begun = false;                           ///< its inputs are placed, by the thread that submits it
  bool is_being_prepared = false;                  ///< it is parked until prepare() has copied its inputs
  bool is_prepared = false;                        ///< for `description`
  bool is_answered = false;                        ///< it is done when finish() has copied its answer
  bool is_being_copied = false;                    ///< finish() copies it now, without the mutex
  bool waits_for_memory = false;                   ///< it is parked until a worker no longer writes the memory for its outputs
  bool may_have_run = false;                       ///< with an earlier daemon
  bool is_cancelled = false;                       ///< a CANCEL was sent, or it ends when it is begun
  bool has_described_again = false;                ///< because inputs did not fit or the model's signature changed
  Outcome outcome;
  completion::Notices notices;  ///< told when it is done
  Tensors room;                 ///< outputs of the last time, for the names and room that they have
  using ByNumber = std::unordered_map<std::uint64_t, std::shared_ptr<PendingRequest>>;
  ByNumber::node_type place = {};  ///< in the core's map of sent requests, while it is not there

  /// For another time, if it is done and its slots are released. Keeps what it has allocated.
  void begin_again() {
    if (outcome.outputs.ok()) room = *std::move(outcome.outputs);
    for (NamedTensor& output : room) output.tensor = {};
    outcome = {};
    set_done(false);
    session.reset();
    given = 0;
    deadline_ns = kForever;
    is_begun = is_being_prepared = is_prepared = is_answered = is_being_copied = waits_for_memory = may_have_run = is_cancelled =
        has_described_again = false;
  }

  Status canceled_by_caller() const noexcept try {
    return cancelled("model '{}': the caller canceled the request", model.name);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kCancelled, "canceled");  // a text of this length allocates nothing
  }
  void complete(Outcome result) {
    outcome = std::move(result);
    set_done();
  }
  /// Whether another answer would be too late: it is done, or will be by the answer that it has.
  bool is_settled() const { return is_done() || is_answered; }
  /// Called when it is done: only an unanswered request is sent again.
  void drop_frames(Owners& left) {
    std::erase_if(inputs, [&](RequestInput& input) {
      if (!input.arena) leave_owner(input, left);
      return !input.arena;
    });
  }
  /// Called when no worker uses the slots any more. Slots in tensors of the user stay taken.
  void release_inputs(Owners& left) {
    for (RequestInput& input : inputs) leave_owner(input, left);
    inputs.clear();
  }
};

inline constexpr std::uint64_t kAnswerGraceNs = 50'000'000;  ///< time for the daemon's own DEADLINE_EXCEEDED to arrive
/// When it should have arrived.
inline std::uint64_t overdue_ns(const PendingRequest& request) {
  return request.deadline_ns + std::min(kAnswerGraceNs, kForever - request.deadline_ns);
}

/// One control request.
struct ControlCall : completion::Waitable {
  std::uint64_t seq = 0;
  std::string json;
  bool is_sent = false;
  bool ends_daemon = false;           ///< the end of the connection counts as the answer
  std::optional<ModelKey> describes;  ///< the model whose description it asks for
  std::vector<std::byte> attachment;  ///< the frame after the answer, if there is one
  Result<std::string> answer = Status(StatusCode::kInternal, "no answer yet");

  void complete(Result<std::string> result) {
    answer = std::move(result);
    set_done();
  }
};

}  // namespace shoal::client
