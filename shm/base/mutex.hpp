// A mutex that clang's thread-safety analysis understands (libstdc++'s carries no annotations).
#pragma once

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
#define SHOAL_EXCLUDES(...) SHOAL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace shoal {

/// std::mutex with annotations; works with std::condition_variable_any. Threads: thread-safe.
class SHOAL_CAPABILITY("mutex") Mutex {
 public:
  void lock() SHOAL_ACQUIRE() { mutex_.lock(); }
  bool try_lock() SHOAL_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() SHOAL_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
class SHOAL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SHOAL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() SHOAL_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace shoal
