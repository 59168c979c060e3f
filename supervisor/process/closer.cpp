#include "supervisor/process/closer.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/mutex.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/process/spawn.hpp"

namespace shoal::supervisor {
namespace {

thread_local bool is_closer = false;
constexpr std::size_t kMostTaken = 64;  // of a socket at a time, and the rest of the last packet

void close_now(UniqueFd fd) {
  const linger off{};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &off, sizeof off);  // fails if it is not a socket
}

}  // namespace

/// Queues of descriptors and the threads that close them. Each owner has a queue, and a share of the threads: what one owner's
/// close() waits for does not keep another's waiting.
struct Closer::Threads {
  struct Entry {
    UniqueFd fd;
    std::shared_ptr<Threads> closes_sent = nullptr;  // of a socket of ours: closes the descriptors that wait in it
    std::function<void()> task = nullptr;            // without a descriptor: what is to be done
  };
  struct Owner {
    std::deque<Entry> queue;
    std::size_t busy = 0;  // threads
    std::size_t left() const { return queue.size() + busy; }
  };
  struct Limits {
    std::size_t threads, threads_per_owner;
    std::size_t threads_with_first = threads;  // if the further ones are the first of their owners
    bool reaps_children = false;               // an owner is the pid of a dead child, and descriptors are pidfds
  };

  explicit Threads(Limits most) : limits(most) {}
  const Limits limits;
  Mutex mutex;
  Condition changed;
  std::map<std::uint32_t, Owner> owners SHOAL_GUARDED_BY(mutex);  // which have something left
  std::uint32_t last_owner SHOAL_GUARDED_BY(mutex) = 0;           // whose entry was taken
  std::size_t threads SHOAL_GUARDED_BY(mutex) = 0, idle SHOAL_GUARDED_BY(mutex) = 0;
  bool is_stopping SHOAL_GUARDED_BY(mutex) = false;
  bool is_awaited SHOAL_GUARDED_BY(mutex) = false;  // somebody waits until nothing is left
  std::atomic<std::size_t> all_left = 0;            // written with the lock held
  Mutex draining;  // held while descriptors are taken out of a socket, so that one thread knows of another's

  std::size_t left(std::uint32_t owner) SHOAL_EXCLUDES(mutex);
  bool has_threads() SHOAL_EXCLUDES(mutex);

  static std::shared_ptr<Threads> make(Limits limits);
  static void push(const std::shared_ptr<Threads>& threads, std::uint32_t owner, Entry entry, bool is_next = false);
  static void finish_all(const std::shared_ptr<Threads>& threads);
  void stop();

 private:
  static void start_if_late(const std::shared_ptr<Threads>& threads) SHOAL_REQUIRES(threads->mutex);
  static bool start_one(const std::shared_ptr<Threads>& threads);
  static void serve(const std::shared_ptr<Threads>& threads);
  using OwnerPlace = std::map<std::uint32_t, Owner>::iterator;
  static void finish_one_of(const std::shared_ptr<Threads>& threads, OwnerPlace next) SHOAL_REQUIRES(threads->mutex);
  OwnerPlace next_owner() SHOAL_REQUIRES(mutex);
  void finish(std::uint32_t owner, Entry entry) SHOAL_EXCLUDES(mutex);
  bool take_what_waits_in(const Entry& socket, std::uint32_t owner) SHOAL_EXCLUDES(mutex);
};

std::shared_ptr<Closer::Threads> Closer::Threads::make(Limits limits) {
  auto made = std::make_shared<Threads>(limits);
  const MutexLock lock(made->mutex);
  if (start_one(made)) ++made->threads;
  return made;
}

void Closer::Threads::stop() {
  const MutexLock lock(mutex);
  is_stopping = true;
  changed.notify_all();
}

// The caller holds the lock and counts the thread.
bool Closer::Threads::start_one(const std::shared_ptr<Threads>& threads) {
  const BlockedSignals signals;  // the thread inherits them
  try {
    std::thread([threads] { serve(threads); }).detach();
    return true;
  } catch (const std::exception&) {  // then the other threads do the work, or a later push() tries again
    return false;
  }
}

// One more thread if all are busy, and an owner has none or has much to do.
void Closer::Threads::start_if_late(const std::shared_ptr<Threads>& threads) {
  const Limits& limits = threads->limits;
  if (threads->idle > 0 || threads->threads >= limits.threads_with_first) return;
  const bool for_first_only = threads->threads >= limits.threads;
  const bool is_late = std::ranges::any_of(threads->owners, [&](const auto& one) {
    const Owner& owner = one.second;
    return owner.busy < limits.threads_per_owner && owner.queue.size() > kMostQueuedPerThread * owner.busy &&
           (owner.busy == 0 || !for_first_only);
  });
  if (is_late && start_one(threads)) ++threads->threads;
}

void Closer::Threads::push(const std::shared_ptr<Threads>& threads, std::uint32_t owner, Entry entry, bool is_next) {
  if (!entry.fd && !entry.task) return;
  const MutexLock lock(threads->mutex);
  std::deque<Entry>& queue = threads->owners[owner].queue;
  queue.insert(is_next ? queue.begin() : queue.end(), std::move(entry));
  ++threads->all_left;
  threads->changed.notify_one();
  start_if_late(threads);
}

// In turns. The end if no entry may be taken.
Closer::Threads::OwnerPlace Closer::Threads::next_owner() {
  const auto may_be_taken = [this](const auto& one) {
    return !one.second.queue.empty() && one.second.busy < limits.threads_per_owner;
  };
  const auto after_last = owners.upper_bound(last_owner);
  const auto next = std::find_if(after_last, owners.end(), may_be_taken);
  if (next != owners.end()) return next;
  const auto first = std::find_if(owners.begin(), after_last, may_be_taken);
  return first == after_last ? owners.end() : first;
}

