#include "client/python/src/kept_object.hpp"

#include <atomic>

namespace shoal::python {
namespace {

thread_local bool is_released_soon = false;
std::atomic<void*> left{nullptr};  // a stack of Kept: many push, one takes all

}  // namespace

KeptObject::KeptObject(nb::object object) : kept_(new Kept{object.ptr()}) { object.release(); }

// It allocates nothing, and takes no lock but that of the interpreter's list of pending calls, with which nobody waits.
void KeptObject::LetGo::operator()(Kept* kept) const noexcept {
  if (!Py_IsInitialized()) return;  // the interpreter has ended, and its objects with it
  if (PyGILState_Check()) {
    Py_DECREF(kept->object);
    delete kept;
    return;
  }
  void* before = left.load(std::memory_order_relaxed);
  do {
    kept->next = static_cast<Kept*>(before);
  } while (!left.compare_exchange_weak(before, kept, std::memory_order_release, std::memory_order_relaxed));
  if (before || is_released_soon) return;
  // If the list of pending calls is full, the next call into this module releases it.
  Py_AddPendingCall([](void*) { return release_left(), 0; }, nullptr);
}

void KeptObject::release_left() {
  if (!left.load(std::memory_order_relaxed)) return;
  auto* kept = static_cast<Kept*>(left.exchange(nullptr, std::memory_order_acquire));
  while (kept) {
    Kept* const next = kept->next;
    Py_DECREF(kept->object);
    delete kept;
    kept = next;
  }
}

KeptObject::ReleasedSoon::ReleasedSoon() { is_released_soon = true; }
KeptObject::ReleasedSoon::~ReleasedSoon() { is_released_soon = false; }

}  // namespace shoal::python
