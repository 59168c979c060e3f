// PoolCore: connecting. Waiting is in pool_waits.cpp, requests and replies in pool_requests.cpp, control requests in
// pool_calls.cpp.
#include "client/src/pool_core.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/spare_threads.hpp"
#include "shm/wire/local_address.hpp"

namespace shoal::client {
namespace {

constexpr std::uint64_t kAttemptIntervalNs = 10'000'000;
constexpr std::uint64_t kIdleIntervalNs = 1'000'000'000;  // while nobody waits for a daemon
constexpr std::uint64_t kStartNs = 1'000'000'000;         // what the next daemon gets until it lets anybody in
constexpr std::uint64_t kLeastAttemptNs = 2'000'000'000;  // what the daemon that answers a reconnect gets at least
constexpr std::uint64_t kAttachReadIntervalNs = 1'000'000;

}  // namespace

Result<std::shared_ptr<PoolCore>> PoolCore::connect(PoolOptions options) {
  if (options.directory.empty()) options.directory = wire::default_directory();
  std::error_code error;
  options.directory = std::filesystem::absolute(options.directory.view(), error).string();  // the caller may change its directory
  if (error) return status_from_errno("find", "the current directory", error.value());
  if (options.control_timeout.count() <= 0) return invalid_argument("a pool's control_timeout must be greater than 0");
  SHOAL_RETURN_IF_ERROR(check_spare_threads(wire::MessageContext::kThreads).with_context("connect to the daemon"));
  UniqueFd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd) return status_from_errno("create", "an eventfd", errno);
  // A forked child that destroys the last handle must not touch the parent's sockets.
  const auto destroy = [](PoolCore* core) {
    if (!core->fork_guard_.in_child()) delete core;
  };
  std::shared_ptr<PoolCore> core(new PoolCore(std::move(options), std::move(wake_fd)), destroy);

  const std::uint64_t until_ns = monotonic_now_ns() + count_ns(core->options_.connect_timeout);
  const Lock lock(*core);
  Status status = core->begin_connection(until_ns);
  while (status.code() == StatusCode::kOverloaded && monotonic_now_ns() < until_ns) {
    core->poll_descriptors(std::min(until_ns, monotonic_now_ns() + kAttemptIntervalNs));
    status = core->begin_connection(until_ns);
  }
  if (status.code() == StatusCode::kOverloaded) status = unavailable("{} (tried until connect_timeout)", status.message());
  while (status.ok() && !core->is_ready()) {
    core->poll_descriptors(until_ns);
    status = core->connection_->advance(monotonic_now_ns());
    if (!status.ok() && core->take_smaller_arenas()) status = core->begin_connection(until_ns);
  }
  if (!status.ok()) return status;
  core->on_ready();
  return core;
}

PoolCore::PoolCore(PoolOptions options, UniqueFd wake_fd)
    : options_(std::move(options)),
      wake_fd_(std::move(wake_fd)),
      arena_limit_bytes_(std::min(options_.arena_limit_bytes, wire::kLargestArenaBytes)) {}

PoolCore::~PoolCore() = default;

Status PoolCore::usable() {
  if (fork_guard_.in_child())
    return failed_precondition("this process was forked from the process that made the pool: create a pool after fork");
  return {};
}

void PoolCore::end() {
  const Lock lock(*this);
  is_closed_ = true;
  Status why(StatusCode::kCancelled, "pool destroyed");
  try {
    why = cancelled("the pool was destroyed");
  } catch (const std::bad_alloc&) {
  }
  fail_everything(why);
  for (; !answers_.empty(); answers_.pop_front()) fail(*answers_.front().request, copy_of(why));
  while (copying_ > 0) copied_.wait(mutex_);  // those answers are complete, too
  while (!sessions_.empty()) drop_session(*sessions_.front(), copy_of(why));
  drop_other_connections();
  connection_.reset();
}

void PoolCore::close() {
  if (fork_guard_.in_child()) return;
  end();
  callbacks().stop();
}

void PoolCore::poll() {
  if (fork_guard_.in_child()) return;
  if (!mutex_.try_lock()) return;
  const Lock lock(*this, std::adopt_lock);
  progress();
  look_for_silence();
}

