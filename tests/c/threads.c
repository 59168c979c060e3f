// 20 threads x 32 requests, each with an input of its own, and no answer is another one's: through one program in this process,
// then through the pool in $SHOAL_DIR, whose model "echo" is builtin:identity, with one queue for all threads.
//
//   threads SYMBOL PARAMS      of a network with the input data (n, 4) and the output data * 2
#include <threads.h>

#include "shoal/shoal_engine.h"
#include "tests/c/check.h"

enum { kThreads = 20, kRequests = 32, kNumbers = 4 };

static shoal_program* program;
static shoal_model* echo;
static shoal_queue* queue;
static int answers[kThreads * kRequests];

static char* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  char* bytes = calloc(1 << 16, 1);
  CHECK(file != NULL && bytes != NULL);
  *size = fread(bytes, 1, (1 << 16) - 1, file);
  fclose(file);
  return bytes;
}

static int invoke_many(void* arg) {
  const int thread = (int)(intptr_t)arg;
  for (int request = 0; request < kRequests; ++request) {
    const float first = (float)(1000 * thread + 10 * request);
    shoal_tensor *input = counting(first, kNumbers), *output = NULL;
    OK(shoal_program_invoke(program, &input, 1, &output, 1));
    for (int i = 0; i < kNumbers; ++i) CHECK(number_at(output, i) == 2 * (first + (float)i));
    shoal_tensor_free(input);
    shoal_tensor_free(output);
  }
  return 0;
}

/// Submits its requests, and takes as many from the queue, of whichever thread they are.
static int submit_many(void* arg) {
  const int thread = (int)(intptr_t)arg;
  for (int request = 0; request < kRequests; ++request) {
    const int tag = thread * kRequests + request;
    shoal_tensor* input = counting((float)tag, kNumbers);
    shoal_request* made = NULL;
    OK(shoal_request_create(echo, &made));
    OK(shoal_request_set_input_at(made, 0, input));
    shoal_tensor_free(input);
    OK(shoal_queue_submit(queue, made, (uint64_t)tag));
  }
  shoal_completion done;
  size_t count = 0;
  for (int taken = 0; taken < kRequests; taken += (int)count) {
    OK(shoal_queue_next(queue, &done, 1, SHOAL_FOREVER, &count));
    if (count == 0) continue;  // others are about to submit
    const shoal_outputs* outputs = shoal_outcome_outputs(shoal_request_outcome(done.request));
    for (int i = 0; i < kNumbers; ++i) CHECK(number_at(shoal_outputs_tensor(outputs, 0), i) == (float)(done.tag + (uint64_t)i));
    ++answers[done.tag];
    shoal_request_free(done.request);
  }
  return 0;
}

static void run_all(int (*work)(void*)) {
  thrd_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK(thrd_create(&threads[i], work, (void*)(intptr_t)i) == thrd_success);
  for (int i = 0; i < kThreads; ++i) thrd_join(threads[i], NULL);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const char *keys[] = {"data_indices", "static_alloc", "static_shape"}, *values[] = {"[0]", "true", "true"};
  const shoal_data_desc data = {"data", SHOAL_FLOAT32, 2, {1, kNumbers}, NULL};
  shoal_program_options options = SHOAL_PROGRAM_OPTIONS_INIT;
  size_t symbol_size = 0, params_size = 0;
  char *symbol = read_file(argv[1], &symbol_size), *params = read_file(argv[2], &params_size);
  options.keys = keys, options.values = values, options.flag_count = 3;
  options.inputs = &data, options.input_count = 1;
  OK(shoal_program_create(symbol, params, params_size, &options, &program));
  free(symbol), free(params);
  run_all(invoke_many);
  shoal_program_free(program);

  shoal_pool* pool = NULL;
  OK(shoal_pool_connect(NULL, &pool));
  OK(shoal_client_model(shoal_pool_client(pool), "echo", 0, &echo));
  OK(shoal_queue_create(shoal_pool_client(pool), &queue));
  run_all(submit_many);
  for (int i = 0; i < kThreads * kRequests; ++i) CHECK(answers[i] == 1);
  shoal_queue_free(queue);
  shoal_model_free(echo);
  shoal_pool_close(pool);
  printf("%d answers\n", 2 * kThreads * kRequests);
  return 0;
}
