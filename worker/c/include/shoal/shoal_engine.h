// Models in this process, in C. Link with -lshoal-engine (pkg-config: shoal-engine). C11 and C++.
//
// shoal/c/status.h has the rules of errors, handles, structs and threads; shoal/c/client.h and shoal/c/request.h what clients do.
#ifndef SHOAL_SHOAL_ENGINE_H_
#define SHOAL_SHOAL_ENGINE_H_

#include "shoal/c/client.h"
#include "shoal/c/request.h"
#include "shoal/c/status.h"
#include "shoal/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Lets the OpenMP threads of this program sleep between runs instead of keeping their cores busy: sets OMP_WAIT_POLICY=passive
/// and GOMP_SPINCOUNT, and executes this program again, because libgomp reads both before main(). Call it first in main(). A
/// variable that the user has set keeps its value. Returns if there is nothing to do, or if the program cannot be executed again.
SHOAL_API void shoal_ensure_passive_openmp(char** argv);

// ---- Engine ----

/// One model in this process, with one copy of its weights. Its outputs are bit-equal to the pool's for the same shapes and
/// choices of algorithms. Loading and running leave the calling thread as it was: its OpenMP width, its floating-point
/// environment.
///   Threads  thread-safe
typedef struct shoal_engine shoal_engine;

/// The shapes of one request. Open sizes (-1) are allowed if there is only one set: they then mean what they mean in model.toml.
typedef struct shoal_shape_set {
  const shoal_data_desc* shapes;
  size_t count;
} shoal_shape_set;

typedef struct shoal_engine_options {
  size_t struct_size;
  const char* device;     ///< "cpu" or "cpu-reference"; NULL = as model.toml says
  const char* precision;  ///< "f32", "f32-fast", "bf16" or "auto"; NULL = as model.toml says
  int64_t threads;        ///< cores per run; 0 = as model.toml says
  int64_t contexts;       ///< runs at the same time, each with its own activation arena; 0 = 1
  int64_t queue_limit;    ///< requests that may wait; one more is SHOAL_OVERLOADED at once; 0 = 1024
  int64_t tuning_ms;      ///< how long loading may measure algorithms; 0 = as model.toml says; negative: not at all
  /// Compiled by loading, instead of what model.toml says; the first decides the weight layouts.
  const shoal_shape_set* shape_sets;
  size_t shape_set_count;
  /// Called about ten times a second while loading measures algorithms; NULL: not called. Must not jump out (longjmp).
  void (*on_measuring)(int64_t spent_ns, int64_t budget_ns, void* arg);
  void* on_measuring_arg;
} shoal_engine_options;
#define SHOAL_ENGINE_OPTIONS_INIT \
  { sizeof(shoal_engine_options), NULL, NULL, 0, 0, 0, 0, NULL, 0, NULL, NULL }

/// Loads a model. The first load of a model on a machine measures which algorithms are fastest, in a child process, and keeps the
/// result under $SHOAL_CACHE_DIR, else $XDG_CACHE_HOME/shoal, else ~/.cache/shoal.
///   path     a prefix, prefix@epoch, a directory, or "builtin:identity"
///   options  NULL = defaults
///   engine   owned
///   Errors   SHOAL_NOT_FOUND, SHOAL_INVALID_ARGUMENT, SHOAL_UNIMPLEMENTED, SHOAL_DATA_LOSS: file, node or key named;
///            SHOAL_FAILED_PRECONDITION: out of memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_engine_load(const char* path, const shoal_engine_options* options,
                                                         shoal_engine** engine);
/// Waits for requests that run; those that wait end as SHOAL_CANCELLED. Frees the engine and its client; models, requests,
/// predictions and queues of it stay the caller's to free, before or afterwards.
SHOAL_API void shoal_engine_close(shoal_engine* engine);
/// What runs this model, on up to `contexts` threads of the library: borrowed from the engine; NULL for NULL. Its model has the
/// name that shoal_model_info_name() of shoal_engine_describe() gives.
SHOAL_API const shoal_client* shoal_engine_client(const shoal_engine* engine);
///   info  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_engine_describe(const shoal_engine* engine, shoal_model_info** info);
/// Runs on the calling thread once a context is free.
///   inputs   one per input of the model, in any order; a name that is NULL is that of the input at this place. States that are
///            left out are zeros
///   outputs  owned
///   Errors   SHOAL_INVALID_ARGUMENT: names the input; SHOAL_FAILED_PRECONDITION: out of memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_engine_run(shoal_engine* engine, const shoal_named_tensor* inputs,
                                                        size_t input_count, shoal_outputs** outputs);
