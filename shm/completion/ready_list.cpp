#include "shm/completion/ready_list.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::completion {

const Waitable& ReadyItem::notify() noexcept {
  ReadyList& list = *list_;
  list.finish(*this);
  return list;
}

ReadyList::~ReadyList() {
  for (Place* const list : {&under_way_, &ready_}) {
    while (!list->empty()) give_back(*list, list->begin());
  }
}

// The item may end with what is returned, and its place with it.
std::shared_ptr<ReadyItem> ReadyList::give_back(Place& list, Place::iterator at) noexcept {
  std::shared_ptr<ReadyItem> item = std::move(*at);
  item->place_.splice(item->place_.end(), list, at);
  return item;
}

void ReadyList::begin(std::shared_ptr<ReadyItem> item) {
  ReadyItem& begun = *item;
  begun.list_ = shared_from_this();
  begun.at_ = begun.place_.begin();
  *begun.at_ = std::move(item);
  const MutexLock lock(mutex_);
  under_way_.splice(under_way_.end(), begun.place_);
}

void ReadyList::withdraw(ReadyItem& item) {
  std::shared_ptr<ReadyItem> kept;
  const MutexLock lock(mutex_);
  kept = give_back(under_way_, item.at_);
}

void ReadyList::finish(ReadyItem& item) noexcept {
  const MutexLock lock(mutex_);
  if (is_closed_) {
    give_back(under_way_, item.at_);  // whoever notifies keeps it
    return item.drop();
  }
  ready_.splice(ready_.end(), under_way_, item.at_);
  if (ready_.size() > 1) return;
  set_done();
  if (fd_) ::eventfd_write(fd_.get(), 1);
  filled_.notify_all();
}

std::shared_ptr<ReadyItem> ReadyList::take() {
  const MutexLock lock(mutex_);
  if (ready_.empty()) return nullptr;
  std::shared_ptr<ReadyItem> item = give_back(ready_, ready_.begin());
  if (ready_.empty()) {
    set_done(false);
    eventfd_t ignored;
    if (fd_) ::eventfd_read(fd_.get(), &ignored);
  }
  return item;
}

std::size_t ReadyList::size() const {
  const MutexLock lock(mutex_);
  return under_way_.size() + ready_.size();
}

std::list<std::shared_ptr<ReadyItem>> ReadyList::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  return under_way_;
}

Result<int> ReadyList::fd() {
  const MutexLock lock(mutex_);
  if (!fd_) fd_ = UniqueFd(::eventfd(ready_.empty() ? 0 : 1, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd_) return status_from_errno("create", "an eventfd", errno);
  return fd_.get();
}

void ReadyList::wait(std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { interrupt(); });
  const MutexLock lock(mutex_);
  const unsigned before = interruptions_;
  while (ready_.empty() && interruptions_ == before && !stop.stop_requested()) {
    if (until == until.max())
      filled_.wait(mutex_);
    else if (!filled_.wait_until(mutex_, until))
      return;
  }
}

void ReadyList::interrupt() {
  const MutexLock lock(mutex_);
  ++interruptions_;
  filled_.notify_all();
}

}  // namespace shoal::completion
