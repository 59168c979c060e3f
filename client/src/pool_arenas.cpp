// PoolCore: which tensors lie in which arena, and arenas that shrink.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "client/src/pool_core.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal::client {
namespace {

constexpr std::size_t kUsualStates = 4;                 // of a model with sessions
constexpr std::uint64_t kMostMovedBytes = 64 << 20;     // of sessions
constexpr std::uint64_t kPartIntervalNs = 10'000'000;   // while the output arena shrinks
constexpr std::uint64_t kAttachAnewNs = 2'000'000'000;  // for the handshake of next_, and for a moment at which it can take over

std::uint64_t shape_key_of(const PendingRequest& request) {
  std::uint64_t key = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t value) { key = (key ^ value) * 0x100000001b3; };
  for (const TensorSpec& input : request.specs) {
    mix(static_cast<std::uint64_t>(input.shape.rank()));
    for (const std::int64_t dim : input.shape.dims()) mix(static_cast<std::uint64_t>(dim));
  }
  return key;
}

// The size of an output according to describe(). An open first dimension counts as the batch. 0 if the size is not known.
std::uint64_t guess_bytes(const TensorSpec& output, const PendingRequest& request) {
  Shape shape = output.shape;
  if (request.specs.empty()) return 0;
  const Shape& first_input = request.specs.front().shape;
  if (shape.rank() > 0 && shape[0] < 0 && first_input.rank() > 0) shape[0] = first_input[0];
  const std::int64_t count = shape.element_count();
  return count < 0 ? 0 : static_cast<std::uint64_t>(count) * dtype_size_bytes(output.dtype);
}

std::string describe_room(const Arena& arena) {
  const Arena::Use use = arena.use();
  return format("{} bytes are used, {} allocated, and at most {} may be allocated{}", use.used_bytes, use.allocated_bytes,
                arena.reserved_bytes(), use.loans > 0 ? format("; {} loans are held", use.loans) : "");
}

ArenaUsage usage_of(const Arena* arena) {
  if (!arena) return {};
  const Arena::Use use = arena->use();
  return {.reserved_bytes = arena->reserved_bytes(), .allocated_bytes = use.allocated_bytes, .used_bytes = use.used_bytes};
}

}  // namespace

std::shared_ptr<Arena> PoolCore::arena_for_inputs() {
  const MutexLock lock(inputs_mutex_);
  return for_inputs_;
}

void PoolCore::use_input(std::shared_ptr<Arena> arena) {
  input_ = std::move(arena);
  const MutexLock lock(inputs_mutex_);
  for_inputs_ = input_;
}

Status PoolCore::place_inputs(std::span<const NamedTensor> inputs, PendingRequest& request) {
  if (!has_arenas()) return failed_precondition("this pool was made without arenas: it cannot submit requests");
  const std::shared_ptr<Arena> arena = arena_for_inputs();
  if (inputs.size() > wire::kMaxTensors)
    return invalid_argument("{} inputs in one request (at most {})", inputs.size(), wire::kMaxTensors);
  const std::size_t states = request.session ? kUsualStates : 0;  // which it leaves out
  request.specs.reserve(inputs.size() + states);
  request.inputs.reserve(inputs.size() + states);
  request.specs.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const NamedTensor& named = inputs[i];
    RequestInput input;
    input.view = named.tensor.view();
    const std::int64_t count = input.view.element_count();
    if (count < 0 || dtype_size_bytes(input.view.dtype) == 0 || (count > 0 && input.view.size_bytes() == 0)) {
      return invalid_argument("input '{}': {} of shape {} is not a valid tensor", named.name, dtype_name(input.view.dtype),
                              input.view.shape.to_string());
    }
    request.specs[i].name = named.name;
    request.specs[i].dtype = input.view.dtype;
    request.specs[i].shape = input.view.shape;
    if (input.view.size_bytes() > 0 && !input.view.data)
      return invalid_argument("input '{}': its tensor has no bytes", named.name);
    input.owner = named.tensor.owner();
    input.is_callers = true;
    SHOAL_RETURN_IF_ERROR(place_input(input, *arena, request.model.name, request.frame_bytes));
    request.inputs.push_back(std::move(input));
  }
  request.given = request.inputs.size();
  request.shape_key = shape_key_of(request);
  return {};
}

