#include "worker/serve/lane.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "shm/base/check.hpp"
#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {
namespace {

constexpr std::chrono::milliseconds kFlushLimit{1000};

}  // namespace

Lane::Lane(const LaneEnvironment& environment, wire::Dealer socket, wire::LaneLine& line)
    : environment_(environment), socket_(std::move(socket)), line_(line), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SHOAL_CHECK(wake_fd_);
}

void Lane::start() {
  thread_ = std::thread([this] { serve(); });
}

void Lane::serve() {
  line_.thread_id.store(static_cast<std::uint64_t>(::gettid()), std::memory_order_relaxed);
  RequestRunner runner(environment_.served, environment_.arenas, environment_.cancelled, environment_.compiler, line_,
                       wake_fd_.get());
  const CrashEvidence evidence(line_, runner.progress(), line_.running_request);
  environment_.served.model.enter_thread();
  wire::Message message;
  while (true) {
    // One of those parked, one of those that come, and so on: neither kind waits for all of the other.
    const bool answered_parked = answer_parked(runner);
    const auto received = socket_.receive(message);
    if (!received.ok()) break;
    if (*received) {
      answer(runner, message);
    } else if (!answered_parked && !wait_for_work()) {
      break;
    }
  }
  socket_.close_after_flush(kFlushLimit);
}

void Lane::answer(RequestRunner& runner, wire::Message& message, std::shared_ptr<const PendingProgram> program) {
  frames_.clear();
  for (std::size_t i = 0; i < message.size(); ++i) frames_.push_back(message[i]);
  const auto reply = runner.answer(frames_, std::move(program));
  // Nobody there any more: then nobody waits for this answer either.
  if (!reply.empty()) (void)socket_.send(reply);
  if (!runner.waits_for()) return;
  parked_.push_back({std::move(message), runner.waits_for()});
  line_.parked.store(parked_.size(), std::memory_order_relaxed);
}

bool Lane::answer_parked(RequestRunner& runner) {
  if (parked_.empty()) return false;
  const auto ready = std::ranges::find_if(parked_, [](const Parked& parked) { return parked.program->is_ready(); });
  if (ready == parked_.end()) return false;
  Parked parked = std::move(*ready);
  parked_.erase(ready);
  line_.parked.store(parked_.size(), std::memory_order_relaxed);
  answer(runner, parked.message, std::move(parked.program));
  return true;
}

// Waits on descriptors, not in ZeroMQ: that costs the same, and draining can end it. False when the worker drains and nothing is
// left to answer.
bool Lane::wait_for_work() const {
  pollfd fds[3] = {{socket_.fd(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {environment_.drain_fd, POLLIN, 0}};
  // What is parked is answered before the end.
  ::poll(fds, parked_.empty() ? 3 : 2, -1);
  eventfd_t ignored = 0;
  if (fds[1].revents != 0) ::eventfd_read(wake_fd_.get(), &ignored);
  return fds[2].revents == 0 || !parked_.empty();
}

}  // namespace shoal::worker
