// The Python classes Pool and Session.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "client/python/src/arrays.hpp"
#include "client/python/src/client.hpp"
#include "client/python/src/pool.hpp"
#include "shoal/pool.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

nb::dict dict_of(const ArenaUsage& usage) {
  nb::dict dict;
  dict["reserved_bytes"] = usage.reserved_bytes;
  dict["allocated_bytes"] = usage.allocated_bytes;
  dict["used_bytes"] = usage.used_bytes;
  dict["copied"] = usage.copied;
  dict["copied_bytes"] = usage.copied_bytes;
  return dict;
}

nb::tuple tuple_of(const ModelChange& change) {
  return nb::make_tuple(change.outcome, change.version, change.versions, change.workers,
                        std::chrono::duration<double>(change.took).count());
}

class SessionObject {
 public:
  explicit SessionObject(Session session) : session_(std::make_shared<Session>(std::move(session))) {}

  /// Several threads may use it, one of which may close it.
  std::shared_ptr<Session> session() const {
    if (fork_guard_.in_child())
      raise(
          failed_precondition("this process was forked after the session was opened: open one in the child, of a Pool that is "
                              "made there"));
    if (!session_) raise(failed_precondition("this session is closed"));
    return session_;
  }
  void close() {
    std::shared_ptr<Session> ended = std::move(session_);
    const nb::gil_scoped_release released;
    ended.reset();
  }

 private:
  std::shared_ptr<Session> session_;
  const ForkGuard fork_guard_;
};

class PoolObject final : public ClientObject {
 public:
  explicit PoolObject(PoolOptions options)
      : pool_(std::make_shared<Pool>(blocking([&] { return Pool::connect(std::move(options)); }))) {
    open(pool_->client());
  }
  ~PoolObject() override { PoolObject::close(); }

  void close() override {
    ClientObject::close();
    std::shared_ptr<Pool> ended = std::move(pool_);
    const nb::gil_scoped_release released;
    ended.reset();  // which completes what is under way
  }
  std::shared_ptr<Pool> pool() const {
    client();  // raises
    return pool_;
  }

 private:
  std::shared_ptr<Pool> pool_;  ///< a call that waits in another thread holds it, too
};

std::chrono::nanoseconds waits(nb::handle seconds, const char* name, std::chrono::nanoseconds usual) {
  return seconds.is_none() ? usual : duration_of(seconds, name);
}

template <typename Count>
Count count_of(nb::handle value, const char* name, Count usual) {
  return value.is_none() ? usual : number_of<Count>(value, name);
}

void define_session(nb::module_& module) {
  nb::class_<SessionObject>(module, "Session")
      .def("close", &SessionObject::close)
      .def("reset", [](const SessionObject& self) { check(self.session()->reset()); })
      .def(
          "predict",
          [](const SessionObject& self, nb::handle inputs, nb::handle timeout, nb::handle version, nb::handle priority) {
            const SubmitOptions options = options_of(timeout, version, priority);
            const auto session = self.session();
            return predict([&](Tensors tensors) { return session->submit(std::move(tensors), options); }, inputs);
          },
          "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a)
      .def(
          "submit",
          [](const SessionObject& self, Inbox& inbox, nb::object receiver, nb::handle inputs, nb::handle timeout,
             nb::handle version, nb::handle priority) {
            const SubmitOptions options = options_of(timeout, version, priority);
            const auto session = self.session();
            return submit_to(
                inbox, std::move(receiver), [&](Tensors tensors) { return session->submit(std::move(tensors), options); },
                inputs);
          },
          "inbox"_a, "receiver"_a.none(), "inputs"_a, "timeout"_a.none(), "version"_a, "priority"_a);
}

}  // namespace

void define_pool(nb::module_& module) {
  define_session(module);
  nb::class_<PoolObject, ClientObject>(module, "Pool")
      .def(
          "__init__",
          [](PoolObject* self, std::string directory, nb::handle arena_limit_bytes, nb::handle connect_timeout,
             nb::handle reconnect_timeout, nb::handle control_timeout, nb::handle in_flight_limit, nb::handle session_limit,
             nb::handle session_idle) {
            PoolOptions options;
            options.directory = std::move(directory);
            options.arena_limit_bytes = count_of(arena_limit_bytes, "arena_limit_bytes", options.arena_limit_bytes);
            options.connect_timeout = waits(connect_timeout, "connect_timeout", options.connect_timeout);
            options.reconnect_timeout = waits(reconnect_timeout, "reconnect_timeout", options.reconnect_timeout);
            options.control_timeout = waits(control_timeout, "control_timeout", options.control_timeout);
            options.in_flight_limit = count_of(in_flight_limit, "in_flight_limit", options.in_flight_limit);
            options.session_limit = count_of(session_limit, "session_limit", options.session_limit);
            options.session_idle = waits(session_idle, "session_idle", options.session_idle);
            new (self) PoolObject(std::move(options));
          },
          "directory"_a, "arena_limit_bytes"_a.none(), "connect_timeout"_a.none(), "reconnect_timeout"_a.none(),
          "control_timeout"_a.none(), "in_flight_limit"_a.none(), "session_limit"_a.none(), "session_idle"_a.none())
      .def("list", [](const PoolObject& self) { return blocking([pool = self.pool()] { return pool->list(); }); })
      .def("stats", [](const PoolObject& self) { return blocking([pool = self.pool()] { return pool->stats(); }); })
      .def(
          "crashes",
          [](const PoolObject& self, const std::string& model) {
            return blocking([&, pool = self.pool()] { return pool->crashes(model); });
          },
          "model"_a)
      .def(
          "load",
          [](const PoolObject& self, const std::string& name, const std::string& path) {
            return tuple_of(blocking([&, pool = self.pool()] { return pool->load(name, path); }));
          },
          "name"_a, "path"_a)
      .def(
          "reload",
          [](const PoolObject& self, const std::string& name, const std::string& path, bool force) {
            return tuple_of(blocking([&, pool = self.pool()] { return pool->reload(name, path, force); }));
          },
          "name"_a, "path"_a, "force"_a)
      .def(
          "unload",
          [](const PoolObject& self, const std::string& name) {
            return tuple_of(blocking([&, pool = self.pool()] { return pool->unload(name); }));
          },
          "name"_a)
      .def(
          "scale",
          [](const PoolObject& self, const std::string& name, nb::handle count) {
            const int workers = number_of<int>(count, "workers");
            return tuple_of(blocking([&, pool = self.pool()] { return pool->scale(name, workers); }));
          },
          "name"_a, "workers"_a)
      .def(
          "drain",
          [](const PoolObject& self, const std::string& name) {
            return tuple_of(blocking([&, pool = self.pool()] { return pool->drain(name); }));
          },
          "name"_a)
      .def("stop",
           [](const PoolObject& self) {
             const auto pool = self.pool();
             const Status stopped = [&] {
               const nb::gil_scoped_release released;
               return pool->stop();
             }();
             check(stopped);
           })
      .def("usage",
           [](const PoolObject& self) {
             const PoolUsage usage = self.pool()->usage();
             nb::dict dict;
             dict["inputs"] = dict_of(usage.inputs);
             dict["outputs"] = dict_of(usage.outputs);
             return dict;
           })
      .def(
          "open_session",
          [](const PoolObject& self, const std::string& model) {
            return std::make_unique<SessionObject>(blocking([&, pool = self.pool()] { return pool->open_session(model); }));
          },
          "model"_a);
}

}  // namespace shoal::python
