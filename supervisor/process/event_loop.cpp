#include "supervisor/process/event_loop.hpp"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"

namespace shoal::supervisor {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { SHOAL_CHECK(static_cast<bool>(epoll_)); }

EventLoop::~EventLoop() { closer_->finish_groups(); }

Status EventLoop::watch(int fd, Handler handler) {
  const std::uint32_t generation = ++generation_;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return internal_error("wait for descriptor {}: {}", fd, std::strerror(errno));
  watched_[fd] = {generation, std::make_shared<Handler>(std::move(handler))};
  return {};
}

void EventLoop::forget(int fd) {
  if (watched_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::hang_up(UniqueFd socket, uid_t sender) {
  forget(socket.get());
  closer_->hang_up(std::move(socket), sender);
}

void EventLoop::close_sent(std::vector<UniqueFd>& fds, uid_t sender) {
  for (UniqueFd& fd : std::exchange(fds, {})) closer_->close_sent(std::move(fd), sender);
}

void EventLoop::run_ready() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto watched = watched_.find(static_cast<int>(static_cast<std::uint32_t>(tag)));
    // An earlier handler may have closed this descriptor, and a new descriptor may have its number.
    if (watched == watched_.end() || watched->second.generation != tag >> 32) continue;
    const std::shared_ptr<Handler> handler = watched->second.handler;
    (*handler)();
  }
}

}  // namespace shoal::supervisor
