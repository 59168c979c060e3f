// Client: runs models, in the pool or in this process. Models and their descriptions, requests in one call, predictions.
#ifndef SHOAL_C_CLIENT_H_
#define SHOAL_C_CLIENT_H_

#include "shoal/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- The description of a model ----

/// What a model takes and gives, when it was asked.
///   Threads  immutable
typedef struct shoal_model_info shoal_model_info;

/// Two names of one state of a sequence: an output that is an input of the next step. A request may leave the input out: it is
/// then zeros, or what its session has.
typedef struct shoal_state_pair {
  size_t struct_size;
  const char *output, *input;  ///< borrowed from the description
} shoal_state_pair;
#define SHOAL_STATE_PAIR_INIT \
  { sizeof(shoal_state_pair), NULL, NULL }

/// How pictures become an input: [preprocess] of model.toml. A number of channel c is (value - mean[c]) * scale[c], of values
/// from 0 to 255.
typedef struct shoal_preprocess {
  size_t struct_size;
  int64_t resize;                   ///< length of the shorter side before the crop; 0 = resize to the crop's size
  int64_t crop_height, crop_width;  ///< center crop; 0 = the input's size
  const char* order;                ///< "RGB", "BGR" or "GRAY"; borrowed from the description, as mean and scale
  size_t channel_count;             ///< numbers in mean and in scale
  const float *mean, *scale;
  int64_t letterbox;  ///< not 0: the whole picture is resized to fit into the crop, in proportion, and lies in its center
  int64_t border;     ///< of a letterbox: the gray, 0 to 255, around the picture
} shoal_preprocess;
#define SHOAL_PREPROCESS_INIT \
  { sizeof(shoal_preprocess), 0, 0, 0, NULL, 0, NULL, NULL, 0, 0 }

SHOAL_API const char* shoal_model_info_name(const shoal_model_info* info);
SHOAL_API uint64_t shoal_model_info_version(const shoal_model_info* info);
SHOAL_API const char* shoal_model_info_precision(const shoal_model_info* info);  ///< "f32", "f32-fast" or "bf16"
SHOAL_API size_t shoal_model_info_input_count(const shoal_model_info* info);
SHOAL_API size_t shoal_model_info_output_count(const shoal_model_info* info);
SHOAL_API size_t shoal_model_info_state_count(const shoal_model_info* info);
SHOAL_API size_t shoal_model_info_label_count(const shoal_model_info* info);
/// The next four fill in a struct whose struct_size the caller has set.
///   Errors  SHOAL_INVALID_ARGUMENT: there are not so many, or struct_size is not set
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_info_input(const shoal_model_info* info, size_t index,
                                                              shoal_tensor_spec* spec);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_info_output(const shoal_model_info* info, size_t index,
                                                               shoal_tensor_spec* spec);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_info_state(const shoal_model_info* info, size_t index, shoal_state_pair* pair);
///   Errors  also SHOAL_NOT_FOUND: the model does not say
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_info_preprocess(const shoal_model_info* info, shoal_preprocess* preprocess);
/// The label of class `index`; "" if there is none.
SHOAL_API const char* shoal_model_info_label(const shoal_model_info* info, size_t index);
SHOAL_API void shoal_model_info_free(shoal_model_info* info);

// ---- What a request ends with ----

/// The result of a request. Always borrowed: from a prediction, a request, or for the time of a callback.
///   Threads  immutable
typedef struct shoal_outcome shoal_outcome;

/// Whether the model may have run.
typedef int32_t shoal_ran;
enum { SHOAL_RAN_NO = 0, SHOAL_RAN_MAYBE = 1, SHOAL_RAN_YES = 2 };

