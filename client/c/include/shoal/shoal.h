// Shoal in C: the models of the local daemon. Link with -lshoal (pkg-config: shoal). C11 and C++.
//
//   shoal_pool* pool = NULL;
//   shoal_outputs* outputs = NULL;
//   shoal_status* status = shoal_pool_connect(NULL, &pool);
//   if (status == NULL) status = shoal_client_predict(shoal_pool_client(pool), "resnet", &input, 1, NULL, &outputs);
//   if (status != NULL) fprintf(stderr, "%s\n", shoal_status_message(status));
//   shoal_status_free(status);
//   shoal_outputs_free(outputs);
//   shoal_pool_close(pool);
//
// shoal/c/status.h has the rules of errors, handles, structs and threads; shoal/c/client.h requests in one call, and models;
// shoal/c/request.h requests that are used again, and completion queues. Models in this process: shoal/shoal_engine.h.
#ifndef SHOAL_SHOAL_H_
#define SHOAL_SHOAL_H_

#include "shoal/c/client.h"
#include "shoal/c/request.h"
#include "shoal/c/status.h"
#include "shoal/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Pool ----

/// A connection to the local daemon.
///   Threads  thread-safe; any number of threads may submit and wait at the same time
typedef struct shoal_pool shoal_pool;

typedef struct shoal_pool_options {
  size_t struct_size;
  const char* directory;  ///< of the daemon; NULL = $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal
  /// The most shared memory for inputs, and likewise for outputs; it is taken as it is used. 0 = 4 GiB.
  uint64_t arena_limit_bytes;
  int64_t no_arenas;           ///< not 0: the pool takes no shared memory and cannot submit requests
  int64_t connect_timeout_ns;  ///< 0 = 2 s
  /// How long requests wait for a new daemon, or for one that is full to have room; 0 = 2 s.
  int64_t reconnect_timeout_ns;
  /// How long the daemon may be silent while a call waits for it; 0 = 5 s. Every call then ends with SHOAL_UNAVAILABLE.
  int64_t control_timeout_ns;
  /// Requests that may be unanswered; one more is SHOAL_OVERLOADED at once. 0 = 32768, which is the most.
  uint64_t in_flight_limit;
  uint64_t session_limit;   ///< sessions that may be open at the same time; 0 = 1024
  int64_t session_idle_ns;  ///< a session that was not used for so long is closed; 0 = 10 minutes; negative: never
} shoal_pool_options;
#define SHOAL_POOL_OPTIONS_INIT \
  { sizeof(shoal_pool_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0 }

/// Connects to the daemon.
///   options  NULL = defaults
///   pool     owned
///   Errors   SHOAL_UNAVAILABLE: no daemon, no answer in time, or no more threads may be started (names the socket);
///            SHOAL_PERMISSION_DENIED; SHOAL_INVALID_ARGUMENT; SHOAL_OVERLOADED: the daemon has no room for another client;
///            SHOAL_FAILED_PRECONDITION: this process lacks memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_connect(const shoal_pool_options* options, shoal_pool** pool);
/// Unanswered requests end as SHOAL_CANCELLED, and callbacks are called. Tensors stay valid. Frees the pool and its client;
/// models, requests, predictions, queues and sessions of it stay the caller's to free, before or afterwards.
SHOAL_API void shoal_pool_close(shoal_pool* pool);
/// What runs the daemon's models: borrowed from the pool; NULL for NULL.
SHOAL_API const shoal_client* shoal_pool_client(const shoal_pool* pool);

/// Tensors of one kind: inputs with loans, or outputs.
typedef struct shoal_arena_usage {
  uint64_t reserved_bytes;   ///< the most that may be allocated; costs only addresses
  uint64_t allocated_bytes;  ///< memory that is taken now
  uint64_t used_bytes;       ///< of that, by tensors that the caller, a request or a session holds
  uint64_t copied;           ///< tensors that travelled inside messages instead, since the pool was made
  uint64_t copied_bytes;     ///< their bytes
} shoal_arena_usage;
/// A pool's shared memory.
typedef struct shoal_usage {
  size_t struct_size;
  shoal_arena_usage inputs, outputs;
} shoal_usage;
#define SHOAL_USAGE_INIT                                    \
  {                                                         \
    sizeof(shoal_usage), {0, 0, 0, 0, 0}, { 0, 0, 0, 0, 0 } \
  }
/// Fills in `usage`, whose struct_size the caller has set. Reads counters; asks nobody.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_usage(const shoal_pool* pool, shoal_usage* usage);

// ---- Descriptors ----

/// Checks what a program will pass and wants against a model's description.
///   inputs, outputs  some of the model's, in any order; NULL if there are none. An open size, and a layout of NULL, say nothing
///   Errors           SHOAL_INVALID_ARGUMENT: names the model, the tensor, and what is expected and given
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_info_expect(const shoal_model_info* info, const shoal_data_desc* inputs,
                                                               size_t input_count, const shoal_data_desc* outputs,
                                                               size_t output_count);

// ---- Sessions ----

/// A sequence of requests to a model with states (`state` in its model.toml): what one step answers as a state is an input of the
/// next. The first step begins with zeros. The states lie in this process: a sequence survives every worker and the daemon. A
/// step that fails changes nothing and may be sent again.
///   Threads  thread-safe, but one step at a time
typedef struct shoal_session shoal_session;

/// Opens a session, without asking the daemon.
///   session  owned
///   Errors   SHOAL_OVERLOADED: session_limit; SHOAL_INVALID_ARGUMENT: the name is too long; SHOAL_FAILED_PRECONDITION: no_arenas
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_open_session(shoal_pool* pool, const char* model, shoal_session** session);
/// Sends the next step and waits for its outputs, states included.
///   inputs   those of the model that are no states, by name. A state that is given counts instead of the session's
///   outputs  owned
///   Errors   those of shoal_model_predict(). SHOAL_FAILED_PRECONDITION: a step is under way; the model has no state; or the
///            session's states do not fit any more: see shoal_session_reset(). SHOAL_NOT_FOUND: closed after session_idle_ns
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_session_predict(shoal_session* session, const shoal_named_tensor* inputs,
                                                             size_t input_count, const shoal_submit_options* options,
                                                             shoal_outputs** outputs);
/// Sends the next step and returns at once.
///   prediction  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_session_submit(shoal_session* session, const shoal_named_tensor* inputs,
                                                            size_t input_count, const shoal_submit_options* options,
                                                            shoal_prediction** prediction);
