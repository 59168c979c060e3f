#include "supervisor/service_manager.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/local_address.hpp"

namespace shoal::supervisor {
namespace {

std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value ? value : "";
  ::unsetenv(name);
  return text;
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  ServiceManager manager;
  manager.socket_ = take_variable("NOTIFY_SOCKET");
  const std::string interval = take_variable("WATCHDOG_USEC"), pid = take_variable("WATCHDOG_PID");
  const std::uint64_t interval_us = std::strtoull(interval.c_str(), nullptr, 10);
  const bool is_for_us = pid.empty() || pid == std::to_string(::getpid());
  if (interval_us > 0 && is_for_us) manager.ping_interval_ns_ = interval_us * 1000 / 2;
  return manager;
}

bool ServiceManager::notify(const std::string& lines) const {
  sockaddr_un address = wire::local_address(socket_);
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return true;
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  if (!fd) return false;  // no descriptors left
  const ssize_t sent = ::sendto(fd.get(), lines.data(), lines.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), size);
  return sent >= 0 || !(errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR);
}

bool ServiceManager::notify_status(std::string text) const {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return notify("STATUS=" + shortened(text, kLongestStatus));
}

// ---- LifeReports ----

LifeReports::LifeReports(ServiceManager manager, Timers& timers)
    : manager_(std::move(manager)),
      again_(timers, Timer::Kind::kClock, [this](std::uint64_t) { send_state(); }),
      watchdog_(timers, Timer::Kind::kClock, [this](std::uint64_t) { feed_watchdog(); }) {}

void LifeReports::started() {
  if (manager_.ping_interval_ns()) feed_watchdog();
}

void LifeReports::reloading() {
  if (is_draining_) return;
  awaits_ready_ = true;
  is_settled_ = false;
  manager_.notify(format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_now_ns() / 1000));
}

void LifeReports::draining() {
  is_draining_ = true;
  awaits_ready_ = false;
  manager_.notify("STOPPING=1\nSTATUS=answering the admitted requests");
}

void LifeReports::state(std::string status, bool is_settled) {
  status_ = std::move(status);
  is_settled_ = is_settled;
  send_state();
}

void LifeReports::send_state() {
  if (status_ != sent_status_ && manager_.notify_status(status_)) sent_status_ = status_;
  const bool is_ready = awaits_ready_ && is_settled_;
  if (is_ready && manager_.notify("READY=1")) awaits_ready_ = false;
  again_.clear();
  if (status_ != sent_status_ || (is_ready && awaits_ready_)) again_.set(monotonic_now_ns() + kAgainNs);
}

void LifeReports::feed_watchdog() {
  manager_.notify("WATCHDOG=1");
  watchdog_.set(monotonic_now_ns() + *manager_.ping_interval_ns());
}

}  // namespace shoal::supervisor
