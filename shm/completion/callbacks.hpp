// Callbacks: functions of the user's that run when a request is complete, and the thread of the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "shm/base/mutex.hpp"
#include "shm/completion/ready_list.hpp"
#include "shoal/client.hpp"

namespace shoal::completion {

class ClientCore;

/// One registered function. It keeps its request until it has run.
struct Callback final : ReadyItem {
  std::function<void()> run;
  Executor executor;  ///< empty: it runs in the thread of the library
};

/// The callbacks of one client. The first one starts its thread, which also drives a Pool's connection while it waits; but none
/// starts once the program has called run_in_own_loop().
///   Threads  thread-safe
class Callbacks {
 public:
  /// Starts the thread, if there is none yet and the program has no loop of its own.
  ///   Errors  kUnavailable (no thread can be started)
  Status start(ClientCore& core) SHOAL_EXCLUDES(mutex_);
  /// Registers it with a request: it will run when that is complete. start() has been called.
  void add(PendingOutcome& request, std::shared_ptr<Callback> callback) SHOAL_EXCLUDES(mutex_);
  /// Runs what is ready in this thread, which from now on does so now and then.
  void run_in_own_loop();
  /// All requests are complete. Runs what is ready, and ends the thread; when a callback calls this, the thread ends after it.
  void stop() SHOAL_EXCLUDES(mutex_);

 private:
  void serve(ClientCore& core, const std::stop_token& stop);
  void run_ready();

  const std::shared_ptr<ReadyList> list_ = std::make_shared<ReadyList>(/*endless=*/true);
  std::atomic<bool> is_own_loop_{false}, is_stopped_{false};
  Mutex mutex_;
  std::jthread thread_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::completion
