// ClientObject: what Python's Pool and Engine have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client/python/src/inbox.hpp"
#include "shm/base/fork_guard.hpp"
#include "shoal/client.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// What the methods that submit have in common: seconds, or None for the model's default; a version, 0 for the default one.
SubmitOptions options_of(nb::handle timeout, std::uint64_t version, int priority, std::uint64_t flow);
/// Seconds. Errors: raises InvalidArgument.
std::chrono::nanoseconds duration_of(nb::handle seconds, const char* name);

/// A submitted request.
struct RequestObject {
  Prediction prediction;
};

using Submit = std::function<Prediction(Tensors)>;
/// Calls `submit` without the GIL, and waits. Raises what a signal's handler raises; the request is then canceled.
nb::object predict(const Submit& submit, nb::handle inputs);
/// Calls `submit` without the GIL. The outcome comes to the inbox.
RequestObject submit_to(Inbox& inbox, nb::object receiver, const Submit& submit, nb::handle inputs);

/// A Client, and who made it. Without one it is closed: everything raises FailedPrecondition.
///   Threads  with the GIL
class ClientObject {
 public:
  virtual ~ClientObject() = default;
  /// Ends it. Arrays that came of it stay valid.
  virtual void close() {
    client_ = {};
    is_closed_ = true;
  }
  bool is_closed() const { return is_closed_; }
  /// Raises FailedPrecondition if it is closed, or if this process was forked from the one that made it.
  const Client& client() const;

 protected:
  void open(Client client) {
    client_ = std::move(client);
    is_closed_ = false;
  }
  /// In a forked child nothing may be ended: it has none of the threads.
  bool in_forked_child() const { return fork_guard_.in_child(); }

 private:
  friend void define_client(nb::module_& module);
  nb::object predict_into(const std::string& model, nb::handle inputs, const SubmitOptions& options, nb::dict outputs);

  const ForkGuard fork_guard_;
  Client client_;
  bool is_closed_ = true;
  std::map<std::pair<std::string, std::uint64_t>, Model> models_;  ///< of predict_into()
};

/// Adds Client, Request and Inbox to the module.
void define_client(nb::module_& module);

}  // namespace shoal::python
