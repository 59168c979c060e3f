// FileQueue: many files, several threads, a progress bar.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/mutex.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {

/// Does the same work for many files on several threads. The results have the order of the files.
///   Threads  thread-bound
template <typename T>
class FileQueue {
 public:
  /// Of file i. Thread-safe.
  using Work = std::function<Finish(std::size_t i, T& result)>;
  /// `verb`, such as "classifying", stands before the progress bar.
  FileQueue(std::string verb, const std::vector<std::string>& files, Work work)
      : verb_(std::move(verb)), files_(files), work_(std::move(work)), results_(files.size()) {}

  /// Returns when all are done. Begins no new file after a failure.
  Finish run(int thread_count) {
    const int count = static_cast<int>(std::min(files_.size(), static_cast<std::size_t>(thread_count)));
    std::vector<std::jthread> threads;
    try {
      while (std::cmp_less(threads.size(), count)) threads.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (threads.empty()) return no_thread(error);  // else those that started do all the work
    }
    show_progress();
    threads.clear();
    const MutexLock lock(mutex_);
    return failure_;
  }
  /// One entry per file, in their order. Complete after run() has succeeded.
  const std::vector<T>& results() const { return results_; }

 private:
  void work() {
    for (std::size_t i = next_++; i < files_.size(); i = next_++) {
      Finish finish = work_on(i);
      const MutexLock lock(mutex_);
      if (!finish.status.ok()) {
        if (i < failed_at_)
          failed_at_ = i, failure_ = std::move(finish);  // keep the error of the first file, whichever thread was faster
        next_ = files_.size();
      }
      ++done_;
      changed_.notify_one();
    }
  }

  Finish work_on(std::size_t i) try { return work_(i, results_[i]); } catch (const std::bad_alloc&) {
    return out_of_memory(files_[i]);
  }

  void show_progress() {
    Progress progress(verb_, files_.size());
    const MutexLock lock(mutex_);
    while (done_ < files_.size() && failure_.status.ok()) {
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
      progress.show(done_);
    }
  }

  const std::string verb_;
  const std::vector<std::string>& files_;
  const Work work_;
  std::atomic<std::size_t> next_{0};
  Mutex mutex_;
  Condition changed_;
  std::vector<T> results_;  // each thread writes the entries of its files
  std::size_t done_ SHOAL_GUARDED_BY(mutex_) = 0, failed_at_ SHOAL_GUARDED_BY(mutex_) = SIZE_MAX;
  Finish failure_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::tool