// What lies in the arena stays where it is: a loan, or the state of a session.
Status PoolCore::place_input(RequestInput& input, Arena& arena, const std::string& model, std::uint64_t& frame_bytes) {
  input.is_placed = false;
  input.place_in(arena);
  if (!input.is_placed) SHOAL_RETURN_IF_ERROR(copy_input(input, arena, model, frame_bytes));
  input.is_placed = true;
  return {};
}

// Copies its bytes, or zeros if it has none, into the arena, or, if there is no room, to where they can travel as a frame. Frames
// that the daemon does not read fill the heap. One request may have as many as the daemon takes, so that a single large one is
// not refused here.
Status PoolCore::copy_input(RequestInput& input, Arena& arena, const std::string& model, std::uint64_t& frame_bytes) {
  const std::size_t size_bytes = input.view.size_bytes();
  if (auto slot = arena.allocate(size_bytes)) {
    input.view.data ? std::memcpy(slot->data(), input.view.data, size_bytes) : std::memset(slot->data(), 0, size_bytes);
    input.view.data = slot->data();
    input.offset = slot->offset();
    input.arena = &arena;
    input.owner = std::move(slot);
    input.is_callers = false;
    return {};
  }
  const std::uint64_t most = most_frame_bytes_.load(std::memory_order_relaxed);
  if (!input.view.data && size_bytes > most) {  // other inputs have their memory already, and are checked with their names
    return overloaded(
        "model '{}': shared memory has no room for a state of {} bytes that was left out ({}), and the daemon in {} takes no "
        "message of more than {} ([limits] client_message_mb)",
        model, size_bytes, describe_room(arena), options_.directory, most);
  }
  const std::uint64_t others = frame_bytes_.fetch_add(size_bytes, std::memory_order_relaxed) - frame_bytes;
  frame_bytes += size_bytes;
  if (others > 0 && others + frame_bytes > most) {
    return overloaded(
        "model '{}': shared memory has no room for an input of {} bytes, and inputs of {} bytes are in messages that the daemon "
        "in {} has not released: it takes {} bytes of one client ([limits] client_message_mb)",
        model, size_bytes, others, options_.directory, most);
  }
  SHOAL_ASSIGN_OR_RETURN(Tensor copy, Tensor::create(input.view.dtype, input.view.shape));
  if (input.view.data) std::memcpy(copy.view().data, input.view.data, size_bytes);
  input.view.data = copy.view().data;
  input.offset = 0;
  input.arena = nullptr;
  input.owner = copy.owner();
  input_copies_.add(size_bytes);
  return {};
}

Status PoolCore::no_room_for(const RequestInput& input, std::string_view name, const PendingRequest& request) const {
  const std::uint64_t size_bytes = input.view.size_bytes();
  const std::string text = format(
      "model '{}', input '{}': shared memory has no room for its {} bytes ({}), and the daemon takes no message of more than "
      "{} ([limits] client_message_mb)",
      request.model.name, name, size_bytes, describe_room(*input_), connection_->longest_frame_bytes());
  return size_bytes > input_->reserved_bytes() ? invalid_argument("{}", text) : overloaded("{}", text);
}

Result<Tensor> PoolCore::loan(DType dtype, const Shape& shape) {
  SHOAL_RETURN_IF_ERROR(usable());
  if (!has_arenas()) return failed_precondition("this pool was made without arenas: it has no loans");
  return loan_in(*arena_for_inputs(), dtype, shape);
}

Result<Tensor> PoolCore::loan_output(DType dtype, const Shape& shape) {
  SHOAL_RETURN_IF_ERROR(usable());
  std::shared_ptr<Arena> arena;
  {
    const Lock lock(*this);
    arena = output_;
  }
  if (!arena) return failed_precondition("this pool has no arena for outputs: it was made without, or there is no daemon now");
  return loan_in(*arena, dtype, shape);
}

Result<Tensor> PoolCore::loan_in(Arena& arena, DType dtype, const Shape& shape) {
  const std::int64_t count = shape.element_count();
  const std::uint64_t element_bytes = dtype_size_bytes(dtype);
  if (count < 0 || element_bytes == 0)
    return invalid_argument("a loan of {} and shape {}: every dimension must be at least 0, and the dtype valid",
                            dtype_name(dtype), shape.to_string());
  if (static_cast<std::uint64_t>(count) <= arena.reserved_bytes() / element_bytes) {
    const TensorView view{dtype, shape, nullptr};
    if (auto slot = arena.allocate(view.size_bytes(), /*is_loan=*/true)) return Tensor({dtype, shape, slot->data()}, slot);
  }
  return overloaded("shared memory has no room for a loan of {} and shape {} ({}): release loans", dtype_name(dtype),
                    shape.to_string(), describe_room(arena));
}

