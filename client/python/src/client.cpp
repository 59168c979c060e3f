#include "client/python/src/client.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "client/python/src/arrays.hpp"
#include "client/python/src/engine_session.hpp"
#include "client/python/src/preprocess.hpp"
#include "shoal/completion_queue.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

// So long the handlers of signals wait at most.
constexpr auto kLookForSignals = std::chrono::milliseconds(100);
// A request that takes longer is also looked after by the library's thread, which notices a daemon that is stopped.
constexpr int kLooksAlone = 10;

/// Waits for the request, of which one look has been taken.
const Outcome& outcome_of(const Prediction& prediction, bool is_ready) {
  for (int looks = 1; !is_ready; ++looks) {
    if (PyErr_CheckSignals() != 0) {
      prediction.cancel();
      throw nb::python_error();
    }
    const nb::gil_scoped_release released;
    if (looks == kLooksAlone) static_cast<void>(prediction.then([](const Outcome&) {}));
    is_ready = prediction.wait_for(kLookForSignals);
  }
  return prediction.outcome();
}

nb::dict outputs_of(const Outcome& outcome) {
  if (!outcome.outputs.ok()) raise(outcome.outputs.status(), outcome.retry_after, outcome.ran);
  return arrays_of(*outcome.outputs);
}

nb::tuple tuple_of(const Shape& shape) {
  nb::list dims;
  for (const std::int64_t dim : shape) dims.append(dim);
  return nb::tuple(dims);
}

nb::list list_of(const std::vector<TensorSpec>& specs) {
  nb::list list;
  for (const TensorSpec& spec : specs)
    list.append(nb::make_tuple(spec.name, std::string(dtype_name(spec.dtype)),
                               spec.shape.is_known() ? nb::object(tuple_of(spec.shape)) : nb::none()));
  return list;
}

nb::dict dict_of(const ModelInfo& info) {
  nb::list labels;
  for (const std::string& label : info.labels) labels.append(label);
  nb::list state;
  for (const StatePair& pair : info.state) state.append(nb::make_tuple(pair.out, pair.in));
  nb::dict dict;
  dict["name"] = info.name;
  dict["version"] = info.version;
  dict["inputs"] = list_of(info.inputs);
  dict["outputs"] = list_of(info.outputs);
  dict["state"] = nb::tuple(state);
  dict["labels"] = nb::tuple(labels);
  dict["precision"] = info.precision;
  dict["preprocess"] = info.preprocess ? nb::object(tuple_of_preprocess(*info.preprocess)) : nb::none();
  return dict;
}

}  // namespace

nb::object predict(const Submit& submit, nb::handle inputs, const std::function<void()>& ended) {
  Tensors tensors = tensors_of(inputs);
  Result<Prediction> prediction = Prediction();
  bool is_ready = false;
  {
    const nb::gil_scoped_release released;
    const KeptObject::ReleasedSoon soon;
    prediction = submit(std::move(tensors));
    is_ready = prediction.ok() && prediction->wait_for(kLookForSignals);
  }
  KeptObject::release_left();
  check(prediction.status());
  const Outcome& outcome = outcome_of(*prediction, is_ready);
  if (ended) {
    const nb::gil_scoped_release released;
    ended();
  }
  return outputs_of(outcome);
}

RequestObject submit_to(Inbox& inbox, nb::object receiver, const Submit& submit, nb::handle inputs, std::function<void()> ended) {
  Tensors tensors = tensors_of(inputs);
  KeptObject kept(std::move(receiver));
  Result<Prediction> prediction = Prediction();
  Status expected;
  {
    const nb::gil_scoped_release released;
    const KeptObject::ReleasedSoon soon;
    prediction = submit(std::move(tensors));
    expected = prediction.ok() ? inbox.expect(*prediction, std::move(kept), std::move(ended)) : prediction.status();
  }
  KeptObject::release_left();
  check(expected);
  return {*std::move(prediction)};
}

