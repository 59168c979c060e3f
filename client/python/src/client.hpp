// ClientObject: what Python's Pool and Engine have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client/python/src/inbox.hpp"
#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fork_guard.hpp"
#include "shoal/client.hpp"

namespace shoal::python {

namespace nb = nanobind;

/// What the methods that submit have in common: seconds, or None for the model's default; a version, 0 for the default one; and
/// so on. Errors: raises InvalidArgument.
SubmitOptions options_of(nb::handle timeout, nb::handle version, nb::handle priority, nb::handle flow = {});
/// The timeout alone.
SubmitOptions options_of(nb::handle timeout);
/// Seconds. Errors: raises InvalidArgument.
std::chrono::nanoseconds duration_of(nb::handle seconds, const char* name);
/// A whole number from `least` on. Errors: raises InvalidArgument.
template <typename Number>
Number number_of(nb::handle value, const char* name, Number least = 0) {
  Number number{};
  if (!nb::try_cast(value, number) || number < least)
    raise(invalid_argument("{} is {}: give a whole number from {} to {}", name, nb::repr(value).c_str(), +least,
                           +std::numeric_limits<Number>::max()));
  return number;
}

/// A submitted request.
struct RequestObject {
  Prediction prediction;
};

using Submit = std::function<Result<Prediction>(Tensors)>;
/// Calls `submit` without the GIL, and waits. Raises what a signal's handler raises; the request is then canceled.
///   ended  is called before anybody sees the outputs, without the GIL
nb::object predict(const Submit& submit, nb::handle inputs, const std::function<void()>& ended = {});
/// Calls `submit` without the GIL. The outcome comes to the inbox.
RequestObject submit_to(Inbox& inbox, nb::object receiver, const Submit& submit, nb::handle inputs,
                        std::function<void()> ended = {});

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
  /// What the library calls the model that a user names: an Engine has one model, and takes it by any name.
  const std::string& model_name(const std::string& given) const { return only_model_.empty() ? given : only_model_; }

 protected:
  void open(Client client, std::string only_model = {}) {
    client_ = std::move(client);
    only_model_ = std::move(only_model);
    is_closed_ = false;
  }
  /// In a forked child nothing may be ended: it has none of the threads.
  bool in_forked_child() const { return fork_guard_.in_child(); }

 private:
  friend void define_client(nb::module_& module);
  nb::object predict_into(const std::string& model, nb::handle inputs, const SubmitOptions& options, nb::handle out);

  const ForkGuard fork_guard_;
  Client client_;
  std::string only_model_;
  bool is_closed_ = true;
  std::map<std::pair<std::string, std::uint64_t>, Model> models_;  ///< of predict_into()
};

/// Adds Client, Request and Inbox to the module.
void define_client(nb::module_& module);

}  // namespace shoal::python