SHOAL_API shoal_code shoal_outcome_code(const shoal_outcome* outcome);               ///< SHOAL_OK if there are outputs
SHOAL_API const char* shoal_outcome_message(const shoal_outcome* outcome);           ///< why there are none; "" if there are
SHOAL_API const shoal_outputs* shoal_outcome_outputs(const shoal_outcome* outcome);  ///< borrowed; NULL if there are none
/// Code, message and retry_after as a status of the caller's; NULL if there are outputs.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_outcome_status(const shoal_outcome* outcome);
SHOAL_API shoal_ran shoal_outcome_ran(const shoal_outcome* outcome);
SHOAL_API uint32_t shoal_outcome_attempts(const shoal_outcome* outcome);       ///< number of runs that began
SHOAL_API uint32_t shoal_outcome_batch(const shoal_outcome* outcome);          ///< requests that ran together; 0 = not known
SHOAL_API uint64_t shoal_outcome_model_version(const shoal_outcome* outcome);  ///< the version that answered
SHOAL_API int64_t shoal_outcome_queue_time_ns(const shoal_outcome* outcome);
SHOAL_API int64_t shoal_outcome_compute_time_ns(const shoal_outcome* outcome);
SHOAL_API int64_t shoal_outcome_retry_after_ns(const shoal_outcome* outcome);

// ---- Clients and models ----

/// What runs models: shoal_pool_client() runs them in the local daemon's workers, shoal_engine_client() in this process. Always
/// borrowed, from the pool or the engine.
///   Threads  thread-safe
typedef struct shoal_client shoal_client;

/// One model of a client. When its pool or engine is closed, everything answers SHOAL_CANCELLED.
///   Threads  thread-safe
typedef struct shoal_model shoal_model;

typedef struct shoal_submit_options {
  size_t struct_size;
  int64_t timeout_ns;  ///< for the whole path; 0 = the model's default; negative: the request fails at once
  uint64_t version;    ///< of the model; 0 = the default version
  uint64_t flow;       ///< for a gateway: whom the request is for. 0 = this client; another number needs the role of a gateway
  int64_t priority;    ///< -128 to 127; a higher one goes first among the requests of this client. One above 0 needs a role
} shoal_submit_options;
#define SHOAL_SUBMIT_OPTIONS_INIT \
  { sizeof(shoal_submit_options), 0, 0, 0, 0 }

/// Finds a model. Waits for its description, which may take as long as the model loads.
///   version  0 = the default version
///   model    owned
///   Errors   SHOAL_NOT_FOUND: no such model or version; SHOAL_UNAVAILABLE, SHOAL_CANCELLED
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_model(const shoal_client* client, const char* name, uint64_t version,
                                                          shoal_model** model);
/// Describes a model without a handle of it.
///   info    owned
///   Errors  as shoal_client_model()
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_describe(const shoal_client* client, const char* name, uint64_t version,
                                                             shoal_model_info** info);
SHOAL_API const char* shoal_model_name(const shoal_model* model);
SHOAL_API uint64_t shoal_model_version(const shoal_model* model);  ///< that was asked for; 0 = the default version
/// The description that is known now. A later call may give another one, after a reload.
///   info  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_describe(const shoal_model* model, shoal_model_info** info);
SHOAL_API void shoal_model_free(shoal_model* model);  ///< requests to it go on

/// Gives a tensor with undefined bytes that requests use without a copy: shared memory of a pool, memory of this process for an
/// engine. It may be submitted again, but must not be changed while a request with it is unanswered.
///   tensor  owned
///   Errors  SHOAL_OVERLOADED: not enough room now; SHOAL_INVALID_ARGUMENT: as shoal_tensor_create()
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_loan(const shoal_client* client, shoal_dtype dtype, const int64_t* dims,
                                                         size_t rank, shoal_tensor** tensor);
/// The same for shoal_request_set_output(): the model writes its output there.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_loan_output(const shoal_client* client, shoal_dtype dtype,
                                                                const int64_t* dims, size_t rank, shoal_tensor** tensor);
/// Sends and receives without waiting, and calls the callbacks of what is complete. For a program whose own loop calls it: the
/// library then starts no thread, from the first call on.
SHOAL_API void shoal_client_poll_once(const shoal_client* client);

// ---- Requests in one call ----

