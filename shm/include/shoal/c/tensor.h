// Tensors: element type, shape, and bytes in row-major order. And the descriptions of a model's inputs and outputs.
#ifndef SHOAL_C_TENSOR_H_
#define SHOAL_C_TENSOR_H_

#include "shoal/c/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Element types. The numbers never change.
typedef int32_t shoal_dtype;
enum {
  SHOAL_FLOAT32 = 1,
  SHOAL_FLOAT64 = 2,
  SHOAL_FLOAT16 = 3,  ///< IEEE 754 binary16
  SHOAL_BFLOAT16 = 4,
  SHOAL_UINT8 = 5,
  SHOAL_INT8 = 6,
  SHOAL_INT16 = 7,
  SHOAL_UINT16 = 8,
  SHOAL_INT32 = 9,
  SHOAL_UINT32 = 10,
  SHOAL_INT64 = 11,
  SHOAL_UINT64 = 12,
  SHOAL_BOOL = 13  ///< one byte, 0 or 1
};

SHOAL_API size_t shoal_dtype_size(shoal_dtype dtype);  ///< bytes of one element; 0 for a number that is no dtype
/// NumPy's name: "float32", "uint8", "bool"; "invalid" for a number that is no dtype. Lives as long as the program.
SHOAL_API const char* shoal_dtype_name(shoal_dtype dtype);
/// The dtype of that name.
///   Errors  SHOAL_INVALID_ARGUMENT: there is none
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_dtype_parse(const char* name, shoal_dtype* dtype);

/// The most dimensions that a tensor has.
#define SHOAL_MAX_RANK 8

/// A tensor, and a hold on its bytes: they are freed with the last tensor and request that has them.
///   Threads  thread-compatible. The library writes no bytes but those of outputs
typedef struct shoal_tensor shoal_tensor;

/// Makes a tensor of zeros, aligned to 64 bytes.
///   dims    outermost first; may be NULL if rank is 0: a tensor of one element
///   tensor  owned
///   Errors  SHOAL_INVALID_ARGUMENT: no dtype, a negative or too large shape, more than SHOAL_MAX_RANK dimensions;
///           SHOAL_FAILED_PRECONDITION: out of memory
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_tensor_create(shoal_dtype dtype, const int64_t* dims, size_t rank,
                                                           shoal_tensor** tensor);
/// Makes a tensor of memory that the caller has, without a copy. A request to the pool copies it to shared memory: see
/// shoal_client_loan().
///   data     aligned to the size of an element
///   size     bytes at `data`; the shape must not need more
///   deleter  called with `data` and `arg` when no tensor and no request uses the memory any more, by any thread, perhaps one of
///            the library; not called if this fails. NULL: the caller keeps the memory until then
///   tensor   owned
///   Errors   SHOAL_INVALID_ARGUMENT: as shoal_tensor_create(), and data or size that does not fit
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_tensor_wrap(shoal_dtype dtype, const int64_t* dims, size_t rank, void* data,
                                                         size_t size, void (*deleter)(void* data, void* arg), void* arg,
                                                         shoal_tensor** tensor);
/// Makes another handle of the same bytes, for example to keep an output for longer than its request.
///   shared  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_tensor_share(const shoal_tensor* tensor, shoal_tensor** shared);

SHOAL_API void* shoal_tensor_data(const shoal_tensor* tensor);   ///< NULL if it has no bytes
SHOAL_API size_t shoal_tensor_size(const shoal_tensor* tensor);  ///< in bytes
SHOAL_API shoal_dtype shoal_tensor_dtype(const shoal_tensor* tensor);
SHOAL_API size_t shoal_tensor_rank(const shoal_tensor* tensor);
SHOAL_API const int64_t* shoal_tensor_dims(const shoal_tensor* tensor);  ///< `rank` numbers, borrowed from the tensor; not NULL
SHOAL_API int64_t shoal_tensor_element_count(const shoal_tensor* tensor);
SHOAL_API void shoal_tensor_free(shoal_tensor* tensor);

/// A tensor for the input of that name. Where a model is known, NULL is the name of the input at this place of the model's order.
typedef struct shoal_named_tensor {
  const char* name;
  const shoal_tensor* tensor;
} shoal_named_tensor;

/// The outputs of a request, in the model's order.
///   Threads  immutable
typedef struct shoal_outputs shoal_outputs;

SHOAL_API size_t shoal_outputs_count(const shoal_outputs* outputs);
SHOAL_API const char* shoal_outputs_name(const shoal_outputs* outputs, size_t index);              ///< "" for one too many
SHOAL_API const shoal_tensor* shoal_outputs_tensor(const shoal_outputs* outputs, size_t index);    ///< borrowed; NULL likewise
SHOAL_API const shoal_tensor* shoal_outputs_find(const shoal_outputs* outputs, const char* name);  ///< NULL: none of that name
/// Only for outputs that are owned. Their tensors are freed, too; shoal_tensor_share() keeps one.
SHOAL_API void shoal_outputs_free(shoal_outputs* outputs);

/// The description of an input or output.
typedef struct shoal_tensor_spec {
  size_t struct_size;
  const char* name;  ///< borrowed from what was asked
  shoal_dtype dtype;
  int32_t rank;                     ///< -1: any shape, or not known yet
  int64_t dims[SHOAL_MAX_RANK];     ///< -1: open
  int64_t lowest[SHOAL_MAX_RANK];   ///< the sizes that a dimension may have, from here ...
  int64_t highest[SHOAL_MAX_RANK];  ///< ... to here; INT64_MAX: no limit
  const char* layout;               ///< one letter per dimension, as in "NCHW"; "" if nobody has said it; borrowed likewise
} shoal_tensor_spec;
#define SHOAL_TENSOR_SPEC_INIT \
  { sizeof(shoal_tensor_spec), NULL, 0, 0, {0}, {0}, {0}, NULL }

/// A descriptor that a program gives: what it will pass as an input, or wants as an output.
typedef struct shoal_data_desc {
  const char* name;
  shoal_dtype dtype;  ///< 0 = float32
  int32_t rank;
  int64_t dims[SHOAL_MAX_RANK];  ///< -1, where the function says so: open
  const char* layout;            ///< one letter per dimension, as in "NCHW"; NULL: not said
} shoal_data_desc;

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_C_TENSOR_H_
