// Inbox: outcomes of many requests, for one reader: an event loop, or a thread.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <list>
#include <memory>

#include "client/python/src/kept_object.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shoal/client.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// A request has a *receiver*: the Python object that gets its outcome, such as a future. The library's thread, which has no GIL,
/// only moves it from one list to the other and writes to an eventfd, once for all that are complete. So the reader is woken once
/// for many requests.
///   Threads  thread-safe
class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  static std::shared_ptr<Inbox> create();
  ~Inbox();

  /// The outcome of the request will come here, after a call of `ended`, if there is one, without the GIL. Errors: those of
  /// Prediction::then(); it will not come then.
  Status expect(const Prediction& prediction, KeptObject receiver, std::function<void()> ended = {}) SHOAL_EXCLUDES(mutex_);
  /// A list of (receiver, outputs, None) or (receiver, None, error) for each request that is complete. With the GIL.
  nb::list take() SHOAL_EXCLUDES(mutex_);
  /// Waits until one is complete or close() was called, without the GIL. Raises what a signal's handler raises. False after
  /// close().
  bool wait() SHOAL_EXCLUDES(mutex_);
  int fd() const { return ready_fd_.get(); }  ///< readable while take() would return something
  /// Cancels what is under way, and ends wait(). With the GIL.
  void close() SHOAL_EXCLUDES(mutex_);

 private:
  struct Entry {
    Prediction prediction;
    KeptObject receiver;
  };
  using Entries = std::list<Entry>;

  explicit Inbox(UniqueFd ready_fd) : ready_fd_(std::move(ready_fd)) {}
  void deliver(Entries::iterator entry) noexcept SHOAL_EXCLUDES(mutex_);

  const UniqueFd ready_fd_;
  Mutex mutex_;
  Entries under_way_ SHOAL_GUARDED_BY(mutex_), ready_ SHOAL_GUARDED_BY(mutex_);
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;
};

}  // namespace shoal::python
