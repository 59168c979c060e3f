// Runner: the one small interface behind which a model runs, in the pool or in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// How pictures become a model's input; all keys of `[preprocess]` in model.toml, the preset already applied.
struct Preprocess {
  std::int64_t resize = 0;                       ///< shorter side in pixels before the crop; 0 = straight to the crop's size
  std::int64_t crop_height = 0, crop_width = 0;  ///< centre crop; 0 = the model's input size
  std::string order = "RGB";                     ///< channel order the model wants: "RGB", "BGR" or "GRAY"
  std::vector<float> mean = {0, 0, 0};           ///< subtracted, per channel in that order, on the 0..255 scale
  std::vector<float> scale = {1, 1, 1};          ///< multiplied after that, per channel
  friend bool operator==(const Preprocess&, const Preprocess&) = default;
};

/// What is known of a served or loaded model.
struct ModelInfo {
  std::string name;
  std::uint64_t version = 1;
  std::vector<TensorSpec> inputs;   ///< in the model's order
  std::vector<TensorSpec> outputs;  ///< in the model's order; dimensions that depend on the inputs are -1
  std::vector<std::string> labels;  ///< class names, line i = class i; empty when the model has none
  std::optional<Preprocess> preprocess;
};

struct SubmitOptions {
  std::chrono::nanoseconds timeout{0};  ///< from now, whole path; 0 = the model's default, negative = over already
  std::int8_t priority = 0;             ///< higher goes first
  std::uint64_t version = 0;            ///< of the model; 0 = the one that is served by default, the highest
};

/// What became of a request; `ran` says whether the model may have been run.
enum class Ran : std::uint8_t { kNo = 0, kMaybe = 1, kYes = 2 };
struct Outcome {
  Result<Tensors> outputs = Status(StatusCode::kInternal, "no outcome yet");
  Ran ran = Ran::kNo;
  std::uint16_t attempts = 0;       ///< runs begun, the last included
  std::uint16_t batch = 0;          ///< requests that ran together, this one included; 0 = not known
  std::uint64_t model_version = 0;  ///< the one that answered
  std::chrono::nanoseconds queue_time{0}, compute_time{0}, retry_after{0};
};

/// The running half of a Prediction; implemented by each Runner.
///   Threads  thread-safe
class PendingOutcome {
 public:
  virtual ~PendingOutcome() = default;
  virtual bool ready() = 0;                                   ///< never blocks
  virtual bool wait_for(std::chrono::nanoseconds limit) = 0;  ///< true when ready
  virtual const Outcome& outcome() = 0;                       ///< waits
  virtual void cancel() = 0;                                  ///< best effort
};

/// A request under way. Completes exactly once. Destroying it gives the request up.
///   Threads  thread-compatible
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::shared_ptr<PendingOutcome> pending) : pending_(std::move(pending)) {}

  bool ready() const { return pending_->ready(); }
  bool wait_for(std::chrono::nanoseconds limit) const { return pending_->wait_for(limit); }
  /// Waits, then the outputs in the model's order, or why there are none.
  const Result<Tensors>& get() const { return pending_->outcome().outputs; }
  /// Waits, then everything that is known of it.
  const Outcome& outcome() const { return pending_->outcome(); }
  void cancel() const { pending_->cancel(); }

 private:
  std::shared_ptr<PendingOutcome> pending_;
};

/// Runs models. Pool (client/include/shoal/pool.hpp) and Engine (worker/engine) are Runners.
///   Threads  thread-safe
class Runner {
 public:
  virtual ~Runner() = default;
  /// Submits one request and returns at once; every failure arrives in the Prediction.
  ///   inputs   one per model input, any order; shape and dtype as describe() says
  virtual Prediction submit(std::string_view model, Tensors inputs, SubmitOptions options = {}) = 0;
  /// Errors: kNotFound (model, or that version of it: 0 = the default one), kUnavailable.
  virtual Result<ModelInfo> describe(std::string_view model, std::uint64_t version = 0) = 0;

  /// submit() and wait.
  Result<Tensors> predict(std::string_view model, Tensors inputs, SubmitOptions options = {}) {
    return submit(model, std::move(inputs), options).get();
  }
};

}  // namespace shoal
