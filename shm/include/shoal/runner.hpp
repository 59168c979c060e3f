// Runner: the interface for running a model, in the pool or in this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// In bytes. No model has a longer name.
inline constexpr std::size_t kLongestModelName = 100;

/// How pictures become a model's input: the keys of `[preprocess]` in model.toml, with the preset already applied.
struct Preprocess {
  std::int64_t resize = 0;  ///< length of the shorter side in pixels before the crop; 0 = resize to the crop's size
  std::int64_t crop_height = 0, crop_width = 0;  ///< center crop; 0 = the model's input size
  std::string order = "RGB";                     ///< channel order of the model: "RGB", "BGR" or "GRAY"
  std::vector<float> mean = {0, 0, 0};           ///< subtracted, per channel in that order, on the 0..255 scale
  std::vector<float> scale = {1, 1, 1};          ///< multiplied after the subtraction, per channel
  friend bool operator==(const Preprocess&, const Preprocess&) = default;
};

/// The description of a served or loaded model.
struct ModelInfo {
  std::string name;
  std::uint64_t version = 1;
  std::vector<TensorSpec> inputs;   ///< in the model's order
  std::vector<TensorSpec> outputs;  ///< in the model's order; -1: depends on the inputs, with a range: on their data
  std::vector<StatePair> state;     ///< ordinary inputs and outputs; a request that leaves such an input out has zeros there
  std::vector<std::string> labels;  ///< class names, element i = class i; empty if the model has none
  std::optional<Preprocess> preprocess;
  std::string precision = "f32";  ///< in which the model runs: "f32", "f32-fast" or "bf16"; never "auto"
};

struct SubmitOptions {
  /// From now, for the whole path. 0 = the model's default; negative: the request fails at once.
  std::chrono::nanoseconds timeout{0};
  /// A higher one goes first among the requests of this Pool; others keep their turns. One above 0 from a client that has neither
  /// the role gateway nor operator (`[roles]` of the daemon) is kPermissionDenied.
  std::int8_t priority = 0;
  std::uint64_t version = 0;  ///< of the model; 0 = the default version, which is the highest
  /// For a gateway: whom the request is for, a number that it chooses. Each flow has the turns and limits that a client has, and
  /// statistics of its own. 0 = this Pool itself. Another number from a client without the role of a gateway (`[roles]` of the
  /// daemon) is kPermissionDenied. An Engine ignores it.
  std::uint64_t flow = 0;
};

/// The result of a request. `ran` says whether the model may have run.
enum class Ran : std::uint8_t { kNo = 0, kMaybe = 1, kYes = 2 };
struct Outcome {
  Result<Tensors> outputs = Status(StatusCode::kInternal, "no outcome yet");
  Ran ran = Ran::kNo;
  std::uint16_t attempts = 0;       ///< number of runs that began
  std::uint16_t batch = 0;          ///< number of requests that ran together, including this one; 0 = not known
  std::uint64_t model_version = 0;  ///< the version that answered
  std::chrono::nanoseconds queue_time{0}, compute_time{0}, retry_after{0};
};

/// The implementation of a Prediction; each Runner has one.
///   Threads  thread-safe
class PendingOutcome {
 public:
  virtual ~PendingOutcome() = default;
  virtual bool ready() = 0;                                   ///< never blocks
  virtual bool wait_for(std::chrono::nanoseconds limit) = 0;  ///< true if it is ready
  virtual const Outcome& outcome() = 0;                       ///< waits
  virtual void cancel() = 0;                                  ///< best effort
};

/// A submitted request. It completes exactly once. Destroying all copies of its Prediction cancels it.
/// A Prediction without a request (default-constructed, or moved from) is ready; its outcome is kFailedPrecondition.
///   Lifetime  get() and outcome() return references that are valid while the Prediction or a copy of it is. A temporary
///             Prediction returns a copy: `const auto& x = pool.submit(...).get();` is safe
///   Threads   thread-compatible
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::shared_ptr<PendingOutcome> pending) : pending_(std::move(pending)) {}

  bool ready() const { return !pending_ || pending_->ready(); }
  bool wait_for(std::chrono::nanoseconds limit) const { return !pending_ || pending_->wait_for(limit); }
  /// Waits. Returns the outputs in the model's order, or why there are none.
  const Result<Tensors>& get() const& { return outcome().outputs; }
  Result<Tensors> get() && { return std::as_const(*this).outcome().outputs; }
  /// Waits. Returns everything that is known of the request.
  const Outcome& outcome() const& { return pending_ ? pending_->outcome() : outcome_of_none(); }
  Outcome outcome() && { return std::as_const(*this).outcome(); }
  void cancel() const {
    if (pending_) pending_->cancel();
  }

 private:
  static const Outcome& outcome_of_none() {
    static const Outcome none{.outputs = Status(StatusCode::kFailedPrecondition,
                                                "this Prediction has no request: it was default-constructed or moved from")};
    return none;
  }

  std::shared_ptr<PendingOutcome> pending_;
};

/// Runs models. Pool (shoal/pool.hpp) and Engine (shoal/engine.hpp) are Runners.
///   Threads  thread-safe
class Runner {
 public:
  virtual ~Runner() = default;
  /// Submits one request and returns at once. Every failure arrives in the Prediction. Throws std::bad_alloc only if there is no
  /// memory for the Prediction itself, or for its request; nothing is submitted then.
  ///   inputs   one per model input, in any order; shape and dtype as describe() says. Those of ModelInfo::state may be left out
  virtual Prediction submit(std::string_view model, Tensors inputs, SubmitOptions options = {}) = 0;
  /// `version` 0 is the default version. Errors: kNotFound (no such model or version), kUnavailable.
  virtual Result<ModelInfo> describe(std::string_view model, std::uint64_t version = 0) = 0;

  /// Submits one request and waits for its outputs.
  Result<Tensors> predict(std::string_view model, Tensors inputs, SubmitOptions options = {}) {
    return submit(model, std::move(inputs), options).get();
  }
};

}  // namespace shoal
