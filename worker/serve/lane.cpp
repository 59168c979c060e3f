#include "worker/serve/lane.hpp"

#include <poll.h>
#include <unistd.h>

#include <vector>

#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {
namespace {

constexpr std::chrono::milliseconds kFlushLimit{1000};

}  // namespace

Lane::Lane(const LaneEnvironment& environment, wire::Dealer socket, wire::LaneLine& line)
    : environment_(environment), socket_(std::move(socket)), line_(line) {}

void Lane::start() {
  thread_ = std::thread([this] { serve(); });
}

void Lane::serve() {
  line_.thread_id.store(static_cast<std::uint64_t>(::gettid()), std::memory_order_relaxed);
  RequestRunner runner(environment_.served, environment_.arenas, environment_.cancelled, line_);
  const CrashEvidence evidence(line_, runner.progress());
  environment_.served.model.enter_thread();
  wire::Message message;
  std::vector<std::span<const std::byte>> frames;
  while (true) {
    const auto received = socket_.receive(message);
    if (!received.ok()) break;
    if (!*received) {
      if (wait_for_work()) continue;
      break;
    }
    frames.clear();
    for (std::size_t i = 0; i < message.size(); ++i) frames.push_back(message[i]);
    const auto reply = runner.answer(frames);
    // Nobody there any more: then nobody waits for this answer either.
    if (!reply.empty()) (void)socket_.send(reply);
  }
  socket_.close_after_flush(kFlushLimit);
}

// Waits on descriptors, not in ZeroMQ: that costs the same, and draining can end it.
bool Lane::wait_for_work() const {
  pollfd fds[2] = {{socket_.fd(), POLLIN, 0}, {environment_.drain_fd, POLLIN, 0}};
  ::poll(fds, 2, -1);
  return fds[1].revents == 0;
}

}  // namespace shoal::worker
