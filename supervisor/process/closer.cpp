#include "supervisor/process/closer.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

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

/// A queue of descriptors and the threads that close them.
struct Closer::Threads {
  struct Entry {
    UniqueFd fd;
    uid_t sender;
    std::shared_ptr<Threads> closes_sent = nullptr;  // of a socket of ours: closes the descriptors that wait in it
    bool is_dead_child = false;
  };
  Mutex mutex;
  Condition changed;
  std::deque<Entry> queue SHOAL_GUARDED_BY(mutex);
  std::size_t threads SHOAL_GUARDED_BY(mutex) = 0, idle SHOAL_GUARDED_BY(mutex) = 0;
  bool is_stopping SHOAL_GUARDED_BY(mutex) = false;
  std::unordered_map<uid_t, std::size_t> left SHOAL_GUARDED_BY(mutex);  // entries that are not closed yet, by sender
  std::atomic<std::size_t> all_left = 0;                                // written with the lock held
  Mutex draining;  // held while descriptors are taken out of a socket, so that one thread knows of another's

  bool is_late(uid_t sender) SHOAL_EXCLUDES(mutex);

  static std::shared_ptr<Threads> make();
  static void push(const std::shared_ptr<Threads>& threads, Entry entry, bool is_next = false);
  void stop();

 private:
  static bool start_one(const std::shared_ptr<Threads>& threads);
  void serve();
  bool take_what_waits_in(const Entry& socket) SHOAL_EXCLUDES(mutex);
};

std::shared_ptr<Closer::Threads> Closer::Threads::make() {
  auto made = std::make_shared<Threads>();
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
  bool is_started = false;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits it
  try {
    std::thread([threads] { threads->serve(); }).detach();
    is_started = true;
  } catch (const std::system_error&) {  // then the other threads do the work, or push() tries again
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_started;
}

void Closer::Threads::push(const std::shared_ptr<Threads>& threads, Entry entry, bool is_next) {
  if (!entry.fd) return;
  const MutexLock lock(threads->mutex);
  std::size_t& left = threads->left[entry.sender];
  threads->queue.insert(is_next ? threads->queue.begin() : threads->queue.end(), std::move(entry));
  ++left;
  ++threads->all_left;
  threads->changed.notify_one();
  const bool is_late = threads->idle == 0 && threads->queue.size() > kMostQueuedPerThread * threads->threads;
  if (is_late && threads->threads < kMostThreads && start_one(threads)) ++threads->threads;
}

void Closer::Threads::serve() {
  ::prctl(PR_SET_NAME, "shoal-closer");
  is_closer = true;
  mutex.lock();
  while (true) {
    if (queue.empty()) {
      if (is_stopping || idle > 0) break;  // one idle thread is enough
      ++idle;
      changed.wait(mutex);
      --idle;
      continue;
    }
    Entry entry = std::move(queue.front());
    const uid_t sender = entry.sender;
    queue.pop_front();
    mutex.unlock();
    if (entry.closes_sent && !take_what_waits_in(entry)) {
      const auto closes_sent = entry.closes_sent;
      push(closes_sent, std::move(entry));
    } else {
      if (entry.is_dead_child) reap(entry.fd);
      close_now(std::move(entry.fd));
    }
    mutex.lock();
    --all_left;
    if (const auto of_sender = left.find(sender); --of_sender->second == 0) left.erase(of_sender);
  }
  --threads;
  mutex.unlock();
}

bool Closer::Threads::is_late(uid_t sender) {
  const MutexLock lock(mutex);
  const auto found = left.find(sender);
  return found != left.end() && found->second > kMostSent;
}

// A socket may hold any number of descriptors, so only some are taken out at a time. While the threads that close them are late,
// the socket waits for those threads, and they close what they took out of one before they look at the next. Returns whether none
// is left.
bool Closer::Threads::take_what_waits_in(const Entry& socket) {
  Threads& sent = *socket.closes_sent;
  const MutexLock lock(sent.draining);
  if (&sent != this && sent.is_late(socket.sender)) return !wire::has_messages(socket.fd.get());
  std::vector<UniqueFd> fds = wire::drain_fds(socket.fd.get(), kMostTaken);
  const bool is_empty = fds.size() < kMostTaken;
  for (UniqueFd& fd : fds) push(socket.closes_sent, {std::move(fd), socket.sender, nullptr}, &sent == this);
  return is_empty;
}

Closer::Closer(std::size_t most) : own_(Threads::make()), sent_(Threads::make()), children_(Threads::make()), most_(most) {
  rlimit descriptors{};
  if (most_ != 0 || ::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  most_ = std::max<std::size_t>(descriptors.rlim_cur / 4, 2 * kMostSent);
}

Closer::~Closer() {
  own_->stop();
  sent_->stop();
  children_->stop();
}

void Closer::close_sent(UniqueFd stranger, uid_t sender) { Threads::push(sent_, {std::move(stranger), sender, nullptr}); }

void Closer::reap_child(UniqueFd pidfd) {
  Threads::push(children_, {.fd = std::move(pidfd), .sender = kChild, .is_dead_child = true});
}

void Closer::close_own(UniqueFd fd) { Threads::push(own_, {std::move(fd), kChild, nullptr}); }

bool Closer::is_late(uid_t sender) const { return sent_->is_late(sender); }

bool Closer::is_its_thread() { return is_closer; }

bool Closer::is_full() const { return sent_->all_left > most_; }

bool Closer::holds_sent() const { return sent_->all_left > 0; }

void Closer::hang_up(UniqueFd socket, uid_t sender) {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  Threads::push(own_, {std::move(socket), sender, sent_});
}

}  // namespace shoal::supervisor
