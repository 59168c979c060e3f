// ReadyList: requests that are under way, and those that are complete and wait for somebody to take them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>

#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/completion/pending_outcome.hpp"
#include "shoal/result.hpp"

namespace shoal::completion {

class ReadyList;

/// What a ReadyList holds: the notice of a request. It has a *place*, a list of one element, which moves between the lists of a
/// ReadyList. So nothing is allocated when a request completes, and an item that is used again allocates nothing at all.
class ReadyItem : public Notice {
 public:
  std::shared_ptr<const Waitable> notify() noexcept final;
  /// It is complete, and nobody will take it.
  virtual void drop() noexcept {}

 private:
  friend class ReadyList;
  using Place = std::list<std::shared_ptr<ReadyItem>>;
  Place place_ = Place(1);  ///< null, while no list has it
  Place::iterator at_;
  std::shared_ptr<ReadyList> list_;
};

/// Done while an item is ready; also, if it is not `endless`, while nothing is under way.
///   Threads  thread-safe
class ReadyList : public Waitable, public std::enable_shared_from_this<ReadyList> {
 public:
  explicit ReadyList(bool endless);

  /// The item is under way from now on, until notify().
  void begin(std::shared_ptr<ReadyItem> item) SHOAL_EXCLUDES(mutex_);
  /// It will not be notified. The caller wakes who waits, if nothing is under way now.
  void withdraw(ReadyItem& item) SHOAL_EXCLUDES(mutex_);
  /// The first one that is ready; null if none is. As withdraw().
  std::shared_ptr<ReadyItem> take() SHOAL_EXCLUDES(mutex_);
  std::size_t size() const SHOAL_EXCLUDES(mutex_);  ///< under way and ready
  /// From now on nobody takes anything: what is ready, and what will be, is dropped. Calls `visit` for each item that is under
  /// way, with the lock held. Allocates nothing.
  void close(const std::function<void(const std::shared_ptr<ReadyItem>& item)>& visit) SHOAL_EXCLUDES(mutex_);

  /// An eventfd that is readable while an item is ready. Errors: kFailedPrecondition (no descriptor is left).
  Result<int> fd() SHOAL_EXCLUDES(mutex_);
  /// Waits until it is done, until `until`, until a stop is requested, or for interrupt(). For clients whose own threads complete
  /// requests.
  void wait(std::chrono::steady_clock::time_point until, const std::stop_token& stop) SHOAL_EXCLUDES(mutex_);
  void interrupt() SHOAL_EXCLUDES(mutex_);

 private:
  friend class ReadyItem;
  using Place = ReadyItem::Place;
  bool finish(ReadyItem& item) noexcept SHOAL_EXCLUDES(mutex_);
  void update() SHOAL_REQUIRES(mutex_);
  static std::shared_ptr<ReadyItem> give_back(Place& list, Place::iterator at) noexcept;

  const bool endless_;
  mutable Mutex mutex_;
  Condition changed_;
  Place under_way_ SHOAL_GUARDED_BY(mutex_), ready_ SHOAL_GUARDED_BY(mutex_);
  unsigned interruptions_ SHOAL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;
  UniqueFd fd_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::completion