/// Sends one request and waits for its outputs.
///   inputs   one per input of the model, in any order; states may be left out. They may be freed afterwards. By
///            shoal_client_predict() each has a name
///   options  NULL = defaults
///   outputs  owned
///   Errors   SHOAL_INVALID_ARGUMENT (name, dtype, shape or number of inputs), SHOAL_NOT_FOUND (model or version),
///            SHOAL_OVERLOADED (has retry_after), SHOAL_DEADLINE_EXCEEDED, SHOAL_POISON, SHOAL_ABORTED, SHOAL_CANCELLED,
///            SHOAL_UNAVAILABLE, SHOAL_PERMISSION_DENIED, SHOAL_FAILED_PRECONDITION (out of memory), SHOAL_INTERNAL
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_predict(const shoal_model* model, const shoal_named_tensor* inputs,
                                                           size_t input_count, const shoal_submit_options* options,
                                                           shoal_outputs** outputs);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_predict(const shoal_client* client, const char* model,
                                                            const shoal_named_tensor* inputs, size_t input_count,
                                                            const shoal_submit_options* options, shoal_outputs** outputs);

/// A submitted request, which completes exactly once.
///   Threads  thread-compatible; it may be freed by another thread than the one that submitted it
typedef struct shoal_prediction shoal_prediction;

/// Sends one request and returns at once. What is wrong with the request is its outcome.
///   inputs, options  as shoal_model_predict()
///   prediction       owned
///   Errors           SHOAL_INVALID_ARGUMENT: an argument of this function; SHOAL_FAILED_PRECONDITION: out of memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_model_submit(const shoal_model* model, const shoal_named_tensor* inputs,
                                                          size_t input_count, const shoal_submit_options* options,
                                                          shoal_prediction** prediction);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_client_submit(const shoal_client* client, const char* model,
                                                           const shoal_named_tensor* inputs, size_t input_count,
                                                           const shoal_submit_options* options, shoal_prediction** prediction);

SHOAL_API bool shoal_prediction_ready(const shoal_prediction* prediction);  ///< never blocks; true for NULL
/// Waits until it is ready, or for so long. True if it is ready.
SHOAL_API bool shoal_prediction_wait(const shoal_prediction* prediction, int64_t timeout_ns);
/// Waits. Never NULL; borrowed from the prediction.
SHOAL_API const shoal_outcome* shoal_prediction_outcome(const shoal_prediction* prediction);
SHOAL_API void shoal_prediction_cancel(const shoal_prediction* prediction);  ///< best effort
/// Calls callback(outcome, arg) once the request is complete: exactly once, also if it failed, was canceled, or was complete
/// before. The request then goes on without the prediction. The first call starts a thread of the library, in which callbacks
/// run, unless this program calls shoal_client_poll_once(): then they run there. If the pool or engine is gone, the callback is
/// called at once.
///   callback  must not wait for another request, and not jump out (longjmp)
///   Errors    SHOAL_UNAVAILABLE: no thread can be started; SHOAL_FAILED_PRECONDITION: out of memory, or a forked child. The
///             callback is not called then
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_prediction_then(const shoal_prediction* prediction,
                                                             void (*callback)(const shoal_outcome* outcome, void* arg),
                                                             void* arg);
/// A callback that is to run.
typedef struct shoal_task shoal_task;
/// The same, but the callback runs where the program likes: executor(task, executor_arg) is called in place of it, in the thread
/// in which it would run, and hands the task to an event loop, a pool of threads or the like.
///   executor  must not block, and not jump out. shoal_task_run(task) must be called once, in any thread, at once or later
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_prediction_then_on(const shoal_prediction* prediction,
                                                                void (*executor)(shoal_task* task, void* executor_arg),
                                                                void* executor_arg,
                                                                void (*callback)(const shoal_outcome* outcome, void* arg),
                                                                void* arg);
/// Calls the callback, and frees the task.
SHOAL_API void shoal_task_run(shoal_task* task);
SHOAL_API void shoal_prediction_free(shoal_prediction* prediction);  ///< cancels the request, unless then() was called

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_C_CLIENT_H_
