#include "worker/serve/lane.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <system_error>

#include "shm/base/check.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/format.hpp"
#include "shm/wire/control.hpp"
#include "worker/serve/crash_handler.hpp"
#include "worker/serve/probe.hpp"

namespace shoal::worker {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFlushLimit{1000};
// The members of a batch are sent at once, so a member that is not here by then was not sent. Shorter than the watchdog's limit.
constexpr std::chrono::milliseconds kMemberLimit{100};
// Replies of short runs are kept and sent together, as long as the runs took no more than this together.
constexpr std::uint64_t kKeptNs = 50'000;
// Between the ends of the connections to a supervisor that ends.
constexpr int kEndLimitMs = 100;

// All zeros if the message has none.
wire::RequestHeader header_of(const wire::Parcel& message) {
  wire::RequestHeader header{};
  if (message.head.size() >= sizeof header) std::memcpy(&header, message.head.data(), sizeof header);
  return header;
}

}  // namespace

Lane::Lane(const LaneEnvironment& environment, std::uint16_t number, wire::Dealer socket, wire::LaneLine& line)
    : environment_(environment),
      number_(number),
      socket_(std::move(socket)),
      line_(line),
      bell_{.fd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))},
      batch_(1) {
  SHOAL_CHECK(bell_.fd);
}

Status Lane::start() {
  std::promise<Status> promise;
  std::future<Status> started = promise.get_future();
  try {
    thread_ = std::thread([this, started = std::move(promise)]() mutable { run(std::move(started)); });
  } catch (const std::system_error& error) {
    return unavailable("start the thread of lane {}: {}", number_, error.what());
  }
  // Nothing can fail without a device, so nobody waits for the thread.
  if (!environment_.served.model.has_devices()) return {};
  Status activated = started.get();
  // The supervisor takes kUnavailable for a lack of threads, which others may end. A device that is gone may never come back.
  return activated.code() == StatusCode::kUnavailable ? Status(StatusCode::kInternal, activated.message()) : activated;
}

void Lane::probe(std::uint64_t number) {
  probe_.store(number, std::memory_order_release);
  ::eventfd_write(bell_.fd.get(), 1);
}

void Lane::run(std::promise<Status> started) {
  line_.thread_id.store(static_cast<std::uint64_t>(::gettid()), std::memory_order_relaxed);
  RequestRunner runner(
      environment_, number_, line_, bell_, [this] { flush(); }, [this] { return held_bytes(); });
  const CrashEvidence evidence(line_, runner.progress(), line_.running_request);
  environment_.served.model.enter_thread();
  const Status activated = runner.activate();
  started.set_value(activated);
  if (activated.ok()) serve(runner);
}

void Lane::serve(RequestRunner& runner) {
  const RequestRunner::Send send = [this](Frames reply) {
    drop_tensors();  // all of them have run
    this->send(reply);
  };
  while (true) {
    // One parked request, then one new request, and so on: neither kind waits for all of the other.
    const bool answered_parked = answer_parked(runner) || answer_probe(runner);
    std::size_t count = 0;
    if (!receive_batch(count)) break;
    const std::span<wire::Parcel> messages(batch_.data(), count);
    if (count > 1) flush();  // a joined run may take long
    if (count < 2 || !answer_joined(runner, messages, send)) {
      for (wire::Parcel& message : messages) answer(runner, message);
    }
    // Sending may consume the edge of the socket's descriptor, so a lane that has sent receives again before it waits.
    const bool has_sent = !socket_.has_unread() && flush();
    if (count > 0 || answered_parked || has_sent) continue;
    runner.leave_room_to_receive();
    if (is_cut_off()) abort_out_of_memory("while it received a message");
    if (!socket_.is_readable() && !wait_for_work()) break;
  }
  flush();
  socket_.close_after_flush(kFlushLimit);
}

std::uint64_t Lane::held_bytes() const {
  std::uint64_t bytes = resumed_.memory_bytes() + ahead_.memory_bytes();
  for (const wire::Parcel& message : batch_) bytes += message.memory_bytes();
  for (const auto* list : {&parked_, &ready_}) {
    for (const Parked& parked : *list) bytes += parked.message.memory_bytes();
  }
  return bytes;
}

// Of the current messages. Before their answers are sent: the next messages may need the memory.
void Lane::drop_tensors() {
  for (wire::Parcel& message : batch_) message.payload = {};
}

