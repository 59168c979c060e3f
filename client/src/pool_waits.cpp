// PoolCore: waiting, the choice of the driver, and requests whose time is over.
#include <sys/eventfd.h>

#include <algorithm>
#include <new>

#include "client/src/pool_core.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::client {
namespace {

constexpr int kLooks = 4;  // checks per control_timeout for a message of the daemon
// expire_parked() pauses for so long for each request that it has visited: 10 ms for the most that may be parked.
constexpr std::uint64_t kWalkPauseNs = 300;

// The error of a parked request whose timeout is over.
Status why_expired(const PendingRequest& request, bool has_daemon) noexcept try {
  return deadline_exceeded(
      "model '{}': {}", request.model.name,
      !has_daemon ? "no daemon within the request's timeout"
      : request.waits_for_memory
          ? "a worker did not end an earlier run, which may still write the memory for its outputs, within the request's timeout"
      : request.is_being_prepared
          ? "the request's timeout was over before its inputs were copied and there was room for its outputs"
          : "the daemon did not describe it within the request's timeout (it answers when the model is loaded)");
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kDeadlineExceeded, "timeout");  // a text of this length allocates nothing
}

std::chrono::steady_clock::time_point to_time_point(std::uint64_t ns) {  // steady_clock is CLOCK_MONOTONIC
  constexpr std::uint64_t kLast = std::numeric_limits<std::int64_t>::max();
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, kLast))));
}

}  // namespace

bool PoolCore::wait(const Waitable& target, std::uint64_t until_ns, const std::stop_token& stop) {
  if (target.is_done() || fork_guard_.in_child()) return target.is_done();
  const Lock lock(*this);
  try {
    wait_locked(target, until_ns, stop);
  } catch (...) {  // std::bad_alloc: this thread's call fails, and the others go on
    wake_next_driver();
    throw;
  }
  wake_next_driver();
  return target.is_done();
}

void PoolCore::wait_locked(const Waitable& target, std::uint64_t until_ns, const std::stop_token& stop) {
  progress();
  while (!target.is_done() && !is_closed_ && monotonic_now_ns() < until_ns && !stop.stop_requested()) {
    if (is_driven_) {
      Follower follower{&target, {}};
      followers_.push_back(&follower);
      if (until_ns == kForever) {
        follower.woken.wait(mutex_);
      } else {
        follower.woken.wait_until(mutex_, to_time_point(until_ns));
      }
      std::erase(followers_, &follower);
      if (!is_driven_) progress();  // it polls next, and threads that sent without a driver may have consumed the edge
      continue;
    }
    if (Left left = take_left(); !left.is_empty()) {  // what owners do at the end takes as long as it likes: another one polls
      wake_next_driver();
      mutex_.unlock();
      left = {};
      mutex_.lock();
      progress();
      continue;
    }
    is_driven_ = true;
    driver_target_ = &target;
    poll_descriptors(std::min(until_ns, next_timer_ns()));
    is_driven_ = false;
    driver_target_ = nullptr;
    progress();
  }
}

void PoolCore::wake_next_driver() {
  if (!is_driven_ && !followers_.empty()) followers_.front()->woken.notify_one();
}

bool PoolCore::wait_for_outcome(PendingRequest& request, std::uint64_t until_ns, const std::stop_token& stop) {
  const std::stop_callback wake_up(stop, [&] {
    const Lock lock(*this);
    wake_waiters_of(request);
  });
  if (!wait(request, std::min(until_ns, overdue_ns(request)), stop)) expire(request);
  return request.is_done();
}

// Counts silence in checks, not in seconds. If this process itself was stopped for a long time, that counts as one check. Without
// a connection, reconnect_timeout bounds the wait.
bool PoolCore::SilentLooks::look(PoolCore& core) {
  const bool waits = !core.requests_.empty() || !core.old_requests_.empty() || !core.parked_.empty() || !core.calls_.empty();
  const bool is_first = silent_ < 0, is_silent = !is_first && waits && core.is_ready() && core.heard_ == heard_;
  silent_ = is_silent ? silent_ + 1 : 0;
  heard_ = core.heard_;
  if (is_silent && (!core.ping_ || core.ping_->is_done())) core.ping_ = core.start_call(control_json("ping"));
  return silent_ >= kLooks;
}

std::uint64_t PoolCore::look_interval_ns() const { return count_ns(options_.control_timeout) / kLooks + 1; }

bool PoolCore::wait_while_alive(const Waitable& target) {
  SilentLooks looks;
  while (true) {
    {
      const Lock lock(*this);
      if (is_closed_ || looks.look(*this)) return target.is_done();
    }
    if (wait(target, monotonic_now_ns() + look_interval_ns())) return true;
    if (fork_guard_.in_child()) return false;
  }
}

// Whoever waits here waits for any of many requests. Those that have a deadline end by expire_sent(); those that have none end
// like the one that wait_for_outcome() waits for.
void PoolCore::wait(completion::ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
  const std::stop_callback wake_up(stop, [&] { wake(list); });
  const std::uint64_t until_ns = until == until.max() ? kForever : count_ns(until.time_since_epoch());
  while (!list.is_done() && !stop.stop_requested() && monotonic_now_ns() < until_ns) {
    {
      const Lock lock(*this);
      if (is_closed_) return;
      look_for_silence();
    }
    wait(list, std::min(until_ns, monotonic_now_ns() + look_interval_ns()), stop);
    if (fork_guard_.in_child()) return;
  }
}