// Polls without the mutex. A thread that closes one of these descriptors meanwhile also wakes this one, which then polls again.
void PoolCore::poll_descriptors(std::uint64_t until_ns) {
  pollfd fds[1 + 2 * 3] = {{wake_fd_.get(), POLLIN, 0}};
  nfds_t count = 1;
  for (const auto* connection : {&connection_, &next_, &old_}) {
    if (!*connection) continue;
    fds[count++] = {(*connection)->attach_fd(), POLLIN, 0};
    fds[count++] = {(*connection)->has_socket() ? (*connection)->socket().fd() : -1, POLLIN, 0};
  }
  const std::uint64_t now_ns = monotonic_now_ns();
  timespec limit{};
  if (until_ns > now_ns) {
    limit.tv_sec = static_cast<time_t>((until_ns - now_ns) / 1'000'000'000);
    limit.tv_nsec = static_cast<long>((until_ns - now_ns) % 1'000'000'000);
  }
  mutex_.unlock();
  ::ppoll(fds, count, until_ns == kForever ? nullptr : &limit, nullptr);
  mutex_.lock();
  if (fds[0].revents != 0) {
    eventfd_t ignored;
    ::eventfd_read(wake_fd_.get(), &ignored);
  }
  for (nfds_t i = 1; i < count; i += 2) {
    if (fds[i].revents != 0) attach_read_ns_ = 0;
  }
  if (next_) attach_read_ns_ = 0;  // its handshake goes on
}

std::uint64_t PoolCore::next_timer_ns() const {
  if (is_closed_) return kForever;
  const std::uint64_t expiry_ns = std::min(next_expiry_ns_, next_overdue_ns_);
  if (is_ready()) return std::min(expiry_ns, keep_of_output_ ? next_part_ns_ : kForever);
  return std::min(expiry_ns, connection_ ? connection_->give_up_at_ns() : next_attempt_ns_);
}

void PoolCore::wake_waiters_of(const Waitable& target) {
  for (Follower* follower : followers_) {
    if (follower->target == &target) follower->woken.notify_one();
  }
  if (driver_target_ == &target) ::eventfd_write(wake_fd_.get(), 1);
}

void PoolCore::progress() {
  if (is_closed_) return;
  sent_since_progress_ = 0;
  bytes_since_progress_ = 0;
  try {
    advance_connection();
    do {  // again, because threads that sent while this one copied may have consumed the edge
      if (is_ready()) receive_all();
    } while (copy_outside());
    if (next_overdue_ns_ != kForever && monotonic_now_ns() >= next_overdue_ns_) expire_sent(monotonic_now_ns());
  } catch (...) {  // std::bad_alloc: messages are left, and ZeroMQ's descriptor will not tell the driver of them
    if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);
    throw;
  }
}

void PoolCore::advance_connection() {
  const std::uint64_t now_ns = monotonic_now_ns();
  if (now_ns >= next_expiry_ns_) expire_parked(now_ns);
  if (is_ready() && now_ns < attach_read_ns_ + kAttachReadIntervalNs) return;
  attach_read_ns_ = now_ns;
  close_idle_sessions(now_ns);
  if (!connection_ && now_ns >= next_attempt_ns_) {
    const Status begun = begin_connection(now_ns + std::max(count_ns(options_.reconnect_timeout), kLeastAttemptNs));
    // It may be let in later, and memory, descriptors or room in the backlog may come.
    if (!begun.ok()) lose_connection(begun.code() == StatusCode::kPermissionDenied ? begun : unavailable("{}", begun.message()));
  }
  if (connection_) {
    const bool was_ready = connection_->is_ready(), had_socket = connection_->has_socket();
    const Status advanced = connection_->advance(now_ns);
    if (is_driven_ && had_socket != connection_->has_socket()) ::eventfd_write(wake_fd_.get(), 1);
    if (!advanced.ok()) {
      if (was_ready) receive_all();  // answers that the daemon sent before it died
      const bool may_fit = take_smaller_arenas();
      lose_connection(may_fit ? unavailable("{}", advanced.message()) : advanced);
    } else if (!was_ready && connection_->is_ready()) {
      on_ready();
    } else if (was_ready) {
      tend_arenas(now_ns);
    }
  }
}

// While nobody waits for a daemon, attempts are rare. The caller is not among those who wait before this returns, so the attempt
// after this one is hurried, too.
void PoolCore::want_connection() {
  if (is_ready()) return;
  try_soon();
  advance_connection();
  try_soon();
}

void PoolCore::try_soon() {
  const std::uint64_t soon_ns = last_attempt_ns_ + kAttemptIntervalNs;
  if (next_attempt_ns_ <= soon_ns) return;
  next_attempt_ns_ = soon_ns;
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver waits until then
}

Status PoolCore::begin_connection(std::uint64_t give_up_at_ns) {
  last_attempt_ns_ = monotonic_now_ns();
  if (has_arenas() && !input_) {
    SHOAL_ASSIGN_OR_RETURN(auto input, Arena::create("input", arena_limit_bytes_, Seals::kOneWriter));
    use_input(std::move(input));
  }
  if (has_arenas() && !output_) {
    SHOAL_ASSIGN_OR_RETURN(output_, Arena::create("output", arena_limit_bytes_, Seals::kFixedSize));
  }
  SHOAL_ASSIGN_OR_RETURN(connection_,
                         Connection::begin(context_, options_.directory.string(), input_.get(), output_.get(), give_up_at_ns));
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);  // the driver must poll the new descriptors
  return {};
}

