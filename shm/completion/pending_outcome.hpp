// PendingOutcome: a submitted request, as its handles see it. Notice: who is told when it is complete.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <utility>

#include "shm/base/mutex.hpp"
#include "shm/completion/waitable.hpp"
#include "shoal/outcome.hpp"

namespace shoal::completion {

class ClientCore;

/// Told once that a request is complete. It belongs to one request at a time.
class Notice {
 public:
  virtual ~Notice() = default;
  /// Called by the thread that completes the request, perhaps with locks of the client held: it takes its own lock at most, and
  /// runs nothing of the user's. Returns what is done now, so that the caller wakes who waits for it.
  virtual std::shared_ptr<const Waitable> notify() noexcept = 0;

 private:
  friend class Notices;
  std::shared_ptr<Notice> next_;
};

/// The notices of one request.
class Notices {
 public:
  void add(std::shared_ptr<Notice> notice) {
    notice->next_ = std::move(first_);
    first_ = std::move(notice);
  }
  /// One of them, to be told; null if there are no more. The last hold on it must not end with a lock held, because it may keep
  /// tensors of the user's.
  std::shared_ptr<Notice> take() {
    std::shared_ptr<Notice> notice = std::move(first_);
    if (notice) first_ = std::move(notice->next_);
    return notice;
  }

 private:
  std::shared_ptr<Notice> first_;
};

/// One request. Each kind of client has its own.
///   Threads  thread-safe
class PendingOutcome {
 public:
  virtual ~PendingOutcome() = default;
  virtual bool is_done() const = 0;  ///< looks; does nothing for it
  virtual bool ready() = 0;          ///< never blocks
  /// Waits, or until a stop is requested. True if it is ready.
  virtual bool wait_for(std::chrono::nanoseconds limit, const std::stop_token& stop) = 0;
  virtual const Outcome& outcome() = 0;                         ///< waits
  virtual void cancel() = 0;                                    ///< best effort
  virtual void give_up() = 0;                                   ///< nobody needs the outcome: it is complete at once
  virtual void add_notice(std::shared_ptr<Notice> notice) = 0;  ///< told at once if it is complete
  /// Of the client that runs it; null if there is none.
  virtual std::shared_ptr<ClientCore> core() = 0;
};

/// Where the handle of a request lies that its user may cancel at any time, from any thread.
///   Threads  thread-safe
class HandleSlot {
 public:
  std::shared_ptr<PendingOutcome> get() const SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return handle_;
  }
  void set(std::shared_ptr<PendingOutcome> handle) SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    handle_.swap(handle);  // the earlier one ends without the lock, with the parameter
  }
  /// Takes the handle out if nobody else has it. Nobody gets a hold on it then.
  std::shared_ptr<PendingOutcome> take_if_unshared() SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return handle_.use_count() == 1 ? std::move(handle_) : nullptr;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<PendingOutcome> handle_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::completion
