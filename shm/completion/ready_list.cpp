#include "shm/completion/ready_list.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::completion {

// Once it is dropped, another thread may use the item again, with another list.
std::shared_ptr<const Waitable> ReadyItem::notify() noexcept {
  std::shared_ptr<ReadyList> list = list_;
  if (!list->finish(*this)) drop();
  return list;
}

ReadyList::ReadyList(bool endless) : endless_(endless) { set_done(!endless); }

// The item may end with what is returned, and its place with it.
std::shared_ptr<ReadyItem> ReadyList::give_back(Place& list, Place::iterator at) noexcept {
  std::shared_ptr<ReadyItem> item = std::move(*at);
  item->place_.splice(item->place_.end(), list, at);
  return item;
}

void ReadyList::update() { set_done(!ready_.empty() || (!endless_ && under_way_.empty())); }

void ReadyList::begin(std::shared_ptr<ReadyItem> item) {
  ReadyItem& begun = *item;
  begun.list_ = shared_from_this();
  begun.at_ = begun.place_.begin();
  *begun.at_ = std::move(item);
  const MutexLock lock(mutex_);
  under_way_.splice(under_way_.end(), begun.place_);
  update();
}

void ReadyList::withdraw(ReadyItem& item) {
  std::shared_ptr<ReadyItem> kept;
  const MutexLock lock(mutex_);
  kept = give_back(under_way_, item.at_);
  update();
  changed_.notify_all();
}

// False if nobody takes it. Whoever notifies keeps it.
bool ReadyList::finish(ReadyItem& item) noexcept {
  const MutexLock lock(mutex_);
  if (is_closed_) {
    give_back(under_way_, item.at_);
    return false;
  }
  ready_.splice(ready_.end(), under_way_, item.at_);
  update();
  if (ready_.size() == 1 && fd_) ::eventfd_write(fd_.get(), 1);
  changed_.notify_all();
  return true;
}

std::shared_ptr<ReadyItem> ReadyList::take() {
  const MutexLock lock(mutex_);
  if (ready_.empty()) return nullptr;
  std::shared_ptr<ReadyItem> item = give_back(ready_, ready_.begin());
  update();
  if (ready_.empty()) {
    eventfd_t ignored;
    if (fd_) ::eventfd_read(fd_.get(), &ignored);
    if (under_way_.empty()) changed_.notify_all();
  }
  return item;
}

std::size_t ReadyList::size() const {
  const MutexLock lock(mutex_);
  return under_way_.size() + ready_.size();
}

void ReadyList::close(const std::function<void(const std::shared_ptr<ReadyItem>& item)>& visit) {
  Place dropped;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    for (const auto& item : under_way_) visit(item);
    dropped.swap(ready_);
    fd_.reset();
    changed_.notify_all();
  }
  while (!dropped.empty()) give_back(dropped, dropped.begin())->drop();
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
  while (!is_done() && !is_closed_ && interruptions_ == before && !stop.stop_requested()) {
    if (until == until.max())
      changed_.wait(mutex_);
    else if (!changed_.wait_until(mutex_, until))
      return;
  }
}

void ReadyList::interrupt() {
  const MutexLock lock(mutex_);
  ++interruptions_;
  changed_.notify_all();
}

}  // namespace shoal::completion
