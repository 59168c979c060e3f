// Handles: which object of C++ a pointer of the C interface stands for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shoal/c/client.h"
#include "shoal/c/request.h"
#include "shoal/c/status.h"
#include "shoal/c/tensor.h"
#include "shoal/client.hpp"
#include "shoal/completion_queue.hpp"
#include "shoal/model_info.hpp"
#include "shoal/outcome.hpp"
#include "shoal/tensor.hpp"

/// A failure. Never an OK Status: that is a null pointer.
struct shoal_status {
  shoal::Status status;
  std::chrono::nanoseconds retry_after{0};
  bool is_static = false;  ///< it is there for all, and is not freed
};

namespace shoal::c {

/// The handle of a request that is used again. A completion finds it by Request::id(), which is its address, or 0 when it was
/// freed.
struct RequestHandle {
  Request request;
  std::uint64_t id = 0;  ///< the caller's own
};

/// A callback that a program runs where it likes. It owns itself from the moment in which it is handed out.
struct Task {
  std::function<void()> run;
  std::shared_ptr<Task> self;
};

/// Handle::Object is what the handle points to: nothing is made or copied to hand out, as an outcome, what a request already has.
template <typename Handle>
struct Of;
// clang-format off
template <> struct Of<shoal_tensor> { using Object = Tensor; };
template <> struct Of<shoal_outputs> { using Object = Tensors; };
template <> struct Of<shoal_outcome> { using Object = Outcome; };
template <> struct Of<shoal_model_info> { using Object = std::shared_ptr<const ModelInfo>; };
template <> struct Of<shoal_client> { using Object = Client; };
template <> struct Of<shoal_model> { using Object = Model; };
template <> struct Of<shoal_prediction> { using Object = Prediction; };
template <> struct Of<shoal_task> { using Object = Task; };
template <> struct Of<shoal_request> { using Object = RequestHandle; };
template <> struct Of<shoal_queue> { using Object = CompletionQueue; };
// clang-format on

/// The object of a handle that is not null, as const as the handle.
template <typename Handle>
auto& object_of(Handle* handle) {
  using Object = typename Of<std::remove_const_t<Handle>>::Object;
  return *reinterpret_cast<std::conditional_t<std::is_const_v<Handle>, const Object, Object>*>(handle);
}

template <typename Handle>
Handle* handle_of(typename Of<Handle>::Object* object) {
  return reinterpret_cast<Handle*>(object);
}
template <typename Handle>
const Handle* handle_of(const typename Of<Handle>::Object* object) {
  return reinterpret_cast<const Handle*>(object);
}

template <typename Handle>
void free_handle(Handle* handle) {
  if (handle) delete &object_of(handle);
}

}  // namespace shoal::c
