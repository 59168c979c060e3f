#include "client/python/src/engine_session.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>

#include "client/python/src/client.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

Result<Tensors> states_of(const Tensors& outputs, const std::vector<StatePair>& pairs) {
  Tensors states;
  for (const StatePair& pair : pairs) {
    const auto output = std::ranges::find(outputs, pair.out, &NamedTensor::name);
    if (output == outputs.end()) return internal_error("no output '{}' for the state '{}'", pair.out, pair.in);
    const TensorView& from = output->tensor.view();
    SHOAL_ASSIGN_OR_RETURN(Tensor copy, Tensor::create(from.dtype, from.shape));
    if (from.size_bytes() > 0) std::memcpy(copy.view().data, from.data, from.size_bytes());
    states.push_back({pair.in, std::move(copy)});
  }
  return states;
}

}  // namespace

Result<Prediction> EngineSession::submit(Tensors inputs, const SubmitOptions& options) {
  SHOAL_RETURN_IF_ERROR(usable());
  const MutexLock lock(mutex_);
  SHOAL_RETURN_IF_ERROR(check_idle());
  SHOAL_RETURN_IF_ERROR(states_.status());
  for (const NamedTensor& state : *states_) {
    if (std::ranges::count(inputs, state.name, &NamedTensor::name) == 0) inputs.push_back(state);
  }
  step_ = client_.submit(info_.name, std::move(inputs), options);
  return step_;
}

void EngineSession::end_step() {
  const MutexLock lock(mutex_);
  keep_states();
}

Status EngineSession::reset() {
  SHOAL_RETURN_IF_ERROR(usable());
  const MutexLock lock(mutex_);
  SHOAL_RETURN_IF_ERROR(check_idle());
  states_ = Tensors();
  return {};
}

void EngineSession::close() {
  if (!usable().ok()) return;
  const MutexLock lock(mutex_);
  is_closed_ = true;
  states_ = Tensors();
}

Status EngineSession::usable() const {
  if (!fork_guard_.in_child()) return {};
  return failed_precondition(
      "this process was forked after the session was opened: open one in the child, of an Engine that is made there");
}

void EngineSession::keep_states() {
  if (!step_.ready()) return;
  const Result<Tensors>& outputs = step_.outcome().outputs;
  if (outputs.ok() && !is_closed_) {
    states_ = states_of(*outputs, info_.state);
    if (!states_.ok()) states_ = states_.status().with_context(format("model '{}'", info_.name));
  }
  step_ = {};
}

Status EngineSession::check_idle() {
  if (is_closed_) return failed_precondition("this session is closed");
  keep_states();  // of a step whose outcome is on its way to the caller
  if (step_.ready()) return {};
  return failed_precondition(
      "model '{}': a step of this session is under way: wait for its outcome, also after you have canceled it", info_.name);
}

void define_engine_session(nb::module_& module) {
  using Session = std::shared_ptr<EngineSession>;
  nb::class_<EngineSession>(module, "EngineSession")
      .def("close", &EngineSession::close)
      .def("reset", [](EngineSession& self) { check(self.reset()); })
      .def(
          "predict",
          [](const Session& self, nb::handle inputs, nb::handle timeout, nb::handle version, nb::handle priority) {
            const SubmitOptions options = options_of(timeout, version, priority);
            return predict([&](Tensors tensors) { return self->submit(std::move(tensors), options); }, inputs,
                           [&] { self->end_step(); });
          },
          "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a)
      .def(
          "submit",
          [](const Session& self, Inbox& inbox, nb::object receiver, nb::handle inputs, nb::handle timeout, nb::handle version,
             nb::handle priority) {
            const SubmitOptions options = options_of(timeout, version, priority);
            return submit_to(
                inbox, std::move(receiver), [&](Tensors tensors) { return self->submit(std::move(tensors), options); }, inputs,
                [self] { self->end_step(); });
          },
          "inbox"_a, "receiver"_a.none(), "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a);
}

}  // namespace shoal::python