// libzmq cuts the connection if it finds no memory for a message. The lane would wait for that message, and those that it holds,
// for ever. If the supervisor has ended instead, its end of the control socket is closed, too, or soon will be.
bool Lane::is_cut_off() {
  if (!environment_.memory.is_limited() || !had_peer_ || socket_.has_peer()) return false;
  pollfd control{environment_.control_fd, POLLRDHUP, 0};
  return !socket_.is_readable() && ::poll(&control, 1, kEndLimitMs) == 0;
}

// False if the socket has failed.
bool Lane::receive(wire::Parcel& message, bool& received) {
  const auto got = socket_.receive(message);
  received = got.ok() && *got;
  had_peer_ |= received;
  if (received) environment_.flight.record(wire::FlightKind::kReceived, number_, header_of(message).request_id);
  return got.ok();
}

// Receives a message if there is one, and the messages of its batch: they come one right after the other. Without memory for them
// the worker ends. Answers that were kept are sent before, because the first request that has none is the suspect.
bool Lane::receive_batch(std::size_t& count) try {
  bool received = std::exchange(has_ahead_, false);
  if (received) {
    std::swap(batch_[0], ahead_);
  } else if (!receive(batch_[0], received)) {
    return false;
  }
  count = received ? 1 : 0;
  if (!received) return true;
  const wire::RequestHeader first = header_of(batch_[0]);
  const auto until = first.batch_size > 1 ? steady_clock::now() + kMemberLimit : steady_clock::time_point();
  for (unsigned index = first.batch_index + 1u; index < first.batch_size; ++index) {
    if (batch_.size() == count) batch_.emplace_back();
    wire::Parcel& next = batch_[count];
    if (!wait_for_member(next, received, until)) return false;
    if (!received) break;
    const wire::RequestHeader header = header_of(next);
    if (header.batch_size != first.batch_size || header.batch_index != index) {
      std::swap(ahead_, next);
      has_ahead_ = true;
      break;
    }
    ++count;
  }
  return true;
} catch (const std::bad_alloc&) {
  flush();
  throw;
}

bool Lane::wait_for_member(wire::Parcel& message, bool& received, steady_clock::time_point until) {
  while (true) {
    if (!receive(message, received)) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (received || left.count() <= 0) return true;
    if (flush()) continue;  // which may have consumed the edge of the socket's descriptor
    pollfd fd{socket_.fd(), POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(left.count()));
  }
}

Frames Lane::frames_of(const wire::Parcel& message, std::size_t place) {
  if (frames_.size() <= place) frames_.resize(place + 1);
  auto& frames = frames_[place];
  frames.clear();
  for (std::size_t i = 0; i < message.size(); ++i) frames.push_back(message[i]);
  return frames;
}

bool Lane::answer_joined(RequestRunner& runner, std::span<const wire::Parcel> messages, const RequestRunner::Send& send) {
  frames_.resize(std::max(frames_.size(), messages.size()));  // before references to elements are kept
  batch_frames_.clear();
  for (const wire::Parcel& message : messages) batch_frames_.push_back(frames_of(message, batch_frames_.size()));
  return runner.answer_joined(batch_frames_, send);
}

void Lane::send(Frames reply) {
  if (reply.size() == 1 && keep(reply[0])) return;
  flush();
  send_alone(reply);
}

// Keeps the reply until flush(). Until then the supervisor takes the request for one that waits: if the worker dies, it runs
// again. False if the reply does not fit.
bool Lane::keep(std::span<const std::byte> reply) {
  if (!kept_.has_room_for(reply.size())) flush();
  if (!kept_.has_room_for(reply.size())) return false;
  try {
    kept_.add(reply);
  } catch (const std::bad_alloc&) {
    return false;
  }
  wire::ReplyHeader header;
  std::memcpy(&header, reply.data(), sizeof header);
  kept_ns_ += header.compute_ns;
  if (kept_ns_ > kKeptNs) flush();
  return true;
}

// True if there was anything to send.
bool Lane::flush() {
  if (kept_.empty()) return false;
  kept_ns_ = 0;
  const auto message = kept_.message();
  // If it was not sent for another reason, the supervisor is gone, and nobody waits for these answers.
  if (socket_.send(message).code() == StatusCode::kFailedPrecondition) {
    const auto send_one = [this](std::span<const std::byte> reply) { send_alone(Frames(&reply, 1)); };
    auto bundle = wire::BundleReader::of(message);
    if (!bundle) send_one(message);
    while (bundle && !bundle->is_done()) send_one(bundle->next());
  }
  kept_.clear();
  return true;
}

void Lane::send_alone(Frames reply) {
  const Status sent = socket_.send(reply);
  if (sent.code() != StatusCode::kFailedPrecondition) return;
  // If there is no memory for the error either, the lane names the request as running, so that this counts as an attempt.
  wire::ReplyHeader header;
  std::memcpy(&header, reply[0].data(), sizeof header);
  const NamedMeanwhile named(line_, header.request_id, header.attempt);
  if (send_out_of_memory(header).code() == StatusCode::kFailedPrecondition) abort_out_of_memory("where no answer can say it");
}

