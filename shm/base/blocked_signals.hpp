// A scope in which the calling thread takes no signals.
#pragma once

#include <signal.h>

#include "shm/base/fault_signals.hpp"

namespace shoal {

/// For a scope, the calling thread and the threads that it starts block all signals except those of their own faults. Signals
/// that are sent to the process go to its other threads.
///   Threads  thread-bound
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int signal : kFaultSignals) ::sigdelset(&blocked, signal);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace shoal
