#include "client/predict/src/pooled_model.hpp"

#include <algorithm>

#include "client/predict/src/per_process.hpp"
#include "client/src/description.hpp"
#include "client/src/pool_core.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/shortened.hpp"
#include "shm/tensor/spec.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::predict {
namespace {

constexpr std::size_t kSignatureBytes = 400;  // of a model in a message

/// What a Pool is, with the whole of the daemon's descriptions.
struct Connection {
  explicit Connection(std::shared_ptr<client::PoolCore> connected) : core(std::move(connected)), pool(core) {}
  ~Connection() { core->close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<client::PoolCore> core;
  const Client pool;
};

/// The connection that all predictors of a process share. Lives as long as one of them uses it.
///   Threads  thread-safe
class SharedConnection {
 public:
  Result<std::shared_ptr<Connection>> get() SHOAL_EXCLUDES(mutex_) {
    if (auto known = keep(nullptr)) return known;
    SHOAL_ASSIGN_OR_RETURN(auto core, client::PoolCore::connect(PoolOptions()));
    return keep(std::make_shared<Connection>(std::move(core)));
  }

 private:
  /// The one that is known; without one, `fresh`: another thread may have been faster.
  std::shared_ptr<Connection> keep(std::shared_ptr<Connection> fresh) SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (auto known = last_.lock()) return known;
    last_ = fresh;
    return fresh;
  }

  Mutex mutex_;
  std::weak_ptr<Connection> last_ SHOAL_GUARDED_BY(mutex_);
};

/// May a tensor be described by both? A size of -1 is open.
bool agree(const TensorSpec& own, const TensorSpec& served) {
  if (own.dtype != served.dtype) return false;
  if (!served.shape.is_known()) return true;
  return std::ranges::equal(own.shape, served.shape, [](std::int64_t a, std::int64_t b) { return a < 0 || b < 0 || a == b; });
}

bool holds(const std::vector<TensorSpec>& served, const TensorSpec& own) {
  const auto found = std::ranges::find(served, own.name, &TensorSpec::name);
  return found != served.end() && agree(own, *found);
}

std::string signature(const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs) {
  std::string text;
  const auto add = [&text](const char* kind, const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs)
      text += format("{}{} '{}' {} {}", text.empty() ? "" : ", ", kind, spec.name, dtype_name(spec.dtype), shape_text(spec));
  };
  add("input", inputs);
  add("output", outputs);
  return shortened(text, kSignatureBytes);
}

/// Are fingerprints of one scheme (what stands before the colon), and do not agree? An empty one agrees with all: the daemon
/// tells none, or the model is none of MXNet's.
bool are_of_different_graphs(std::string_view a, std::string_view b) {
  const auto scheme = [](std::string_view fingerprint) { return fingerprint.substr(0, fingerprint.find(':')); };
  return !a.empty() && scheme(a) == scheme(b) && a != b;
}

class PooledModel final : public SharedModel {
 public:
  PooledModel(std::shared_ptr<Connection> connection, worker::Import symbol, std::string name, bool has_all_outputs)
      : connection_(std::move(connection)),
        graph_(std::move(symbol.graph)),
        fingerprint_(std::move(symbol.fingerprint)),
        name_(std::move(name)),
        has_all_outputs_(has_all_outputs) {}

  Result<std::unique_ptr<BoundModel>> bind(const std::vector<TensorSpec>& inputs) override;

  Result<Tensor> make_input(DType dtype, const Shape& shape) override {
    auto loan = pool().loan(dtype, shape);
    return loan.status().code() == StatusCode::kOverloaded ? Tensor::create(dtype, shape) : std::move(loan);
  }

  const Client& pool() const { return connection_->pool; }
  client::PoolCore& core() const { return *connection_->core; }
  const std::string& name() const { return name_; }
  /// What the daemon serves now. Waits while it loads.
  Result<client::Description> served() const {
    SHOAL_RETURN_IF_ERROR(client::check_model_name(name_));
    SHOAL_ASSIGN_OR_RETURN(const std::string answer, core().ask(client::control_json("describe", name_)));
    return client::parse_description(answer);
  }
  bool has_symbol_of(const client::Description& served) const {
    return !are_of_different_graphs(fingerprint_, served.fingerprint);
  }

 private:
  /// What the symbol gives for these inputs.
  Result<std::vector<TensorSpec>> outputs_for(const std::vector<TensorSpec>& inputs) const {
    worker::Graph graph = graph_;
    SHOAL_RETURN_IF_ERROR(worker::infer(graph, inputs));
    std::vector<TensorSpec> outputs;
    for (const worker::GraphOutput& output : graph.outputs) {
      const worker::Value& value = graph.value(output.value);
      outputs.push_back(worker::open_spec(output.name, value.dtype, value.sizes()));
    }
    return outputs;
  }

