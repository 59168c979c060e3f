// A mutex and a condition with the annotations of clang's thread-safety analysis, which libstdc++'s do not have.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SHOAL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SHOAL_THREAD_ANNOTATION(x)
#endif
#define SHOAL_CAPABILITY(x) SHOAL_THREAD_ANNOTATION(capability(x))
#define SHOAL_SCOPED_CAPABILITY SHOAL_THREAD_ANNOTATION(scoped_lockable)
#define SHOAL_GUARDED_BY(x) SHOAL_THREAD_ANNOTATION(guarded_by(x))
#define SHOAL_REQUIRES(...) SHOAL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SHOAL_ACQUIRE(...) SHOAL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SHOAL_TRY_ACQUIRE(...) SHOAL_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define SHOAL_RELEASE(...) SHOAL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SHOAL_NO_THREAD_SAFETY_ANALYSIS SHOAL_THREAD_ANNOTATION(no_thread_safety_analysis)
#define SHOAL_EXCLUDES(...) SHOAL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace shoal {

/// std::mutex with annotations. Threads: thread-safe.
class SHOAL_CAPABILITY("mutex") Mutex {
 public:
  void lock() SHOAL_ACQUIRE() { mutex_.lock(); }
  bool try_lock() SHOAL_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() SHOAL_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
class SHOAL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SHOAL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// Takes over a mutex that this thread has already locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t) SHOAL_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() SHOAL_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// std::condition_variable for a Mutex. The waits take no predicate, because the analysis cannot see which locks a lambda runs
/// under. Callers write the loop. Threads: thread-safe.
class Condition {
 public:
  void wait(Mutex& mutex) SHOAL_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// Returns false at `until`.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point until) SHOAL_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace shoal
