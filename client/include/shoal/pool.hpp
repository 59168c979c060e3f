// Pool: a connection to the local daemon, whose workers run its models.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/client.hpp"
#include "shoal/session.hpp"

namespace shoal {

namespace client {
class PoolCore;
}  // namespace client

struct PoolOptions {
  StructSize<PoolOptions> struct_size{};
  Text directory;  ///< of the daemon; empty = $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal
  /// The most shared memory that inputs and loans may take, and likewise outputs, those that the caller holds included. It is
  /// allocated as it is used and given back later, so there is no need to set this. 0 = the pool cannot submit requests.
  std::uint64_t arena_limit_bytes = std::uint64_t{4} << 30;
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(2);
  /// How long requests wait for a new daemon, or for one that is full to have room, and how long it may take to answer (2 s at
  /// least).
  std::chrono::nanoseconds reconnect_timeout = std::chrono::seconds(2);
  /// How long the daemon may be silent while a call waits for it (a daemon that hangs, or that SIGSTOP stopped). Every call of
  /// Pool then ends with kUnavailable. A call may wait longer while the daemon gives signs of life: load() and describe() wait
  /// for a model that loads. Greater than 0. Requests have `SubmitOptions::timeout` instead: see Pool::submit().
  std::chrono::nanoseconds control_timeout = std::chrono::seconds(5);
  /// Requests that may be unanswered at the same time, at most 32768; one more is answered kOverloaded at once.
  std::size_t in_flight_limit = 32'768;
  std::size_t session_limit = 1024;  ///< sessions that may be open at the same time
  /// A session that was not used for so long is closed, and its memory is freed, while the pool is used. 0 = never. If the pool
  /// was not used for a while, because this process was stopped for example, that counts as a quarter of it at most.
  std::chrono::nanoseconds session_idle = std::chrono::minutes(10);
};

/// The contents of the workers' flight recorders (shm/wire/PROTOCOL.md, "trace"): a description as JSON, and events of 32 bytes.
struct FlightRecords {
  std::string description;
  std::vector<std::byte> events;
};

/// The result of a change of what the daemon serves. A later release may add members.
struct ModelChange {
  std::string outcome;                  ///< "loaded", "reloaded", "unchanged", "unloaded", "scaled", "drained"
  std::uint64_t version = 0;            ///< the default version now; 0 = none
  std::vector<std::uint64_t> versions;  ///< all served versions, the lowest first
  int workers = 0;                      ///< per version
  std::chrono::milliseconds took{0};
};

/// Tensors of one kind: inputs with loans, or outputs.
struct ArenaUsage {
  std::uint64_t reserved_bytes = 0;   ///< the most that may be allocated; costs only addresses
  std::uint64_t allocated_bytes = 0;  ///< memory that is taken now
  std::uint64_t used_bytes = 0;       ///< of that, by tensors that the caller, a request or a session holds
  std::uint64_t copied = 0;           ///< tensors that travelled inside messages instead, since the pool was made
  std::uint64_t copied_bytes = 0;     ///< their bytes
};
/// A pool's shared memory. Inputs are copied if there is no room for them: `reserved_bytes` are used up, memory is short, or
/// loans leave only small gaps. Outputs are copied likewise, and if they are larger than the model's description and the last
/// answer for the same input shapes suggested.
struct PoolUsage {
  ArenaUsage inputs, outputs;
};

/// A connection to `shoald`. Sending and receiving happen in the threads that wait for a Prediction or call ready() or poll();
/// only ZeroMQ has two threads of its own per Pool, which move bytes between memory and sockets. Tensors for which
/// there is no room in shared memory travel inside messages, which is slower: usage() counts them. A forked child must make its
/// own Pool: everything here answers kFailedPrecondition in it. So does a Pool that was moved from. A model's name of more than
/// kLongestModelName bytes is kInvalidArgument, and nothing is sent.
///   Threads  thread-safe; any number of threads may submit and wait at the same time
class Pool {
 public:
  using Options = PoolOptions;

  /// Errors: kUnavailable (no daemon, no answer in time, or no more threads may be started; names the socket), kPermissionDenied,
  /// kInvalidArgument, kOverloaded (the daemon has no room for another client, or none for its arenas), kFailedPrecondition (this
  /// process lacks memory).
  static Result<Pool> connect(const Options& options = {});

  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  /// Unanswered requests end as kCancelled. Tensors that the caller holds stay valid.
  ~Pool();

  /// Submits one request and returns at once. All failures arrive in the Prediction, also those of checking the inputs. If this
  /// pool knows the model, the request is sent at once: the daemon tells which models it serves when the pool connects, and when
  /// one is loaded or changes. Otherwise the pool must ask for its description, and the request is sent when a thread waits, or
  /// calls ready() or poll_once().
  ///   inputs   one per model input, in any order; copied before return unless loaned. Labels are accepted and ignored. A state
  ///            that is left out (ModelInfo::state) is zeros.
  ///   Errors   kNotFound (model or version), kInvalidArgument (name, dtype, shape or number of inputs), kOverloaded (queue full;
  ///            retry_after says when to try again), kDeadlineExceeded, kPoison, kAborted, kCancelled, kUnavailable (the daemon
  ///            went away), kPermissionDenied (a priority above 0, or a flow, without the role for it), kFailedPrecondition (a
  ///            pool without arenas, or no memory), kInternal
  ///   Waiting  get() and outcome() return when the timeout is over, even if the daemon is stopped. Without a timeout the
  ///            model's default counts (`timeout_ms`), and the daemon enforces it. If the daemon is stopped or hangs, get() and
  ///            outcome() return once that default is over and the daemon has been silent for control_timeout. Only a request
  ///            without timeout, of a model without a default, waits until the daemon goes on or ends. ready() and wait_for()
  ///            of a request without a timeout stay false while the daemon is stopped.
  ///            A request without timeout for a model that this pool does not know waits for the description first, as
  ///            describe() does: while the model loads, for as long as the load takes. The default counts from then on.
  Prediction submit(std::string_view model, Tensors inputs, const SubmitOptions& options = {});
  /// Submits one request and waits for its outputs.
  Result<Tensors> predict(std::string_view model, Tensors inputs, const SubmitOptions& options = {}) {
    return submit(model, std::move(inputs), options).get();
  }
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version = 0) { return client().describe(model, version); }

