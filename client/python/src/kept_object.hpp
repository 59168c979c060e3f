// KeptObject: a Python object that threads without the GIL may let go of.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace shoal::python {

namespace nb = nanobind;

/// Holds an object. It may end in any thread, with locks of the library held: nobody waits for the GIL there. The object is then
/// released by a thread of Python's, soon.
///   Threads  made with the GIL; thread-compatible
class KeptObject {
 public:
  explicit KeptObject(nb::object object);
  nb::handle get() const { return kept_->object; }  ///< to be used with the GIL
  /// The same as what a Tensor has.
  std::shared_ptr<void> share() && { return std::shared_ptr<Kept>(std::move(kept_)); }

  /// For a scope that has released the GIL and calls release_left() when it has it again. So no other thread is bothered.
  class ReleasedSoon {
   public:
    ReleasedSoon();
    ~ReleasedSoon();
    ReleasedSoon(const ReleasedSoon&) = delete;
    ReleasedSoon& operator=(const ReleasedSoon&) = delete;
  };
  /// Releases the objects that threads without the GIL have let go of. With the GIL.
  static void release_left();

 private:
  struct Kept {
    PyObject* object;
    Kept* next = nullptr;
  };
  struct LetGo {
    void operator()(Kept* kept) const noexcept;
  };
  std::unique_ptr<Kept, LetGo> kept_;
};

}  // namespace shoal::python
