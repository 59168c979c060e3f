#include "client/python/src/inbox.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <vector>

#include "client/python/src/arrays.hpp"
#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"

namespace shoal::python {

namespace {

// A signal that comes just before poll() is noticed after it.
constexpr int kLookForSignalsMs = 500;

nb::tuple delivery(nb::handle receiver, const Outcome& outcome) try {
  if (!outcome.outputs.ok())
    return nb::make_tuple(receiver, nb::none(), error_of(outcome.outputs.status(), outcome.retry_after, outcome.ran));
  return nb::make_tuple(receiver, arrays_of(*outcome.outputs), nb::none());
} catch (nb::python_error& error) {  // bfloat16 without ml_dtypes
  return nb::make_tuple(receiver, nb::none(), nb::borrow(error.value()));
}

}  // namespace

std::shared_ptr<Inbox> Inbox::create() {
  UniqueFd ready_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ready_fd) raise(status_from_errno("create", "an eventfd", errno));
  return std::shared_ptr<Inbox>(new Inbox(std::move(ready_fd)));
}

Inbox::~Inbox() = default;

Status Inbox::expect(const Prediction& prediction, KeptObject receiver, std::function<void()> ended) {
  Entries made;
  made.push_back({prediction, std::move(receiver)});
  const auto entry = made.begin();
  {
    const MutexLock lock(mutex_);
    under_way_.splice(under_way_.end(), made);
  }
  const Status status = entry->prediction.then([inbox = shared_from_this(), entry, ended = std::move(ended)](const Outcome&) {
    if (ended) ended();
    inbox->deliver(entry);
  });
  if (status.ok()) return {};
  const MutexLock lock(mutex_);
  made.splice(made.end(), under_way_, entry);
  return status;
}

void Inbox::deliver(Entries::iterator entry) noexcept {
  const MutexLock lock(mutex_);
  ready_.splice(ready_.end(), under_way_, entry);
  if (ready_.size() == 1) ::eventfd_write(ready_fd_.get(), 1);
}

nb::list Inbox::take() {
  KeptObject::release_left();
  Entries taken;
  {
    const MutexLock lock(mutex_);
    taken.swap(ready_);
    eventfd_t ignored;
    if (!is_closed_ && !taken.empty()) ::eventfd_read(ready_fd_.get(), &ignored);
  }
  nb::list deliveries;
  for (const auto& [prediction, receiver] : taken) deliveries.append(delivery(receiver.get(), prediction.outcome()));
  return deliveries;
}

bool Inbox::wait() {
  while (true) {
    {
      const nb::gil_scoped_release released;
      pollfd readable{ready_fd_.get(), POLLIN, 0};
      ::poll(&readable, 1, kLookForSignalsMs);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const MutexLock lock(mutex_);
    if (!ready_.empty()) return true;
    if (is_closed_) return false;
  }
}

void Inbox::close() {
  std::vector<Prediction> canceled;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    for (const Entry& entry : under_way_) canceled.push_back(entry.prediction);
    ::eventfd_write(ready_fd_.get(), 1);
  }
  const nb::gil_scoped_release released;
  for (const Prediction& prediction : canceled) prediction.cancel();
}

}  // namespace shoal::python
