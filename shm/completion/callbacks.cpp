#include "shm/completion/callbacks.hpp"

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"

namespace shoal::completion {
namespace {

constexpr auto kPauseWithoutMemory = std::chrono::milliseconds(10);

/// Of which client this thread runs callbacks now. They may register others, which then run after them, not within.
thread_local const Callbacks* running = nullptr;

}  // namespace

Status Callbacks::start(ClientCore& core) try {
  if (is_own_loop_.load()) return {};
  const MutexLock lock(mutex_);
  if (thread_.joinable() || is_stopped_.load()) return {};
  const BlockedSignals signals;
  thread_ = std::jthread([this, kept = core.shared_from_this()](const std::stop_token& stop) { serve(*kept, stop); });
  return {};
} catch (const std::system_error& error) {
  return unavailable("start the thread that calls callbacks: {}", error.what());
}

void Callbacks::serve(ClientCore& core, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      core.wait(*list_, std::chrono::steady_clock::time_point::max(), stop);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPauseWithoutMemory);
    }
    run_ready();
  }
}

void Callbacks::add(PendingOutcome& request, std::shared_ptr<Callback> callback) {
  list_->begin(callback);
  request.add_notice(std::move(callback));
  if (is_stopped_.load()) run_ready();  // the client has ended, and the request with it: there is no other thread
}

void Callbacks::run_ready() {
  if (running == this) return;
  const Callbacks* const outer = std::exchange(running, this);
  while (const auto item = std::static_pointer_cast<Callback>(list_->take())) {
    std::function<void()> run = std::exchange(item->run, nullptr);
    if (const Executor executor = std::exchange(item->executor, nullptr))
      executor(std::move(run));
    else
      run();
  }
  running = outer;
}

void Callbacks::run_in_own_loop() {
  is_own_loop_.store(true);
  run_ready();
}

void Callbacks::stop() {
  std::jthread thread;
  {
    const MutexLock lock(mutex_);
    is_stopped_.store(true);
    thread = std::move(thread_);
  }
  thread.request_stop();
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();  // it ends after the callback that called this
  else
    thread = {};  // waits for it
  run_ready();
}

}  // namespace shoal::completion