SHOAL_API size_t shoal_engine_warning_count(const shoal_engine* engine);               ///< of loading, such as unused parameters
SHOAL_API const char* shoal_engine_warning(const shoal_engine* engine, size_t index);  ///< "" for one too many
SHOAL_API uint64_t shoal_engine_packed_bytes(const shoal_engine* engine);              ///< weights, shared by all contexts
SHOAL_API uint64_t shoal_engine_arena_bytes(const shoal_engine* engine);               ///< activations of one context

// ---- Program: MXNet's thread-safe cached operator ----

/// A symbol with its parameters, which any number of threads invoke at the same time: what MXCreateCachedOpEX(..., thread_safe =
/// true) was meant to be. docs/migrating-from-mxnet.md has a table of both.
///   Threads  thread-safe
typedef struct shoal_program shoal_program;

typedef struct shoal_program_options {
  size_t struct_size;
  /// The flags of MXCreateCachedOpEX, `flag_count` keys and values:
  ///   data_indices   "[0]": the positions, among all inputs of the symbol in MXNet's order (list_inputs), of what
  ///                  shoal_program_invoke() is given, in this order. Missing: those of which the parameters hold no value,
  ///                  without labels
  ///   param_indices  "[1, 2]": the positions of parameters. Each must have a value, or be a label
  ///   static_alloc, static_shape   "true" or "false", without effect: memory is always planned once for each set of shapes, and
  ///                  kept. static_shape wants static_alloc, as in MXNet
  ///   is_dynamic     "true" or "false", without effect: sizes that depend on data are always possible
  ///   inline_limit, forward_bulk_size, backward_bulk_size   whole numbers, without effect
  const char* const* keys;
  const char* const* values;
  size_t flag_count;
  /// The inputs that invoke is given. MXNet's files do not hold their shapes; shoal_program_load() finds them in model.toml, too.
  /// A first size of -1 is open, and compiled as 1; another one is compiled when it is first invoked.
  const shoal_data_desc* inputs;
  size_t input_count;
  const char* name;       ///< for messages and shoal_program_client(); NULL = "program"
  const char* precision;  ///< as for an engine
  int64_t threads;        ///< cores per invocation; 0 = 1
  int64_t contexts;       ///< invocations that run at the same time, further ones wait; 0 = the cores that this process may use
} shoal_program_options;
#define SHOAL_PROGRAM_OPTIONS_INIT \
  { sizeof(shoal_program_options), NULL, NULL, 0, NULL, 0, NULL, NULL, 0, 0 }

/// Makes a program from what a symbol file and a file of parameters hold. Nothing of it is referred to afterwards. Algorithms are
/// not measured.
///   symbol_json  the text of a symbol file of any MXNet release
///   params       the bytes of a .params file of any release, or of MXNet 2's archives
///   options      `inputs` is needed
///   program      owned
///   Errors       SHOAL_INVALID_ARGUMENT: an argument; a key or its value; an input without a shape; a parameter that is missing,
///                with its node. SHOAL_DATA_LOSS, SHOAL_UNIMPLEMENTED: offset or node named. SHOAL_FAILED_PRECONDITION: out of
///                memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_program_create(const char* symbol_json, const void* params, size_t params_size,
                                                            const shoal_program_options* options, shoal_program** program);
/// Makes a program from files, as shoal_engine_load() does: with model.toml, and algorithms are measured.
///   path     a prefix, prefix@epoch or a directory
///   options  NULL = defaults. `name` has no effect: it is that of the files
///   program  owned
///   Errors   also SHOAL_NOT_FOUND
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_program_load(const char* path, const shoal_program_options* options,
                                                          shoal_program** program);
/// What the program takes, in the order of shoal_program_invoke(), and gives.
///   info  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_program_describe(const shoal_program* program, shoal_model_info** info);
/// Runs on the calling thread, at the same time as other threads' invocations.
///   inputs   `input_count` tensors: all of shoal_program_describe(), in its order
///   outputs  `output_count` places: all of shoal_program_describe(), in its order. NULL in a place: a tensor is made, owned. A
///            tensor in a place: the output is written to its memory, which must have its dtype and shape
///   Errors   SHOAL_INVALID_ARGUMENT: names the input or output; SHOAL_FAILED_PRECONDITION: out of memory. Places are unchanged
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_program_invoke(shoal_program* program, shoal_tensor* const* inputs,
                                                            size_t input_count, shoal_tensor** outputs, size_t output_count);
/// The same model for requests that do not block, queues and callbacks, by the names of its inputs: borrowed from the program.
SHOAL_API const shoal_client* shoal_program_client(const shoal_program* program);
SHOAL_API void shoal_program_free(shoal_program* program);  ///< no thread may be invoking it

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_SHOAL_ENGINE_H_