/// The next step begins a new sequence.
///   Errors  SHOAL_FAILED_PRECONDITION: a step is under way; SHOAL_NOT_FOUND: as above; SHOAL_CANCELLED: the pool was closed
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_session_reset(shoal_session* session);
SHOAL_API void shoal_session_close(shoal_session* session);  ///< frees it; a step that is under way goes on

// ---- What the daemon serves ----

/// A list of names. Immutable.
typedef struct shoal_names shoal_names;
SHOAL_API size_t shoal_names_count(const shoal_names* names);
SHOAL_API const char* shoal_names_at(const shoal_names* names, size_t index);  ///< "" for one too many
SHOAL_API void shoal_names_free(shoal_names* names);

/// The names of the models that the daemon serves.
///   names   owned
///   Errors  SHOAL_UNAVAILABLE
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_list(shoal_pool* pool, shoal_names** names);
/// The state of the daemon and its models, as JSON (supervisor/admin/README.md).
///   json    owned: shoal_string_free()
///   Errors  SHOAL_UNAVAILABLE
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_stats(shoal_pool* pool, char** json);
/// The last deaths of workers of one model, or of all models (NULL), as JSON.
///   json    owned: shoal_string_free()
///   Errors  SHOAL_PERMISSION_DENIED: the caller is no operator; SHOAL_UNAVAILABLE, SHOAL_OVERLOADED
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_crashes(shoal_pool* pool, const char* model, char** json);

/// What a change did. Immutable.
typedef struct shoal_change shoal_change;
/// "loaded", "reloaded", "unchanged", "unloaded", "scaled" or "drained"; "" for NULL.
SHOAL_API const char* shoal_change_outcome(const shoal_change* change);
SHOAL_API uint64_t shoal_change_version(const shoal_change* change);  ///< the default version now; 0 = none
SHOAL_API size_t shoal_change_version_count(const shoal_change* change);
SHOAL_API uint64_t shoal_change_version_at(const shoal_change* change, size_t index);  ///< served versions, the lowest first
SHOAL_API int64_t shoal_change_workers(const shoal_change* change);                    ///< per version
SHOAL_API int64_t shoal_change_took_ns(const shoal_change* change);
SHOAL_API void shoal_change_free(shoal_change* change);

/// The next five change what the daemon serves, and return when the change is complete. No request fails because of a change.
///   change  owned; NULL: not wanted
///   Errors  SHOAL_NOT_FOUND: no such model; SHOAL_FAILED_PRECONDITION: the change failed, and nothing has changed;
///           SHOAL_INVALID_ARGUMENT; SHOAL_CANCELLED: a newer change of the model asked for something else; SHOAL_OVERLOADED,
///           SHOAL_UNAVAILABLE; SHOAL_PERMISSION_DENIED: the caller is no operator
///
/// Serves another model, until the daemon ends.
///   path    "PATH[,workers=4,...]", as `shoald --model NAME=PATH`; relative to this process's working directory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_load(shoal_pool* pool, const char* name, const char* path,
                                                       shoal_change** change);
/// Reads the model's files again and serves their new content; also ends a drain.
///   path   NULL = the present one
///   force  load even if nothing has changed
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_reload(shoal_pool* pool, const char* name, const char* path, bool force,
                                                         shoal_change** change);
/// Stops serving the model, after its admitted requests or after 30 s.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_unload(shoal_pool* pool, const char* name, shoal_change** change);
/// Changes the number of workers, until the model is loaded with another number.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_scale(shoal_pool* pool, const char* name, int64_t workers,
                                                        shoal_change** change);
/// Refuses new requests for the model, and returns when the admitted ones are answered. shoal_pool_reload() ends this.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_drain(shoal_pool* pool, const char* name, shoal_change** change);
/// Asks the daemon to answer its admitted requests and to end. Returns when it has agreed.
///   Errors  SHOAL_PERMISSION_DENIED: the caller is no operator; SHOAL_UNAVAILABLE
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_pool_stop(shoal_pool* pool);

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_SHOAL_H_
