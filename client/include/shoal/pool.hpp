// Pool: the local daemon's models, run by its workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/runner.hpp"

namespace shoal {

namespace client {
class PoolCore;
}

struct PoolOptions {
  std::string directory;  ///< the daemon's; empty = $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal
  std::uint64_t input_arena_bytes = std::uint64_t{8}
                                    << 20;  ///< shared memory for inputs under way and loans; 0 with the other: submits nothing
  std::uint64_t output_arena_bytes = std::uint64_t{4} << 20;  ///< shared memory for outputs under way and held by the caller
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(2);
  std::chrono::nanoseconds reconnect_timeout = std::chrono::seconds(2);  ///< how long requests outlive a daemon that went away
};

/// What the flight recorders of workers hold (shm/wire/PROTOCOL.md, "trace"): a description as JSON, then events of 32 bytes.
struct FlightRecords {
  std::string description;
  std::vector<std::byte> events;
};

/// What became of a change of what is served.
struct ModelChange {
  std::string outcome;                  ///< "loaded", "reloaded", "unchanged", "unloaded", "scaled", "drained"
  std::uint64_t version = 0;            ///< that answers by default now; 0 = none
  std::vector<std::uint64_t> versions;  ///< all that answer, the lowest first
  int workers = 0;                      ///< of each
  std::chrono::milliseconds took{0};
};

/// A connection to `shoald`. Starts no thread: whoever waits for a Prediction, or asks whether it is ready, moves all of them on.
/// Tensors too large for what is free in the arenas travel inside messages: slower, never an error.
/// A forked child must make its own Pool: everything here answers kFailedPrecondition in it.
///   Threads  thread-safe; any number of threads may submit and wait at the same time
class Pool final : public Runner {
 public:
  using Options = PoolOptions;

  /// Errors: kUnavailable (no daemon at that place, or no answer in time: names the socket), kPermissionDenied, kInvalidArgument.
  static Result<Pool> connect(Options options = {});

  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  /// Requests still under way end as kCancelled. Tensors that the caller holds stay valid.
  ~Pool() override;

  /// Submits one request and returns at once; failures, those of checking the inputs included, arrive in the Prediction.
  /// A model that this pool knows by describe() or an earlier request gets it at once; the first request of another one leaves
  /// when somebody waits, asks ready() or calls poll().
  ///   inputs   one per model input, any order; copied before return unless loaned. Labels of the model are accepted and ignored.
  ///   Errors   kNotFound (model or version), kInvalidArgument (input name, dtype, shape, number), kOverloaded (queue full:
  ///   retry_after says when),
  ///            kDeadlineExceeded, kPoison, kAborted, kCancelled, kUnavailable (the daemon went away), kInternal
  Prediction submit(std::string_view model, Tensors inputs, SubmitOptions options = {}) override;
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version = 0) override;

  /// A tensor in the input arena, bytes undefined: fill it, submit it, and no copy is made. It may be submitted again, but must
  /// not be changed while a request with it is under way. Its place is free again when no handle and no request holds it.
  ///   Errors  kOverloaded (the arena has no such room now), kInvalidArgument (shape)
  Result<Tensor> loan(DType dtype, const Shape& shape);

  /// Names of the models that the daemon serves.
  Result<std::vector<std::string>> list();
  /// What the daemon says of itself and its models, as JSON (supervisor/README.md).
  Result<std::string> stats();
  /// The last deaths of workers, of one model or of all (""), as JSON (supervisor/README.md).
  Result<std::string> crashes(std::string_view model = {});
  /// What workers did last, of one model or all (""), of one process or all (0); dead ones included.
  Result<FlightRecords> trace(std::string_view model = {}, std::uint64_t pid = 0);
  /// The five below change what the daemon serves. Each returns when it is done; nobody's request fails of it. Asked again after
  /// a daemon that went away came back. The daemon's own user and root may.
  ///   Errors  kNotFound (no such model), kFailedPrecondition (what was served goes on, the message says why; or the model is
  ///           being changed already), kInvalidArgument (of the text), kCancelled (unloaded meanwhile, or a drain that another
  ///           change has ended), kUnavailable (no daemon)
  /// Serves one more model, as `shoald --model NAME=PATH[,KEY=VALUE...]` does; forgotten with the daemon.
  ///   path   "PATH[,workers=4,...]"; relative to this process's working directory
  Result<ModelChange> load(std::string_view name, std::string_view path);
  /// Looks at the model's files again and serves what they hold now: the new version is loaded beside the old one, answers a
  /// probe, takes over, and the old one goes when it has answered what it had admitted; returns then, or 30 s after the new one
  /// took over. Files that are as they were are left alone. Also ends a drain().
  ///   path   empty = the one it has; else as for load(), and from now on
  ///   force  load it anew even when nothing has changed
  Result<ModelChange> reload(std::string_view name, std::string_view path = {}, bool force = false);
  /// Takes the model away when it has answered what it had admitted, after 30 s at most.
  Result<ModelChange> unload(std::string_view name);
  /// Changes the number of its workers, until it is loaded with another one.
  Result<ModelChange> scale(std::string_view name, int workers);
  /// Takes no new requests for it, and answers what it had admitted. It stays loaded: reload() opens it again.
  Result<ModelChange> drain(std::string_view name);

  /// Asks the daemon to finish what runs and to end. OK once it has agreed.
  Status stop();
  /// Moves everything on without waiting; for callers that poll ready() of many predictions.
  void poll();

 private:
  explicit Pool(std::shared_ptr<client::PoolCore> core);
  std::shared_ptr<client::PoolCore> core_;
};

}  // namespace shoal