nb::object ClientObject::predict_into(const std::string& model, nb::handle inputs, const SubmitOptions& options, nb::handle out) {
  const NamedObjects outputs = named_objects_of(out, "outputs");
  const Client client = this->client();  // close() of another thread leaves this one
  const auto key = std::make_pair(model, options.version);
  auto known = models_.find(key);
  if (known == models_.end()) {
    Model described = blocking([&] { return client.model(model, options.version); });
    known = models_.insert_or_assign(key, std::move(described)).first;
  }
  Request request(known->second);
  for (auto& [name, tensor] : tensors_of(inputs)) check(request.set_input(name, std::move(tensor)));
  for (const auto& [name, array] : outputs) check(request.set_output(name, writable_tensor_of(array, name)));
  request.set_timeout(options.timeout);
  request.set_priority(options.priority);
  request.set_flow(options.flow);
  CompletionQueue queue(client);
  check(queue.submit(request, 0));
  for (Completion completion; true;) {
    std::size_t count = 0;
    {
      const nb::gil_scoped_release released;
      count = queue.next({&completion, 1}, std::chrono::steady_clock::now() + kLookForSignals);
    }
    if (count > 0) break;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // the queue cancels it
  }
  nb::dict answer = outputs_of(request.outcome());
  for (const auto& [name, array] : outputs) answer[nb::str(name.data(), name.size())] = array;
  return answer;
}

void define_client(nb::module_& module) {
  nb::class_<RequestObject>(module, "Request")
      .def(
          "cancel", [](const RequestObject& request) { request.prediction.cancel(); }, nb::call_guard<nb::gil_scoped_release>());

  module.def(
      "seconds", [](nb::handle timeout) { return std::chrono::duration<double>(duration_of(timeout, "timeout")).count(); },
      "timeout"_a);

  module.def(
      "array", [](nb::handle value, const std::string& name) { return array_of(tensor_of(value, name), name); }, "value"_a,
      "name"_a);

  nb::class_<Inbox>(module, "Inbox")
      .def(nb::new_([] { return Inbox::create(); }))
      .def("fd", &Inbox::fd)
      .def("take", &Inbox::take)
      .def("wait", &Inbox::wait)
      .def("close", &Inbox::close);

  define_engine_session(module);

  nb::class_<ClientObject>(module, "Client")
      .def("close", &ClientObject::close)
      .def_prop_ro("closed", &ClientObject::is_closed)
      .def("check_usable", [](const ClientObject& self) { self.client(); })
      .def(
          "predict",
          [](ClientObject& self, const std::string& given, nb::handle inputs, nb::handle timeout, nb::handle version,
             nb::handle priority, nb::handle flow, nb::handle out) -> nb::object {
            const SubmitOptions options = options_of(timeout, version, priority, flow);
            const std::string& model = self.model_name(given);
            if (!out.is_none()) return self.predict_into(model, inputs, options, out);
            const Client client = self.client();
            return predict([&](Tensors tensors) { return client.submit(model, std::move(tensors), options); }, inputs);
          },
          "model"_a, "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a, "flow"_a, "out"_a.none())
      .def(
          "submit",
          [](const ClientObject& self, Inbox& inbox, nb::object receiver, const std::string& given, nb::handle inputs,
             nb::handle timeout, nb::handle version, nb::handle priority, nb::handle flow) {
            const SubmitOptions options = options_of(timeout, version, priority, flow);
            const std::string& model = self.model_name(given);
            const Client client = self.client();
            return submit_to(
                inbox, std::move(receiver), [&](Tensors tensors) { return client.submit(model, std::move(tensors), options); },
                inputs);
          },
          "inbox"_a, "receiver"_a.none(), "model"_a, "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a, "flow"_a)
      .def(
          "describe",
          [](const ClientObject& self, const std::string& given, nb::handle its_version) {
            const auto version = number_of<std::uint64_t>(its_version, "version");
            const std::string& model = self.model_name(given);
            const Client client = self.client();
            return dict_of(blocking([&] { return client.describe(model, version); }));
          },
          "model"_a, "version"_a)
      .def(
          "open_session",  // of an Engine; a Pool has its own
          [](const ClientObject& self, const std::string& given) {
            const Client client = self.client();
            ModelInfo info = blocking([&] { return client.describe(self.model_name(given)); });
            if (info.state.empty())
              raise(failed_precondition("model '{}' has no `state` in its model.toml: it cannot have sessions", info.name));
            return std::make_shared<EngineSession>(client, std::move(info));
          },
          "model"_a)
      .def(
          "loan",
          [](const ClientObject& self, nb::handle dtype, nb::handle shape) {
            return array_of(value_of(self.client().loan(dtype_of(dtype), shape_of(shape))), "a loan");
          },
          "dtype"_a, "shape"_a)
      .def(
          "loan_output",
          [](const ClientObject& self, nb::handle dtype, nb::handle shape) {
            return array_of(value_of(self.client().loan_output(dtype_of(dtype), shape_of(shape))), "a loan");
          },
          "dtype"_a, "shape"_a);
}

}  // namespace shoal::python
