/* MXNet 1.9.1's C predict API, as libshoal_predict provides it: a program that was written for MXNet is linked with
 * -lshoal_predict and runs on Shoal, in its own process. With SHOAL_PREDICT_MODEL=NAME in the environment, its predictors
 * are clients of the daemon's model NAME, whose symbol must be the one that they pass. C11 and C++.
 *
 *   Returns   0, or -1; MXGetLastError() then says why. No exception leaves a function
 *   Threads   a handle is used by one thread at a time, by any thread. Different handles may be used at the same time,
 *             whatever made them: they never share inputs, outputs or intermediate results. MXNET_ENGINE_TYPE is not needed
 *   Memory    handles of one model share its weights, whatever made them, while one of them lives: those of equal
 *             symbol_json_str and param_bytes (their bytes, not their addresses), with the same outputs, types of inputs and
 *             cores for a run. Shapes may differ; the first one decides how the weights are packed. Reading the symbol and
 *             comparing the bytes is all that another handle costs
 *   Fork      a predictor does not work in a forked child of the process that made it: make it after fork(). Those of a
 *             child whose parent made predictors before use one core each. Do not fork while another thread makes or
 *             reshapes one: what it had locked stays locked in the child
 *   Types     numbers of element types are MXNet's: 0 float32, 1 float64, 2 float16, 3 uint8, 4 int32, 5 int8, 6 int64,
 *             7 bool, 8 int16, 9 uint16, 10 uint32, 11 uint64, 12 bfloat16
 *
 * Not here: MXPredSetMonitorCallback. Differences from MXNet are listed in docs/migrating-from-mxnet.md.
 */
#ifndef SHOAL_MXNET_C_PREDICT_API_H
#define SHOAL_MXNET_C_PREDICT_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t mx_uint;
typedef float mx_float;
typedef void* PredictorHandle; /* a predictor: a model with inputs and outputs of its own */
typedef void* NDListHandle;    /* a list of arrays */

/* Why the last function that failed in this thread did so: its name, a code (INVALID_ARGUMENT, ...) and a sentence. Empty if
 * none has. Never NULL. Valid until the next failure in this thread. */
#ifdef __cplusplus
const char* MXGetLastError();
#else
const char* MXGetLastError(void);
#endif

/* Makes a predictor. The memory that the arguments point to is not needed afterwards.
 *   symbol_json_str     the text of a symbol file of any MXNet release
 *   param_bytes         the bytes of a .params file of any release, or of MXNet 2's archives
 *   param_size          their number
 *   dev_type, dev_id    1 CPU (3 and 5 are CPU, too); 2 GPU: runs on the CPU as well, with a warning on stderr once per
 *                       process. The number of the device does not count
 *   num_input_nodes     how many inputs follow
 *   input_keys          their names. A name that the symbol does not have is ignored, as by MXNet; so is a label
 *                       (softmax_label), and a parameter, which must have the shape of the file
 *   input_shape_indptr  num_input_nodes + 1 numbers: shape i is input_shape_data[indptr[i]] up to
 *                       input_shape_data[indptr[i + 1]]
 *   input_shape_data    the sizes, 1 or more each; at most 8 per input
 *   out                 the predictor, for MXPredFree(); NULL if this fails
 * Inputs are float32 and zeros at first. The predictor uses as many cores as OpenMP would in this thread (OMP_NUM_THREADS);
 * predictors that together want more than there are take turns.
 * Fails if an argument is wrong, a file is damaged, an operator is none of Shoal's, a parameter is missing, or an input that
 * the symbol needs has no shape. */
int MXPredCreate(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int dev_id,
                 uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                 const uint32_t* input_shape_data, PredictorHandle* out);

/* MXPredCreate() for inputs of other types.
 *   num_provided_arg_dtypes   how many types follow
 *   provided_arg_dtype_names  names of inputs; other names are ignored. Parameters take the type of the data that they meet
 *   provided_arg_dtypes       their types. What MXPredSetInput() is given then has this type, whatever its pointer's */
