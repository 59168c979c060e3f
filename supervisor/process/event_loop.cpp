#include "supervisor/process/event_loop.hpp"

#include <sys/epoll.h>

#include <array>

#include "shm/base/check.hpp"

namespace shoal::supervisor {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { SHOAL_CHECK(static_cast<bool>(epoll_)); }

void EventLoop::watch(int fd, Handler handler) {
  const std::uint32_t generation = ++generation_;
  watched_[fd] = {generation, std::make_shared<Handler>(std::move(handler))};
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
  SHOAL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void EventLoop::forget(int fd) {
  if (watched_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run_ready() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto watched = watched_.find(static_cast<int>(static_cast<std::uint32_t>(tag)));
    // An earlier handler may have closed this descriptor, and another may have its number by now.
    if (watched == watched_.end() || watched->second.generation != tag >> 32) continue;
    const std::shared_ptr<Handler> handler = watched->second.handler;
    (*handler)();
  }
}

}  // namespace shoal::supervisor
