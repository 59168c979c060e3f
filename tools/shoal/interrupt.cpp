#include "tools/shoal/interrupt.hpp"

#include <poll.h>

#include <algorithm>
#include <ctime>

namespace shoal::tool {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};
volatile sig_atomic_t g_came = 0;

}  // namespace

Interrupt::Interrupt() {
  g_came = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { g_came = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // system calls end with EINTR
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool Interrupt::came() const { return g_came != 0; }

bool Interrupt::wait_for(std::chrono::nanoseconds time) const {
  // The signals are blocked between the question and the sleep, so that none comes in between unnoticed.
  sigset_t blocked, usual;
  ::sigemptyset(&blocked);
  for (const int number : kSignals) ::sigaddset(&blocked, number);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &usual);
  if (!came()) {
    const auto ns = std::max<std::chrono::nanoseconds::rep>(time.count(), 0);
    const timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    (void)::ppoll(nullptr, 0, &limit, &usual);
  }
  ::pthread_sigmask(SIG_SETMASK, &usual, nullptr);
  return came();
}

}  // namespace shoal::tool