std::uint64_t PoolCore::output_bytes(const PendingRequest& request, const ModelEntry& entry, std::size_t i) {
  const auto learned = entry.output_bytes.find(request.shape_key);
  if (learned != entry.output_bytes.end() && i < learned->second.size()) return learned->second[i];
  return guess_bytes(entry.description->info.outputs[i], request);
}

void PoolCore::offer_outputs(PendingRequest& request, const ModelEntry& entry) {
  const std::vector<TensorSpec>& outputs = entry.description->info.outputs;
  take_back_outputs(request);
  request.output_slots.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OutputSlot& offered = request.output_slots[i];
    if (!request.own_outputs.empty()) offered = offer_own(request, outputs[i].name);
    const std::uint64_t bytes = offered.owner ? 0 : output_bytes(request, entry, i);
    if (auto slot = bytes > 0 ? output_->allocate(bytes) : nullptr)
      offered = {slot, slot->data(), slot->offset(), slot->capacity_bytes(), false};
  }
}

// Memory of the caller's that lies in the output arena. Into other memory the output is copied when it has come. No worker writes
// there for an earlier request: see waits_for_memory().
OutputSlot PoolCore::offer_own(const PendingRequest& request, std::string_view name) {
  const auto own = std::ranges::find(request.own_outputs, name, &NamedTensor::name);
  if (own == request.own_outputs.end()) return {};
  const TensorView& view = own->tensor.view();
  const auto offset = output_->offset_of(view);
  if (!offset || !own->tensor.owner()) return {};
  own_in_use_.push_back(view.data);
  return {own->tensor.owner(), view.data, *offset, view.size_bytes(), true};
}

// A worker may still write the memory that is for its outputs, for an earlier request that has ended without an answer. An answer
// would lie there for a moment only.
bool PoolCore::waits_for_memory(const std::shared_ptr<PendingRequest>& request) {
  const auto data_of = [](const NamedTensor& own) { return own.tensor.view().data; };
  if (std::ranges::find_first_of(request->own_outputs, own_in_use_, {}, data_of) == request->own_outputs.end()) return false;
  request->waits_for_memory = some_wait_for_memory_ = true;
  park(request);
  return true;
}

// Memory is free that was for outputs of callers.
void PoolCore::send_what_waited() {
  if (!std::exchange(some_wait_for_memory_, false) || !is_ready()) return;
  for (auto next = parked_.begin(); next != parked_.end();) {
    const std::shared_ptr<PendingRequest> request = next->second;
    ModelEntry* const known = entry_of(*request);
    if (!request->waits_for_memory || !known || !known->description) {
      ++next;
      continue;
    }
    request->waits_for_memory = false;
    parked_.erase(next);
    send_request(request, *known);
    next = parked_.upper_bound(request->seq);  // send_request() may park it again, or end others
  }
}

// To grow an arena takes long. So prepare() does it without the mutex, and offer_outputs() finds the room then. It grows the
// arena itself only if other threads have taken the room, or it is in small pieces.
std::uint64_t PoolCore::missing_output_bytes(const PendingRequest& request, const ModelEntry& entry) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < entry.description->info.outputs.size(); ++i)
    bytes += align_up(std::min(output_bytes(request, entry, i), wire::kLargestArenaBytes), wire::kSlotAlignment);
  const Arena::Use use = output_->use();
  return bytes <= use.allocated_bytes - use.used_bytes ? 0 : bytes;
}

PoolUsage PoolCore::usage() {
  if (fork_guard_.in_child()) return {};
  PoolUsage usage{usage_of(arena_for_inputs().get()), {}};
  {
    const Lock lock(*this);
    usage.outputs = usage_of(output_.get());
  }
  const auto add = [](ArenaUsage& to, const Copies& copies) {
    to.copied = copies.count.load(std::memory_order_relaxed);
    to.copied_bytes = copies.bytes.load(std::memory_order_relaxed);
  };
  add(usage.inputs, input_copies_);
  add(usage.outputs, output_copies_);
  return usage;
}

// ---- attaching with smaller arenas ----

