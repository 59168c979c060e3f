// What the C programs of this folder share: the first check that fails ends the program.
#ifndef SHOAL_TESTS_C_CHECK_H_
#define SHOAL_TESTS_C_CHECK_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shoal/shoal.h"

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s is wrong\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

/// The call succeeds.
#define OK(call) check_ended(__FILE__, __LINE__, #call, (call), SHOAL_OK, "")
/// The call fails with that code, and its message contains the text.
#define FAILS(call, code, text) check_ended(__FILE__, __LINE__, #call, (call), (code), (text))
/// The call names the argument that is NULL.
#define NEEDS(argument, call) FAILS(call, SHOAL_INVALID_ARGUMENT, argument)

static inline void check_ended(const char* file, int line, const char* call, shoal_status* status, shoal_code code,
                               const char* text) {
  if (shoal_status_code(status) != code || strstr(shoal_status_message(status), text) == NULL) {
    fprintf(stderr, "%s:%d: %s\n  gives %s: %s\n  and not %s: ...%s...\n", file, line, call,
            shoal_code_name(shoal_status_code(status)), shoal_status_message(status), shoal_code_name(code), text);
    exit(1);
  }
  CHECK(code == SHOAL_OVERLOADED || shoal_status_retry_after_ns(status) == 0);
  shoal_status_free(status);
}

/// A float32 tensor of that many numbers, in one row: first, first + 1, ...
static inline shoal_tensor* counting(float first, int64_t count) {
  const int64_t dims[2] = {1, count};
  shoal_tensor* tensor = NULL;
  OK(shoal_tensor_create(SHOAL_FLOAT32, dims, 2, &tensor));
  for (int64_t i = 0; i < count; ++i) ((float*)shoal_tensor_data(tensor))[i] = first + (float)i;
  return tensor;
}

static inline float number_at(const shoal_tensor* tensor, int64_t index) {
  CHECK(tensor != NULL && shoal_tensor_dtype(tensor) == SHOAL_FLOAT32 && index < shoal_tensor_element_count(tensor));
  return ((const float*)shoal_tensor_data(tensor))[index];
}

#endif  // SHOAL_TESTS_C_CHECK_H_