int MXPredCreateEx(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int dev_id,
                   const uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                   const uint32_t* input_shape_data, const uint32_t num_provided_arg_dtypes,
                   const char** provided_arg_dtype_names, const int* provided_arg_dtypes, PredictorHandle* out);

/* MXPredCreate() with other outputs than the symbol's, inner values too.
 *   num_output_nodes  how many; 0: those of the symbol
 *   output_keys       names of nodes, "global_pool": the output is "global_pool_output". In the order of the outputs */
int MXPredCreatePartialOut(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int dev_id,
                           uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                           const uint32_t* input_shape_data, uint32_t num_output_nodes, const char** output_keys,
                           PredictorHandle* out);

/* Makes several predictors of one model, one for each thread. They have one copy of the weights, and inputs and outputs of
 * their own. Each uses its share of the cores.
 *   num_threads  how many, 1 or more
 *   out          room for as many; all are NULL if this fails. Each is freed on its own */
int MXPredCreateMultiThread(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int dev_id,
                            uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                            const uint32_t* input_shape_data, int num_threads, PredictorHandle* out);

/* Makes a predictor of the same model for other shapes. It shares the weights with `handle` and nothing else: both go on,
 * and are freed in any order. Inputs that are not named keep their shape, and begin with the values that `handle` has now;
 * named ones are zeros.
 *   input_keys ... input_shape_data  as for MXPredCreate(); a name that it was not given either is an error
 *   out                              the new predictor; NULL if this fails */
int MXPredReshape(uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                  const uint32_t* input_shape_data, PredictorHandle handle, PredictorHandle* out);

/* The shape of output `index` (0 is the first). Known as soon as the predictor exists; if it depends on data, after
 * MXPredForward().
 *   shape_data  valid until the predictor runs again or is freed, also when other outputs are asked for
 *   shape_ndim  number of sizes */
int MXPredGetOutputShape(PredictorHandle handle, uint32_t index, uint32_t** shape_data, uint32_t* shape_ndim);

/* The element type of output `out_index`. Writes one number. */
int MXPredGetOutputType(PredictorHandle handle, uint32_t out_index, int* out_dtype);

/* Copies values into input `key`, where they stay until they are replaced.
 *   size  number of elements; exactly those of the shape. What is set for a label is ignored */
int MXPredSetInput(PredictorHandle handle, const char* key, const float* data, uint32_t size);

/* Runs the model. Returns when the outputs are there. */
int MXPredForward(PredictorHandle handle);

/* For programs that show progress: step 0 runs the whole model, later steps do nothing, and *step_left is 0. */
int MXPredPartialForward(PredictorHandle handle, int step, int* step_left);

/* Copies output `index` of the last MXPredForward(), in its type, whatever the type of `data`.
 *   size  number of elements; exactly those of the output */
int MXPredGetOutput(PredictorHandle handle, uint32_t index, float* data, uint32_t size);

/* Frees a predictor. NULL is allowed. */
int MXPredFree(PredictorHandle handle);

/* Reads a file of arrays (mx.nd.save) from memory. Of every release, with or without names; other types become float32, and
 * sparse arrays become dense.
 *   out, out_length  the list, for MXNDListFree(), and the number of its arrays; NULL and 0 if this fails */
int MXNDListCreate(const char* nd_file_bytes, int nd_file_size, NDListHandle* out, uint32_t* out_length);

/* Array `index` of a list. All that is returned is valid until the list is freed.
 *   out_key    its name; "" if the file has no names
 *   out_data   its values, row-major
 *   out_shape  out_ndim sizes */
int MXNDListGet(NDListHandle handle, uint32_t index, const char** out_key, const float** out_data, const uint32_t** out_shape,
                uint32_t* out_ndim);

/* Frees a list. NULL is allowed. */
int MXNDListFree(NDListHandle handle);

#ifdef __cplusplus
}
#endif

#endif
