// The extension module shoal._engine: a model in this process. It links oneDNN and OpenMP.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "client/python/src/client.hpp"
#include "shm/base/mutex.hpp"
#include "shoal/engine.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

/// Loads a model in a thread of its own. So this process has more than one thread, and algorithms are measured by a shoal-worker
/// and not by a fork of the interpreter. Meanwhile the calling thread runs the handlers of signals and the caller's function.
class Loading {
 public:
  Loading(std::string path, EngineOptions options, nb::object on_measuring)
      : on_measuring_(std::move(on_measuring)), thread_([this, path = std::move(path), options = std::move(options)] {
          finish(Engine::load(path, options, [this](auto spent, auto budget) { measured(spent, budget); }));
        }) {}

  Engine wait() {
    while (!wait_a_while()) {
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        tell();
      } catch (...) {
        {
          const MutexLock lock(mutex_);
          is_given_up_ = true;
        }
        const nb::gil_scoped_release released;
        thread_.join();
        throw;
      }
    }
    const MutexLock lock(mutex_);
    return value_of(*std::move(result_));
  }

 private:
  using Progress = std::pair<std::chrono::milliseconds, std::chrono::milliseconds>;

  // In the other thread. An exception ends the measurement, and then loading.
  void measured(std::chrono::milliseconds spent, std::chrono::milliseconds budget) SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (is_given_up_) throw std::runtime_error("given up");
    progress_ = {spent, budget};
    changed_.notify_one();
  }
  void finish(Result<Engine> result) SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    result_ = std::move(result);
    changed_.notify_one();
  }
  bool wait_a_while() SHOAL_EXCLUDES(mutex_) {
    const nb::gil_scoped_release released;
    const MutexLock lock(mutex_);
    if (!result_ && !progress_) changed_.wait_until(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
    return result_.has_value();
  }
  void tell() SHOAL_EXCLUDES(mutex_) {
    std::optional<Progress> progress;
    {
      const MutexLock lock(mutex_);
      progress = std::exchange(progress_, std::nullopt);
    }
    using Seconds = std::chrono::duration<double>;
    if (progress && !on_measuring_.is_none()) on_measuring_(Seconds(progress->first).count(), Seconds(progress->second).count());
  }

  const nb::object on_measuring_;
  Mutex mutex_;
  Condition changed_;
  std::optional<Result<Engine>> result_ SHOAL_GUARDED_BY(mutex_);
  std::optional<Progress> progress_ SHOAL_GUARDED_BY(mutex_);  ///< not told yet
  bool is_given_up_ SHOAL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

List<List<TensorSpec>> shapes_of(const nb::list& sets) {
  std::vector<List<TensorSpec>> shapes;
  for (const nb::handle set : sets) {
    std::vector<TensorSpec> specs;
    std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>>> given;
    if (!nb::try_cast(set, given))
      raise(invalid_argument("shapes has {}: give a shape, or (dtype, shape), by the name of each input", nb::repr(set).c_str()));
    for (const auto& [name, dtype, dims] : given)
      specs.push_back({name, value_of(parse_dtype(dtype)), value_of(Shape::make(dims))});
    shapes.emplace_back(specs);
  }
  return shapes;
}

class EngineObject final : public ClientObject {
 public:
  explicit EngineObject(Engine engine) : engine_(std::make_shared<Engine>(std::move(engine))) {
    open(engine_->client(), value_of(engine_->describe()).name);
  }
  ~EngineObject() override { EngineObject::close(); }

  void close() override {
    ClientObject::close();
    std::shared_ptr<Engine> ended = std::move(engine_);
    const nb::gil_scoped_release released;
    ended.reset();  // waits for requests that run
  }
  std::shared_ptr<Engine> engine() const {
    client();  // raises
    return engine_;
  }

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace

void define_engine(nb::module_& module) {
  nb::class_<EngineObject, ClientObject>(module, "Engine")
      .def(
          "__init__",
          [](EngineObject* self, std::string path, std::string device, std::string precision, nb::handle threads,
             nb::handle contexts, nb::handle queue_limit, nb::handle tuning_ms, const nb::list& shapes, nb::object on_measuring) {
            EngineOptions options{.device = std::move(device),
                                  .precision = std::move(precision),
                                  .threads = number_of<int>(threads, "threads"),
                                  .contexts = number_of<int>(contexts, "contexts", 1),
                                  .queue_limit = number_of<int>(queue_limit, "queue_limit", 1),
                                  .tuning_ms = number_of<int>(tuning_ms, "tuning_ms", -1),
                                  .shapes = shapes_of(shapes)};
            new (self) EngineObject(Loading(std::move(path), std::move(options), std::move(on_measuring)).wait());
          },
          "path"_a, "device"_a, "precision"_a, "threads"_a, "contexts"_a, "queue_limit"_a, "tuning_ms"_a, "shapes"_a,
          "on_measuring"_a.none())
      .def_prop_ro("warnings", [](const EngineObject& self) { return self.engine()->warnings(); })
      .def_prop_ro("packed_bytes", [](const EngineObject& self) { return self.engine()->packed_bytes(); })
      .def_prop_ro("arena_bytes", [](const EngineObject& self) { return self.engine()->arena_bytes(); });
}

}  // namespace shoal::python

NB_MODULE(_engine, module) {
  nanobind::set_leak_warnings(false);
  nanobind::module_::import_("shoal._shoal");  // which has Client
  shoal::python::define_engine(module);
}