void PoolCore::wake(completion::ReadyList& list) {
  const Lock lock(*this);
  wake_waiters_of(list);
}

// All who wait for any of many requests look together, so short waits count as long ones do.
void PoolCore::look_for_silence() {
  const std::uint64_t now_ns = monotonic_now_ns();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + look_interval_ns();
  if (looks_.look(*this)) end_overdue();
}

Status PoolCore::silence(std::string_view what) {
  const pid_t pid = connection_ ? connection_->daemon_pid() : 0;  // 0 also for a daemon in another pid namespace
  return unavailable(
      "no answer to {}: the daemon in {} (process {}) has been silent for {} ms (control_timeout). If it is stopped, SIGCONT "
      "resumes it. If it hangs, restart it. When it goes on, it may still carry out this call",
      what, options_.directory, pid, options_.control_timeout / std::chrono::milliseconds(1));
}

Result<std::string> PoolCore::answer_of(ControlCall& call) {
  if (wait_while_alive(call)) return call.answer;
  SHOAL_RETURN_IF_ERROR(usable());
  const Lock lock(*this);
  return call.is_done() ? call.answer : silence(name_question(call.json));
}

// Whether a request without a deadline should have been answered by now. The model's default may have changed since the model was
// described, so the caller checks that the daemon is silent, too.
bool PoolCore::is_overdue(const PendingRequest& request) const {
  if (request.deadline_ns != kForever) return false;
  if (!find_sent(request.seq)) return true;  // parked: it waits for the description
  const std::uint64_t limit_ms = request.description->timeout_ms;
  return limit_ms > 0 && (monotonic_now_ns() - request.sent_ns) / 1'000'000 > limit_ms;
}

bool PoolCore::wait_for_outcome(PendingRequest& request) {
  SilentLooks looks;
  while (!request.is_done()) {
    if (fork_guard_.in_child()) return false;
    if (request.deadline_ns != kForever) {
      wait_for_outcome(request, kForever);
      continue;
    }
    if (wait(request, monotonic_now_ns() + look_interval_ns())) break;
    if (fork_guard_.in_child()) return false;
    const Lock lock(*this);
    if (looks.look(*this) && !request.is_settled() && is_overdue(request))
      fail(request, silence(format("a request of model '{}'", request.model.name)));
  }
  return true;
}

void PoolCore::end_overdue() {
  std::vector<std::shared_ptr<PendingRequest>> overdue;
  for (const auto* sent : {&requests_, &old_requests_}) {
    for (const auto& [seq, request] : *sent) {
      if (!request->is_settled() && is_overdue(*request)) overdue.push_back(request);
    }
  }
  for (const auto& [seq, request] : parked_) {
    if (is_overdue(*request)) overdue.push_back(request);
  }
  for (const auto& request : overdue) fail(*request, silence(format("a request of model '{}'", request->model.name)));
}

// Requests that nobody waits for one by one. What was sent keeps its slots, because a worker may still use them.
void PoolCore::expire_sent(std::uint64_t now_ns) {
  next_overdue_ns_ = kForever;
  for (const auto* sent : {&requests_, &old_requests_}) {
    for (const auto& [seq, request] : *sent) {
      if (request->is_settled() || request->deadline_ns == kForever) continue;
      if (overdue_ns(*request) > now_ns)
        next_overdue_ns_ = std::min(next_overdue_ns_, overdue_ns(*request));
      else
        fail(*request, no_answer(*request));
    }
  }
  next_overdue_ns_ = std::max(next_overdue_ns_, now_ns + kWalkPauseNs * (requests_.size() + old_requests_.size()));
}

// A request that was sent keeps its slots.
void PoolCore::expire(PendingRequest& request) {
  if (request.is_done() || monotonic_now_ns() < overdue_ns(request) || fork_guard_.in_child()) return;
  const Lock lock(*this);
  try {  // the answer may lie in the socket: the last look may have been before another owner's deleter ran
    progress();
  } catch (const std::bad_alloc&) {
  }
  if (!request.is_settled()) fail(request, no_answer(request));
}

Status PoolCore::no_answer(const PendingRequest& request) const noexcept try {
  return deadline_exceeded("model '{}': no answer from the daemon in {} within the request's timeout", request.model.name,
                           options_.directory);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kDeadlineExceeded, "timeout");  // a text of this length allocates nothing
}

// Walks over all parked requests. Those that expire soon afterwards wait for the next walk, so that many do not cause many walks.
void PoolCore::expire_parked(std::uint64_t now_ns) {
  next_walk_ns_ = now_ns + kWalkPauseNs * parked_.size();
  std::uint64_t next_expiry_ns = kForever;
  for (auto next = parked_.begin(); next != parked_.end();) {
    const auto current = next++;  // fail() erases it
    PendingRequest& request = *current->second;
    if (request.deadline_ns > now_ns) {
      next_expiry_ns = std::min(next_expiry_ns, request.deadline_ns);
    } else {
      fail(request, why_expired(request, is_ready()));
    }
  }
  next_expiry_ns_ = std::max(next_expiry_ns, next_walk_ns_);
}

}  // namespace shoal::client