  /// This pool for code that takes any Client: handles of models, completion queues, coroutines.
  Client client() const;
  operator Client() const { return client(); }  // NOLINT(google-explicit-constructor): a Pool is one

  /// Returns a tensor in the input arena with undefined bytes. Requests use it without a copy. It may be submitted again, but
  /// must not be changed while a request with it is unanswered. Its room becomes free when no Tensor and no request holds it.
  ///   Errors  kOverloaded (not enough room now), kInvalidArgument (dtype, shape)
  Result<Tensor> loan(DType dtype, const Shape& shape);

  /// Opens a session, without asking the daemon. Its model is the name of one that has `state` in its model.toml.
  ///   Errors  kOverloaded (PoolOptions::session_limit sessions are open), kInvalidArgument (the name is too long),
  ///           kFailedPrecondition (a pool without arenas)
  Result<Session> open_session(std::string_view model);

  /// The names of the models that the daemon serves.
  Result<std::vector<std::string>> list();
  /// The state of the daemon and its models, as JSON (supervisor/admin/README.md).
  Result<std::string> stats();
  /// The last deaths of workers of one model, or of all models (""), as JSON (supervisor/admin/README.md).
  ///   Errors  kPermissionDenied (the caller is no operator: neither root nor the daemon's user, nor named in `[roles]` of its
  ///           configuration), kUnavailable (no daemon, or it does not answer), kOverloaded (try again later)
  Result<std::string> crashes(std::string_view model = {});
  /// The last events of workers, also of dead ones: of one model or all (""), of one process or all (0).
  ///   Errors  those of crashes()
  Result<FlightRecords> trace(std::string_view model = {}, std::uint64_t pid = 0);
  /// The next five functions change what the daemon serves. Each returns when the change is complete. No request fails because of
  /// a change. If the daemon ends meanwhile, the change is sent to the next one. A newer call replaces an older one of the same
  /// model that it contradicts.
  ///   Errors  kNotFound (no such model), kFailedPrecondition (the change failed, and the daemon serves what it served before),
  ///           kInvalidArgument (wrong text), kCancelled (a newer call for the model, or its configuration, asked for something
  ///           else), kOverloaded (try again later), kUnavailable (no daemon, or it does not answer), kPermissionDenied (the
  ///           caller is no operator)
  /// Serves another model, like `shoald --model NAME=PATH[,KEY=VALUE...]`, until the daemon ends.
  ///   path   "PATH[,workers=4,...]"; relative to this process's working directory
  Result<ModelChange> load(std::string_view name, std::string_view path) { return change("load", name, path); }
  /// Reads the model's files again and serves their new content. The new version is loaded while the old one serves. It answers a
  /// probe and then takes the new requests; the old version ends after its last admitted request. Returns then, or 30 s after the
  /// new version took over. Unchanged files are not loaded again. Also ends a drain().
  ///   path   empty = the present path; otherwise as for load(), and used from now on
  ///   force  load even if nothing has changed
  Result<ModelChange> reload(std::string_view name, std::string_view path = {}, bool force = false) {
    return change("reload", name, path, force);
  }
  /// Stops serving the model, after its admitted requests or after 30 s. Returns when its processes are gone: a worker that waits
  /// in the kernel for a device or a dead network path delays that.
  Result<ModelChange> unload(std::string_view name) { return change("unload", name); }
  /// Changes the number of workers, until the model is loaded with another number.
  Result<ModelChange> scale(std::string_view name, int workers) { return change("scale", name, {}, false, workers); }
  /// Refuses new requests for the model, and returns when the admitted ones are answered. It stays loaded; reload() ends this.
  ///   Errors  kFailedPrecondition: no worker can answer them for 30 s. The model stays closed
  Result<ModelChange> drain(std::string_view name) { return change("drain", name); }

  /// Asks the daemon to answer its admitted requests and to end. Returns OK when it has agreed. kPermissionDenied if the caller
  /// is no operator.
  Status stop();
  /// Reads counters; asks nobody. All 0 in a forked child.
  PoolUsage usage() const;
  /// As Client::poll_once().
  void poll_once();

 private:
  explicit Pool(std::shared_ptr<client::PoolCore> core);
  Result<std::string> ask(const std::string& question, std::vector<std::byte>* attachment = nullptr, bool ends_daemon = false);
  Result<ModelChange> change(std::string_view what, std::string_view name, std::string_view path = {}, bool force = false,
                             int workers = 0) {
    const auto changed = make_change(what, name, path, force, workers);
    return changed.ok() ? Result<ModelChange>(**changed) : changed.status();
  }
  Result<std::shared_ptr<const ModelChange>> make_change(std::string_view what, std::string_view name, std::string_view path,
                                                         bool force, int workers);
  std::shared_ptr<client::PoolCore> core_;
};

}  // namespace shoal
