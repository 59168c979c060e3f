// The smallest C program: one request to the model "echo" of the local daemon.
//   SHOAL_DIR=/tmp/shoal shoald --model echo=builtin:identity &   SHOAL_DIR=/tmp/shoal example_hello_c
#include <stdio.h>

#include "shoal/shoal.h"

int main(void) {
  shoal_pool* pool = NULL;
  shoal_tensor* x = NULL;
  shoal_outputs* y = NULL;
  shoal_status* failed = shoal_pool_connect(NULL, &pool);
  const shoal_client* client = shoal_pool_client(pool);
  if (!failed) failed = shoal_client_loan(client, SHOAL_FLOAT32, (int64_t[]){1, 4}, 2, &x);  // in shared memory: no copy
  if (!failed) {
    ((float*)shoal_tensor_data(x))[0] = 42;
    failed = shoal_client_predict(client, "echo", &(shoal_named_tensor){"data", x}, 1, NULL, &y);
  }
  if (failed) {
    fprintf(stderr, "%s: %s\n", shoal_code_name(shoal_status_code(failed)), shoal_status_message(failed));
  } else {
    printf("%s: %g\n", shoal_outputs_name(y, 0), ((float*)shoal_tensor_data(shoal_outputs_tensor(y, 0)))[0]);
  }
  const int exit_code = failed ? 1 : 0;
  shoal_status_free(failed);
  shoal_outputs_free(y);
  shoal_tensor_free(x);
  shoal_pool_close(pool);
  return exit_code;
}