// Instead of a reply whose outputs found no memory on their way. The outputs of a batch's other members are still needed, so no
// memory is released.
Status Lane::send_out_of_memory(wire::ReplyHeader header) {
  header.status = static_cast<std::uint16_t>(StatusCode::kFailedPrecondition);
  if (header.ran == static_cast<std::uint8_t>(Ran::kNo))
    header.ran = static_cast<std::uint8_t>(Ran::kMaybe);  // see mark_out_of_memory()
  header.output_count = 0;
  const std::string text =
      environment_.memory.exceeded("the answer").with_context(format("model '{}'", environment_.served.name)).message();
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(text))};
  return socket_.send(frames);
}

void Lane::answer(RequestRunner& runner, wire::Parcel& message, std::shared_ptr<const PendingProgram> program) {
  const auto reply = runner.answer(frames_of(message, 0), std::move(program));
  if (runner.waits_for()) {  // before the supervisor is told: this may throw
    parked_.push_back({std::move(message), runner.waits_for()});
    line_.parked.store(parked_.size() + ready_.size(), std::memory_order_relaxed);
  }
  message.payload = {};  // as drop_tensors() does
  if (!reply.empty()) send(reply);
}

// Many requests may be parked, so they are looked at only when a program has become ready since the last look.
bool Lane::answer_parked(RequestRunner& runner) {
  if (ready_.empty()) {
    const std::uint64_t rung = bell_.rung.load(std::memory_order_acquire);
    if (rung == std::exchange(heard_, rung)) return false;
    for (auto at = parked_.begin(); at != parked_.end();) {
      const auto next = std::next(at);
      if (at->program->is_ready()) ready_.splice(ready_.end(), parked_, at);
      at = next;
    }
    if (ready_.empty()) return false;
  }
  const auto program = std::move(ready_.front().program);
  resumed_ = std::move(ready_.front().message);
  ready_.pop_front();
  line_.parked.store(parked_.size() + ready_.size(), std::memory_order_relaxed);
  answer(runner, resumed_, program);
  resumed_.clear();
  return true;
}

// Leaves the program that it waits for, if any, in probe_program_.
Status Lane::run_probe(RequestRunner& runner) try {
  const ProbeRequest request(environment_.served.golden);
  const Frames reply = runner.answer(request.frames(), std::exchange(probe_program_, nullptr));
  if ((probe_program_ = runner.waits_for())) return {};
  return judge_probe(environment_.served, reply);
} catch (const std::bad_alloc&) {
  return environment_.memory.exceeded("the probe");
}

bool Lane::answer_probe(RequestRunner& runner) {
  const std::uint64_t number = probe_.load(std::memory_order_acquire);
  if (number == 0 || (probe_program_ && !probe_program_->is_ready())) return false;
  if (probe_begin_ns_ == 0) probe_begin_ns_ = monotonic_now_ns();
  const Status judged = run_probe(runner);
  if (probe_program_) return false;
  const std::uint64_t took_ns = monotonic_now_ns() - std::exchange(probe_begin_ns_, 0);
  std::uint64_t asked = number;
  probe_.compare_exchange_strong(asked, 0);  // unless another probe is wanted by now
  environment_.flight.record(wire::FlightKind::kProbed, number_, 0, static_cast<std::uint64_t>(judged.code()));
  // If the supervisor does not receive it, it probes again, or gives the worker up.
  (void)wire::send_control(environment_.control_fd, {.kind = wire::ControlKind::kProbed,
                                                     .id = number,
                                                     .a = static_cast<std::uint64_t>(judged.code()),
                                                     .b = took_ns,
                                                     .text = judged.message()});
  return true;
}

// Waits on descriptors and not in ZeroMQ: it costs the same, and other descriptors can end the wait. Returns false when the lane
// is to stop and has nothing left to answer.
bool Lane::wait_for_work() const {
  pollfd fds[3] = {{socket_.fd(), POLLIN, 0}, {bell_.fd.get(), POLLIN, 0}, {environment_.stop_fd, POLLIN, 0}};
  // Parked requests are answered before the worker ends.
  ::poll(fds, parked_.empty() ? 3 : 2, -1);
  eventfd_t ignored = 0;
  if (fds[1].revents != 0) ::eventfd_read(bell_.fd.get(), &ignored);
  return fds[2].revents == 0 || !parked_.empty();
}

}  // namespace shoal::worker
