#include "supervisor/process/closer.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <deque>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shm/wire/control.hpp"

namespace shoal::supervisor {
namespace {

struct Entry {
  UniqueFd fd;
  bool is_socket_of_ours = false;
};

void close_now(UniqueFd fd) {
  const linger off{};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &off, sizeof off);  // fails if it is not a socket
}

}  // namespace

struct Closer::State {
  Mutex mutex;
  Condition changed;
  std::deque<Entry> queue SHOAL_GUARDED_BY(mutex);
  std::size_t threads SHOAL_GUARDED_BY(mutex) = 0, idle SHOAL_GUARDED_BY(mutex) = 0;
  bool is_stopping SHOAL_GUARDED_BY(mutex) = false;
};

Closer::Closer() : state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  if (start_thread()) ++state_->threads;
}

Closer::~Closer() {
  const MutexLock lock(state_->mutex);
  state_->is_stopping = true;
  state_->changed.notify_all();
}

// The caller holds the lock and counts the thread.
bool Closer::start_thread() {
  bool is_started = false;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits it
  try {
    std::thread([state = state_] { serve(*state); }).detach();
    is_started = true;
  } catch (const std::system_error&) {  // then the other threads do the work, or push() tries again
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_started;
}

void Closer::close(UniqueFd stranger) { push(std::move(stranger), false); }

void Closer::hang_up(UniqueFd socket) {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  push(std::move(socket), true);
}

void Closer::push(UniqueFd fd, bool is_socket_of_ours) {
  if (!fd) return;
  const MutexLock lock(state_->mutex);
  state_->queue.push_back({std::move(fd), is_socket_of_ours});
  state_->changed.notify_one();
  const bool is_late = state_->idle == 0 && state_->queue.size() > kMostQueuedPerThread * state_->threads;
  if (is_late && state_->threads < kMostThreads && start_thread()) ++state_->threads;
}

void Closer::serve(State& state) {
  ::prctl(PR_SET_NAME, "shoal-closer");
  state.mutex.lock();
  while (true) {
    if (state.queue.empty()) {
      if (state.is_stopping || state.idle > 0) break;  // one idle thread is enough
      ++state.idle;
      state.changed.wait(state.mutex);
      --state.idle;
      continue;
    }
    Entry entry = std::move(state.queue.front());
    state.queue.pop_front();
    state.mutex.unlock();
    if (entry.is_socket_of_ours) {
      for (UniqueFd& fd : wire::drain_fds(entry.fd.get())) close_now(std::move(fd));
    }
    close_now(std::move(entry.fd));
    state.mutex.lock();
  }
  --state.threads;
  state.mutex.unlock();
}

}  // namespace shoal::supervisor
