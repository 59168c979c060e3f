#include "shm/completion/callbacks.hpp"

#include <system_error>
#include <utility>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/errors.hpp"
#include "shm/completion/client_core.hpp"

namespace shoal::completion {

Status Callbacks::start(ClientCore& core) try {
  if (is_own_loop_.load(std::memory_order_relaxed)) return {};
  const MutexLock lock(mutex_);
  if (thread_.joinable() || is_stopped_.load()) return {};
  const BlockedSignals signals;
  thread_ = std::jthread([this, core = core.shared_from_this()](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      core->wait(*list_, std::chrono::steady_clock::time_point::max(), stop);
      run_ready();
    }
  });
  return {};
} catch (const std::system_error& error) {
  return unavailable("start the thread that calls callbacks: {}", error.what());
}

Status Callbacks::add(ClientCore& core, PendingOutcome& request, const std::shared_ptr<Callback>& callback) {
  SHOAL_RETURN_IF_ERROR(start(core));
  list_->begin(callback);
  request.add_notice(callback);
  if (is_stopped_.load()) run_ready();  // the client has ended, and the request with it: there is no other thread
  return {};
}

void Callbacks::run_ready() {
  while (const auto item = std::static_pointer_cast<Callback>(list_->take())) {
    std::function<void()> run = std::exchange(item->run, nullptr);
    if (const Executor executor = std::exchange(item->executor, nullptr))
      executor(std::move(run));
    else
      run();
  }
}

void Callbacks::run_in_own_loop() {
  is_own_loop_.store(true, std::memory_order_relaxed);
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