  const std::shared_ptr<Connection> connection_;
  const worker::Graph graph_;      ///< without weights
  const std::string fingerprint_;  ///< of the symbol
  const std::string name_;
  const bool has_all_outputs_;  ///< those of the symbol; else only some are wanted
};

class BoundPooledModel final : public BoundModel {
 public:
  BoundPooledModel(std::shared_ptr<PooledModel> shared, std::vector<TensorSpec> outputs)
      : shared_(std::move(shared)), outputs_(std::move(outputs)) {}

  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

  Result<const Tensors*> run(const Tensors& inputs) override {
    SHOAL_RETURN_IF_ERROR(shared_->usable());
    answer_.clear();  // gives its memory back before the next one needs some
    SHOAL_ASSIGN_OR_RETURN(Tensors all, shared_->pool().predict(shared_->name(), inputs));
    for (const TensorSpec& wanted : outputs_) {
      const auto found = std::ranges::find(all, wanted.name, &NamedTensor::name);
      if (found == all.end() || !agree(wanted, {wanted.name, found->tensor.dtype(), found->tensor.shape()})) {
        return failed_precondition("model '{}' has changed: output '{}' is not {} {} any more. Make the predictor again",
                                   shared_->name(), wanted.name, dtype_name(wanted.dtype), shape_text(wanted));
      }
      answer_.push_back(*found);
    }
    SHOAL_RETURN_IF_ERROR(check_symbol());
    return &answer_;
  }

 private:
  /// The daemon tells the pool when the model was loaded anew. The symbol may be another one then.
  Status check_symbol() {
    auto served = shared_->core().known_description(shared_->name(), 0, place_.get());
    if (!served) {  // the connection has just been lost
      SHOAL_ASSIGN_OR_RETURN(client::Description asked, shared_->served());
      served = std::make_shared<const client::Description>(std::move(asked));
    }
    if (served == checked_) return {};
    if (!shared_->has_symbol_of(*served))
      return failed_precondition(
          "model '{}' has changed: its symbol is another one now. Make the predictor again, with that symbol", shared_->name());
    checked_ = std::move(served);
    return {};
  }

  const std::shared_ptr<PooledModel> shared_;
  const std::vector<TensorSpec> outputs_;
  const std::shared_ptr<void> place_ = shared_->core().know();
  std::shared_ptr<const client::Description> checked_;  ///< the symbol agrees with it; null before the first run
  Tensors answer_;
};

Result<std::unique_ptr<BoundModel>> PooledModel::bind(const std::vector<TensorSpec>& inputs) {
  SHOAL_RETURN_IF_ERROR(usable());
  SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> outputs, outputs_for(inputs));
  SHOAL_ASSIGN_OR_RETURN(const client::Description description, served());
  const ModelInfo& served = description.info;
  const bool same_inputs = inputs.size() == served.inputs.size() &&
                           std::ranges::all_of(inputs, [&](const TensorSpec& own) { return holds(served.inputs, own); });
  const bool same_outputs = (!has_all_outputs_ || outputs.size() == served.outputs.size()) &&
                            std::ranges::all_of(outputs, [&](const TensorSpec& own) { return holds(served.outputs, own); });
  if (!same_inputs || !same_outputs) {
    return invalid_argument(
        "the symbol is not the model that SHOAL_PREDICT_MODEL names: the symbol has {}; the served model '{}' has {}",
        signature(inputs, outputs), name_, signature(served.inputs, served.outputs));
  }
  if (!has_symbol_of(description)) {
    return invalid_argument(
        "the symbol is not the model that SHOAL_PREDICT_MODEL names: inputs and outputs are those of the served model '{}', but "
        "operators, their attributes or names differ. Pass the symbol file that the daemon serves, or let it serve the one that "
        "is passed",
        name_);
  }
  auto self = std::static_pointer_cast<PooledModel>(shared_from_this());
  return std::unique_ptr<BoundModel>(std::make_unique<BoundPooledModel>(std::move(self), std::move(outputs)));
}

/// Leaves types and shapes of the constants, which is all that infer() reads.
void drop_weights(worker::Graph& whole) {
  worker::for_each_graph(whole, [](worker::Graph& graph) {
    for (worker::Value& value : graph.values) {
      if (!value.constant) continue;
      value.constant->bytes = {};
      value.constant->owner = nullptr;
    }
  });
}

}  // namespace

Result<std::shared_ptr<SharedModel>> use_pooled_model(GivenModel given, std::string name, bool has_all_outputs) {
  worker::Graph& graph = given.import.graph;
  SHOAL_RETURN_IF_ERROR(worker::infer(graph, given.inputs));  // converts constants, so later calls need not
  drop_weights(graph);
  SHOAL_ASSIGN_OR_RETURN(auto connected, per_process<SharedConnection>().get());
  return std::shared_ptr<SharedModel>(
      std::make_shared<PooledModel>(std::move(connected), std::move(given.import), std::move(name), has_all_outputs));
}

}  // namespace shoal::predict
