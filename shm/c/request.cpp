#include <algorithm>
#include <array>
#include <cstdint>

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"
#include "shoal/completion_queue.hpp"

namespace shoal::c {
namespace {

constexpr std::size_t kTakenAtOnce = 64;

const Outcome& no_request_outcome() {
  static const Outcome outcome{.outputs = Status(StatusCode::kInvalidArgument, "the request is NULL")};
  return outcome;
}

/// Sets one of the options.
template <typename Set>
shoal_status* change(shoal_request* handle, Set&& set) {
  return call([&]() -> Status {
    Request& request = object_of(handle).request;
    if (!request.is_under_way()) return set(request);
    return failed_precondition("model '{}': the request is under way: take it from its queue first", request.model().name());
  });
}

/// Takes up to `capacity` completions by take(span).
template <typename Take>
shoal_status* take(shoal_completion* completions, std::size_t capacity, std::size_t* count, Take&& take_some) {
  return call([&]() -> Status {
    if (capacity == 0) return invalid_argument("capacity is 0");
    std::array<Completion, kTakenAtOnce> taken;
    *count = take_some(std::span(taken).first(std::min(capacity, taken.size())));
    for (std::size_t i = 0; i < *count; ++i)
      completions[i] = {taken[i].tag, reinterpret_cast<shoal_request*>(taken[i].request.id())};
    return {};
  });
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;
using shoal::Status;

// ---- Requests ----

shoal_status* shoal_request_create(const shoal_model* model, shoal_request** request) {
  SHOAL_C_GIVES(request);
  SHOAL_C_NEEDS(model);
  return call([&]() -> Status {
    SHOAL_RETURN_IF_ERROR(give(RequestHandle{shoal::Request(object_of(model))}, request));
    object_of(*request).request.set_id(reinterpret_cast<std::uintptr_t>(*request));
    return {};
  });
}

shoal_status* shoal_request_set_input(shoal_request* request, const char* name, const shoal_tensor* tensor) {
  SHOAL_C_NEEDS(request);
  SHOAL_C_NEEDS(name);
  SHOAL_C_NEEDS(tensor);
  return call([&] { return object_of(request).request.set_input(name, object_of(tensor)); });
}

shoal_status* shoal_request_set_input_at(shoal_request* request, std::size_t index, const shoal_tensor* tensor) {
  SHOAL_C_NEEDS(request);
  SHOAL_C_NEEDS(tensor);
  return call([&] { return object_of(request).request.set_input(index, object_of(tensor)); });
}

shoal_status* shoal_request_set_output(shoal_request* request, const char* name, const shoal_tensor* tensor) {
  SHOAL_C_NEEDS(request);
  SHOAL_C_NEEDS(name);
  SHOAL_C_NEEDS(tensor);
  return call([&] { return object_of(request).request.set_output(name, object_of(tensor)); });
}

shoal_status* shoal_request_set_timeout(shoal_request* request, std::int64_t timeout_ns) {
  SHOAL_C_NEEDS(request);
  return change(request, [&](shoal::Request& changed) {
    changed.set_timeout(std::chrono::nanoseconds(timeout_ns));
    return Status();
  });
}

shoal_status* shoal_request_set_priority(shoal_request* request, std::int64_t priority) {
  SHOAL_C_NEEDS(request);
  return change(request, [&](shoal::Request& changed) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const std::int8_t checked, priority_of(priority));
    changed.set_priority(checked);
    return {};
  });
}

shoal_status* shoal_request_set_flow(shoal_request* request, std::uint64_t flow) {
  SHOAL_C_NEEDS(request);
  return change(request, [&](shoal::Request& changed) {
    changed.set_flow(flow);
    return Status();
  });
}

shoal_status* shoal_request_set_version(shoal_request* request, std::uint64_t version) {
  SHOAL_C_NEEDS(request);
  return change(request, [&](shoal::Request& changed) {
    changed.set_version(version);
    return Status();
  });
}

shoal_status* shoal_request_set_id(shoal_request* request, std::uint64_t id) {
  SHOAL_C_NEEDS(request);
  return change(request, [&](shoal::Request&) {
    object_of(request).id = id;
    return Status();
  });
}

std::uint64_t shoal_request_id(const shoal_request* request) { return request ? object_of(request).id : 0; }
bool shoal_request_is_under_way(const shoal_request* request) { return request && object_of(request).request.is_under_way(); }

const shoal_outcome* shoal_request_outcome(const shoal_request* request) {
  return handle_of<shoal_outcome>(request ? &object_of(request).request.outcome() : &no_request_outcome());
}

void shoal_request_cancel(const shoal_request* request) {
  if (!request) return;
  call_quietly([&] { object_of(request).request.cancel(); });
}

void shoal_request_free(shoal_request* request) {
  if (!request) return;
  shoal_request_cancel(request);
  object_of(request).request.set_id(0);
  free_handle(request);
}

// ---- Completion queues ----

shoal_status* shoal_queue_create(const shoal_client* client, shoal_queue** queue) {
  SHOAL_C_GIVES(queue);
  SHOAL_C_NEEDS(client);
  return call([&] { return give(shoal::CompletionQueue(object_of(client)), queue); });
}

shoal_status* shoal_queue_submit(shoal_queue* queue, shoal_request* request, std::uint64_t tag) {
  SHOAL_C_NEEDS(queue);
  SHOAL_C_NEEDS(request);
  return call([&] { return object_of(queue).submit(object_of(request).request, tag); });
}

shoal_status* shoal_queue_next(shoal_queue* queue, shoal_completion* completions, std::size_t capacity, std::int64_t deadline_ns,
                               std::size_t* count) {
  SHOAL_C_GIVES(count);
  SHOAL_C_NEEDS(queue);
  SHOAL_C_NEEDS(completions);
  const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
  return take(completions, capacity, count,
              [&](std::span<shoal::Completion> room) { return object_of(queue).next(room, deadline); });
}

shoal_status* shoal_queue_poll(shoal_queue* queue, shoal_completion* completions, std::size_t capacity, std::size_t* count) {
  SHOAL_C_GIVES(count);
  SHOAL_C_NEEDS(queue);
  SHOAL_C_NEEDS(completions);
  return take(completions, capacity, count, [&](std::span<shoal::Completion> room) { return object_of(queue).poll(room); });
}

shoal_status* shoal_queue_fd(shoal_queue* queue, int* fd) {
  SHOAL_C_NEEDS(fd);
  *fd = -1;
  SHOAL_C_NEEDS(queue);
  return call([&] {
    const shoal::Result<int> made = object_of(queue).fd();
    if (made.ok()) *fd = *made;
    return made.status();
  });
}

std::size_t shoal_queue_under_way(const shoal_queue* queue) {
  std::size_t count = 0;
  if (queue) call_quietly([&] { count = object_of(queue).under_way(); });
  return count;
}

void shoal_queue_free(shoal_queue* queue) { free_handle(queue); }