// The daemon has refused connection_ because the arenas do not fit what all clients may have. True if smaller ones may fit. Loans
// of the present arena are copied from now on.
bool PoolCore::take_smaller_arenas() {
  const std::uint64_t each = connection_->arena_room_bytes() / 2 / kPageBytes * kPageBytes;
  if (!input_ || each < Arena::kLeastStep || each >= arena_limit_bytes_) return false;
  arena_limit_bytes_ = each;
  input_.reset();
  output_.reset();
  return true;
}

// What follows keeps the memory of a burst from staying forever. The output arena gives its end back. Nobody can punch holes into
// an input arena, because its seal keeps workers from writing it. So the pool attaches anew with another one, beside the
// connection that it has: requests under way end there.
void PoolCore::tend_arenas(std::uint64_t now_ns) {
  if (keep_of_output_ && now_ns >= next_part_ns_) {
    const bool goes_on = ShrinkRule::goes_on(*keep_of_output_, output_->use().peak_bytes);
    if (!goes_on || !output_->shrink(*keep_of_output_)) keep_of_output_.reset();
    next_part_ns_ = now_ns + kPartIntervalNs;
  }
  if (old_ && !old_->advance(now_ns).ok()) {  // its requests may be running, so their slots cannot be used again
    return lose_connection(unavailable("the daemon in {} closed a connection that had requests under way", options_.directory));
  }
  if (next_) {
    const bool had_socket = next_->has_socket();
    const Status advanced = next_->advance(now_ns);
    if (is_driven_ && had_socket != next_->has_socket()) ::eventfd_write(wake_fd_.get(), 1);
    if (advanced.ok() && next_->is_ready() && !old_ && calls_.empty() && input_->use().loans == 0) {
      switch_connections();
    } else if (!advanced.ok() || now_ns >= next_->give_up_at_ns()) {
      next_.reset();
      next_input_.reset();
    }
  } else if (shrink_rule_.is_over(now_ns)) {
    shrink_arenas(now_ns);
  }
}

void PoolCore::shrink_arenas(std::uint64_t now_ns) {
  if (!input_) return shrink_rule_.begin(now_ns);
  const Arena::Use input = input_->use(), output = output_->use();
  keep_of_output_ = ShrinkRule::keep(output.allocated_bytes, output.peak_bytes);
  const bool shrinks_input =
      ShrinkRule::keep(input.allocated_bytes, input.peak_bytes) && input.loans == 0 && bytes_of_sessions() <= kMostMovedBytes;
  input_->forget_peak();
  output_->forget_peak();
  if (!keep_of_output_ && !shrinks_input) return shrink_rule_.begin(now_ns);
  shrink_rule_.begin_longer(now_ns);
  if (keep_of_output_ && is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver goes on with it
  if (!shrinks_input || old_) return;
  auto smaller = Arena::create("input", arena_limit_bytes_, Seals::kOneWriter);
  if (!smaller.ok()) return;
  auto begun = Connection::begin(context_, options_.directory.string(), smaller->get(), output_.get(), now_ns + kAttachAnewNs);
  if (!begun.ok()) return;
  // Another daemon may have taken the place of ours, which still answers. It knows neither what we know of the models nor our
  // requests, and the workers of ours may write into the output arena.
  if (!connection_ || !(*begun)->has_same_daemon(*connection_)) return;
  next_input_ = *std::move(smaller);
  next_ = *std::move(begun);
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver must poll the new descriptors
}

void PoolCore::switch_connections() {
  old_ = std::exchange(connection_, std::move(next_));
  (void)connection_->take_descriptions();  // the daemon is the same
  old_requests_ = std::exchange(requests_, {});
  left_input_ = input_;
  use_input(std::exchange(next_input_, nullptr));
  for (const auto& session : sessions_) move_later(session);
  leave_old_connection();
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);
}

void PoolCore::leave_old_connection() {
  if (!old_ || !old_requests_.empty()) return;
  old_.reset();
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);
}

// Requests of old_ have slots in left_input_.
PoolCore::Left PoolCore::take_left() {
  Left left;
  left.arenas = {old_ ? nullptr : std::exchange(left_input_, nullptr), std::exchange(left_output_, nullptr)};
  const std::size_t count = std::min(left_owners_.size(), left.owners.size());
  std::move(left_owners_.end() - static_cast<std::ptrdiff_t>(count), left_owners_.end(), left.owners.begin());
  left_owners_.resize(left_owners_.size() - count);
  return left;
}

void PoolCore::drop_other_connections() {
  next_.reset();
  next_input_.reset();
  old_.reset();
}

}  // namespace shoal::client
