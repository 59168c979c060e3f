/* A program of release 0.3. It is not changed when the interface grows. The daemon of $SHOAL_DIR has the model "echo". */
#include <stdio.h>
#include <string.h>

#include "shoal/shoal.h"
#include "shoal/shoal_engine.h"

static int failed(shoal_status* status, const char* what) {
  if (!status) return 0;
  printf("wrong: %s: %s\n", what, shoal_status_message(status));
  shoal_status_free(status);
  return 1;
}

static int use_client(const shoal_client* client, const char* model) {
  shoal_tensor* x = NULL;
  shoal_outputs* y = NULL;
  shoal_submit_options options = SHOAL_SUBMIT_OPTIONS_INIT;
  options.timeout_ns = 10000000000;
  if (failed(shoal_client_loan(client, SHOAL_FLOAT32, (int64_t[]){1, 4}, 2, &x), "loan")) return 1;
  ((float*)shoal_tensor_data(x))[3] = 42;
  int wrong = failed(shoal_client_predict(client, model, &(shoal_named_tensor){"data", x}, 1, &options, &y), "predict");
  if (!wrong && ((float*)shoal_tensor_data(shoal_outputs_tensor(y, 0)))[3] != 42) wrong = 1;
  shoal_outputs_free(y);
  shoal_tensor_free(x);
  return wrong;
}

int main(void) {
  shoal_pool* pool = NULL;
  shoal_engine* engine = NULL;
  shoal_engine_options options = SHOAL_ENGINE_OPTIONS_INIT;
  options.threads = 1;
  if (failed(shoal_pool_connect(NULL, &pool), "connect") || failed(shoal_engine_load("builtin:identity", &options, &engine), "load"))
    return 1;
  const int wrong =
      use_client(shoal_pool_client(pool), "echo") || use_client(shoal_engine_client(engine), "builtin:identity");
  shoal_engine_close(engine);
  shoal_pool_close(pool);
  puts(wrong ? "wrong" : "right");
  return wrong;
}