// Unlocks meanwhile.
void Closer::Threads::finish_one_of(const std::shared_ptr<Threads>& threads, OwnerPlace next) {
  const std::uint32_t owner = threads->last_owner = next->first;
  Entry entry = std::move(next->second.queue.front());
  next->second.queue.pop_front();
  ++next->second.busy;
  start_if_late(threads);
  threads->mutex.unlock();
  threads->finish(owner, std::move(entry));
  threads->mutex.lock();
  --threads->all_left;
  const auto done = threads->owners.find(owner);
  --done->second.busy;
  if (done->second.left() == 0) threads->owners.erase(done);
  if (threads->is_awaited) threads->changed.notify_all();
}

// Helps the threads, of which there may be none.
void Closer::Threads::finish_all(const std::shared_ptr<Threads>& threads) {
  const MutexLock lock(threads->mutex);
  threads->is_awaited = true;
  while (threads->all_left > 0) {
    if (const auto next = threads->next_owner(); next != threads->owners.end())
      finish_one_of(threads, next);
    else
      threads->changed.wait(threads->mutex);
  }
  threads->is_awaited = false;
}

void Closer::Threads::serve(const std::shared_ptr<Threads>& threads) {
  ::prctl(PR_SET_NAME, "shoal-closer");
  is_closer = true;
  threads->mutex.lock();
  while (true) {
    const auto next = threads->next_owner();
    if (next == threads->owners.end()) {
      if (threads->is_stopping || threads->idle > 0) break;  // one idle thread is enough
      ++threads->idle;
      threads->changed.wait(threads->mutex);
      --threads->idle;
      continue;
    }
    finish_one_of(threads, next);
  }
  --threads->threads;
  threads->mutex.unlock();
}

void Closer::Threads::finish(std::uint32_t owner, Entry entry) {
  if (entry.task) return entry.task();
  if (entry.closes_sent && !take_what_waits_in(entry, owner)) {
    const auto closes_sent = entry.closes_sent;
    return push(closes_sent, owner, std::move(entry));
  }
  if (limits.reaps_children) reap(entry.fd);
  close_now(std::move(entry.fd));
}

std::size_t Closer::Threads::left(std::uint32_t owner) {
  const MutexLock lock(mutex);
  const auto found = owners.find(owner);
  return found == owners.end() ? 0 : found->second.left();
}

bool Closer::Threads::has_threads() {
  const MutexLock lock(mutex);
  return threads > 0;
}

// A socket may hold any number of descriptors, so only some are taken out at a time. While the threads that close them are late,
// the socket waits for those threads, and they close what they took out of one before they look at the next. Returns whether none
// is left.
bool Closer::Threads::take_what_waits_in(const Entry& socket, std::uint32_t owner) {
  Threads& sent = *socket.closes_sent;
  const MutexLock lock(sent.draining);
  if (&sent != this && sent.left(owner) > kMostSent) return !wire::drop_until_descriptors(socket.fd.get());
  std::vector<UniqueFd> fds = wire::drain_fds(socket.fd.get(), kMostTaken);
  const bool is_empty = fds.size() < kMostTaken;
  for (UniqueFd& fd : fds) push(socket.closes_sent, owner, {std::move(fd)}, &sent == this);
  return is_empty;
}

Closer::Closer(std::size_t most)
    : own_(Threads::make({.threads = kMostThreads, .threads_per_owner = kMostThreads / 2})),
      sent_(Threads::make({.threads = kMostThreadsForSent,
                           .threads_per_owner = kMostThreadsPerSender,
                           .threads_with_first = kMostThreadsOfSenders})),
      children_(Threads::make({.threads = 1, .threads_per_owner = 1, .reaps_children = true})),
      groups_(Threads::make({.threads = 1, .threads_per_owner = 1})),
      most_(most) {
  rlimit descriptors{};
  if (most_ != 0 || ::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  most_ = std::max<std::size_t>(descriptors.rlim_cur / 8, 2 * kMostSent);
}

Closer::~Closer() {
  own_->stop();
  sent_->stop();
  children_->stop();
  groups_->stop();
}

void Closer::close_sent(UniqueFd stranger, uid_t sender) { Threads::push(sent_, sender, {std::move(stranger)}); }

void Closer::reap_child(pid_t pid, UniqueFd pidfd) {
  Threads::push(children_, static_cast<std::uint32_t>(pid), {std::move(pidfd)});
}

bool Closer::is_reaping(pid_t pid) const { return children_->left(static_cast<std::uint32_t>(pid)) > 0; }

void Closer::end_group(pid_t leader, std::unordered_set<pid_t> spared, std::function<void(std::size_t)> killed) {
  const auto task = [leader, spared = std::move(spared), killed = std::move(killed)] {
    killed(kill_group_except(leader, spared));
  };
  Threads::push(groups_, static_cast<std::uint32_t>(leader), {.fd = {}, .task = task});
  if (!groups_->has_threads()) Threads::finish_all(groups_);
}

bool Closer::ends_groups() const { return groups_->all_left > 0; }

void Closer::finish_groups() { Threads::finish_all(groups_); }

void Closer::close_own(UniqueFd fd) { Threads::push(own_, kChild, {std::move(fd)}); }

bool Closer::is_late(uid_t sender) const { return is_full() || sent_->left(sender) > kMostSent; }

bool Closer::is_its_thread() { return is_closer; }

bool Closer::is_full() const { return sent_->all_left > most_; }

bool Closer::holds_sent() const { return sent_->all_left > 0; }

void Closer::hang_up(UniqueFd socket, uid_t sender) {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  Threads::push(own_, sender, {std::move(socket), sent_});
}

}  // namespace shoal::supervisor
