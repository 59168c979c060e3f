/* A C11 program that calls every function of MXNet's C predict API, once each way that works and once that fails. It compiles
 * against MXNet's own header, too.
 *
 *   every_function SYMBOL PARAMS      of a network with input "data" (1, 4), whose output "plus" is data + 1
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mxnet/c_predict_api.h>

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "line %d: %s fails: %s\n", __LINE__, #condition, MXGetLastError()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static char* read_file(const char* path, int* size) {
  FILE* file = fopen(path, "rb");
  char* bytes;
  long length;
  if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (length = ftell(file)) < 0) exit(2);
  rewind(file);
  bytes = calloc((size_t)length + 1, 1);
  if (bytes == NULL || fread(bytes, 1, (size_t)length, file) != (size_t)length) exit(2);
  fclose(file);
  *size = (int)length;
  return bytes;
}

static void check_answer(PredictorHandle predictor, mx_uint rows) {
  mx_float data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, answer[8] = {0};
  mx_uint *shape = NULL, rank = 0, i;
  int type = -1;
  CHECK(MXPredGetOutputShape(predictor, 0, &shape, &rank) == 0);
  CHECK(rank == 2 && shape[0] == rows && shape[1] == 4);
  CHECK(MXPredGetOutputType(predictor, 0, &type) == 0 && type == 0);
  CHECK(MXPredSetInput(predictor, "data", data, 4 * rows) == 0);
  CHECK(MXPredForward(predictor) == 0);
  CHECK(MXPredGetOutput(predictor, 0, answer, 4 * rows) == 0);
  for (i = 0; i < 4 * rows; ++i) CHECK(answer[i] == data[i] + 1);
}

int main(int argc, char** argv) {
  const char* keys[] = {"data"};
  const char* outputs[] = {"plus"};
  const mx_uint indptr[] = {0, 2}, shape[] = {1, 4}, larger[] = {2, 4};
  const int float32[] = {0};
  PredictorHandle predictor = NULL, reshaped = NULL, several[3] = {NULL, NULL, NULL};
  NDListHandle list = NULL;
  const char* key = NULL;
  const mx_float* values = NULL;
  const mx_uint* sizes = NULL;
  mx_uint length = 0, rank = 0;
  int symbol_size, size, step, left = 1, i;
  char *symbol, *params;

  if (argc != 3) return 2;
  symbol = read_file(argv[1], &symbol_size);
  params = read_file(argv[2], &size);

  CHECK(strcmp(MXGetLastError(), "") == 0);
  CHECK(MXPredCreate(NULL, params, size, 1, 0, 1, keys, indptr, shape, &predictor) == -1);
  CHECK(strstr(MXGetLastError(), "symbol_json_str") != NULL);

  CHECK(MXPredCreate(symbol, params, size, 1, 0, 1, keys, indptr, shape, &predictor) == 0);
  check_answer(predictor, 1);
  CHECK(MXPredReshape(1, keys, indptr, larger, predictor, &reshaped) == 0);
  for (step = 0; left != 0; ++step) CHECK(MXPredPartialForward(predictor, step, &left) == 0);
  CHECK(MXPredFree(predictor) == 0);
  check_answer(reshaped, 2);
  CHECK(MXPredFree(reshaped) == 0);

  CHECK(MXPredCreateEx(symbol, params, size, 1, 0, 1, keys, indptr, shape, 1, keys, float32, &predictor) == 0);
  check_answer(predictor, 1);
  CHECK(MXPredFree(predictor) == 0);
  CHECK(MXPredCreatePartialOut(symbol, params, size, 1, 0, 1, keys, indptr, shape, 1, outputs, &predictor) == 0);
  check_answer(predictor, 1);
  CHECK(MXPredFree(predictor) == 0);
  CHECK(MXPredCreateMultiThread(symbol, params, size, 1, 0, 1, keys, indptr, shape, 3, several) == 0);
  for (i = 0; i < 3; ++i) {
    check_answer(several[i], 1);
    CHECK(MXPredFree(several[i]) == 0);
  }

  CHECK(MXNDListCreate(params, size, &list, &length) == 0 && length == 1);
  CHECK(MXNDListGet(list, 0, &key, &values, &sizes, &rank) == 0);
  CHECK(strcmp(key, "arg:one") == 0 && rank == 1 && sizes[0] == 1 && values[0] == 1);
  CHECK(MXNDListGet(list, 1, &key, &values, &sizes, &rank) == -1);
  CHECK(MXNDListFree(list) == 0);
  free(symbol);
  free(params);
  printf("every function works\n");
  return 0;
}