void PoolCore::on_ready() {
  give_up_reconnecting_ns_ = 0;
  most_frame_bytes_.store(connection_->longest_frame_bytes(), std::memory_order_relaxed);
  shrink_rule_.begin(monotonic_now_ns());
  keep_of_output_.reset();
  for (const std::string& text : connection_->take_descriptions()) take_description(text);
  for (auto next = calls_.begin(); next != calls_.end();) {
    const std::shared_ptr<ControlCall> call = (next++)->second;
    send_call(call);  // one that cannot be sent ends
  }
  for (auto next = parked_.begin(); next != parked_.end();) {
    const std::shared_ptr<PendingRequest> request = next->second;
    // It may end, and others of its model, too.
    if (const ModelEntry* const known = entry_of(*request); !known || !known->description) ask_description_for(request);
    next = parked_.upper_bound(request->seq);
  }
}

// Also called when a connection could not be made.
void PoolCore::lose_connection(const Status& why) {
  const std::uint64_t now_ns = monotonic_now_ns();
  const bool was_ready = is_ready(), was_connected = connection_ != nullptr;
  if (was_ready) give_up_reconnecting_ns_ = now_ns + count_ns(options_.reconnect_timeout);
  if (was_connected || why.code() == StatusCode::kUnavailable)
    kept_out_ns_ = 0;
  else if (kept_out_ns_ == 0)
    kept_out_ns_ = now_ns;
  if (connection_) left_output_ = std::exchange(output_, nullptr);  // an old worker may still write into it
  drop_other_connections();
  connection_.reset();
  const bool is_idle = requests_.empty() && old_requests_.empty() && parked_.empty() && calls_.empty();
  next_attempt_ns_ = now_ns + (was_ready ? 0 : is_idle ? kIdleIntervalNs : kAttemptIntervalNs);
  if (is_driven_) ::eventfd_write(wake_fd_.get(), 1);

  // Slots that the dead daemon did not release are free: its workers can no longer answer, and outputs get a new arena.
  const auto requests = std::exchange(requests_, {}), old_requests = std::exchange(old_requests_, {});
  for (const auto* sent : {&old_requests, &requests}) {
    for (const auto& [seq, request] : *sent) {
      if (request->is_settled()) {
        release_slots_of(*request);
      } else {
        request->may_have_run = true;
        if (request->is_cancelled)
          fail(*request, request->canceled_by_caller());
        else
          park(request);
      }
    }
  }
  for (auto& [name, entry] : models_) entry.description.reset();  // another daemon uses other ids
  for (auto next = calls_.begin(); next != calls_.end();) {
    const std::shared_ptr<ControlCall> call = (next++)->second;
    const bool was_sent = std::exchange(call->is_sent, false);
    if (was_ready && call->ends_daemon && was_sent) finish_call(call, std::string("{}"));
  }

  // A daemon that has no room for this client now may have it later. One that had let it in and cuts it off has a reason. One
  // that starts keeps everybody out until it has shared its directory with its group.
  const bool is_full = why.code() == StatusCode::kOverloaded && !was_ready;
  const bool may_start = !was_connected && now_ns < kept_out_ns_ + kStartNs;
  const bool is_refusal = why.code() != StatusCode::kUnavailable && !is_full && !may_start;
  lost_because_ = copy_of(why);
  if (is_refusal || now_ns >= give_up_reconnecting_ns_) fail_everything(why);
}

void PoolCore::fail_everything(const Status& why) {
  const auto calls = std::exchange(calls_, {});
  for (const auto& [seq, call] : calls) finish_call(call, copy_of(why));
  for (auto* const sent : {&requests_, &old_requests_}) {
    const auto requests = std::exchange(*sent, {});
    for (const auto& [seq, request] : requests) {
      request->may_have_run = true;
      request->is_settled() ? release_slots_of(*request) : fail(*request, copy_of(why));
    }
  }
  models_.clear();
  ++erasures_;
  const auto parked = std::exchange(parked_, {});
  for (const auto& [seq, request] : parked) fail(*request, copy_of(why));
}

}  // namespace shoal::client
