// Calls every function of shoal/shoal.h against the daemon in $SHOAL_DIR, which serves "echo" (builtin:identity) and "sum", whose
// state adds up its inputs. Stops the daemon at the end.
//
//   pool_functions DIRECTORY OTHER      DIRECTORY: of "sum"; OTHER: where no daemon is
#include <poll.h>

#include "tests/c/check.h"

static const int64_t kRow[2] = {1, 4};
static shoal_pool* pool;
static const shoal_client* client;

// ---- Tensors ----

static int deleted;
static void count_deletion(void* data, void* arg) {
  CHECK(data == arg);
  ++deleted;
}

static void check_tensors(void) {
  static float numbers[4] = {1, 2, 3, 4};
  shoal_tensor *tensor = NULL, *shared = NULL;
  shoal_dtype dtype = 0;
  OK(shoal_tensor_wrap(SHOAL_FLOAT32, kRow, 2, numbers, sizeof numbers, count_deletion, numbers, &tensor));
  CHECK(shoal_tensor_data(tensor) == numbers && shoal_tensor_size(tensor) == 16);
  CHECK(shoal_tensor_rank(tensor) == 2 && shoal_tensor_dims(tensor)[1] == 4 && shoal_tensor_element_count(tensor) == 4);
  OK(shoal_tensor_share(tensor, &shared));
  shoal_tensor_free(tensor);
  CHECK(deleted == 0 && shoal_tensor_data(shared) == numbers);
  shoal_tensor_free(shared);
  CHECK(deleted == 1);

  FAILS(shoal_tensor_wrap(SHOAL_FLOAT32, kRow, 2, numbers, 15, count_deletion, numbers, &tensor), SHOAL_INVALID_ARGUMENT,
        "size is 15");
  FAILS(shoal_tensor_wrap(SHOAL_FLOAT32, kRow, 2, (char*)numbers + 1, 16, count_deletion, numbers, &tensor),
        SHOAL_INVALID_ARGUMENT, "not aligned to 4 bytes");
  CHECK(deleted == 1 && tensor == NULL);
  OK(shoal_tensor_create(SHOAL_INT64, NULL, 0, &tensor));
  CHECK(shoal_tensor_dtype(tensor) == SHOAL_INT64);
  CHECK(shoal_tensor_rank(tensor) == 0 && shoal_tensor_size(tensor) == 8 && *(int64_t*)shoal_tensor_data(tensor) == 0);
  shoal_tensor_free(tensor);

  CHECK(shoal_dtype_size(SHOAL_BFLOAT16) == 2 && strcmp(shoal_dtype_name(SHOAL_BOOL), "bool") == 0);
  CHECK(shoal_dtype_size(99) == 0 && strcmp(shoal_dtype_name(-1), "invalid") == 0);
  OK(shoal_dtype_parse("uint8", &dtype));
  CHECK(dtype == SHOAL_UINT8);
  FAILS(shoal_dtype_parse("float33", &dtype), SHOAL_INVALID_ARGUMENT, "float33");
}

// ---- Models, and requests in one call ----

static void check_description(void) {
  shoal_model* model = NULL;
  shoal_model_info* info = NULL;
  shoal_tensor_spec spec = SHOAL_TENSOR_SPEC_INIT;
  shoal_state_pair pair = SHOAL_STATE_PAIR_INIT;
  shoal_preprocess preprocess = SHOAL_PREPROCESS_INIT;
  OK(shoal_client_model(client, "sum", 0, &model));
  CHECK(strcmp(shoal_model_name(model), "sum") == 0 && shoal_model_version(model) == 0);
  OK(shoal_model_describe(model, &info));
  CHECK(strcmp(shoal_model_info_name(info), "sum") == 0 && shoal_model_info_version(info) == 1);
  CHECK(strcmp(shoal_model_info_precision(info), "f32") == 0);
  CHECK(shoal_model_info_input_count(info) == 2 && shoal_model_info_output_count(info) == 2);
  CHECK(shoal_model_info_label_count(info) == 2 && strcmp(shoal_model_info_label(info, 1), "large") == 0);
  CHECK(strcmp(shoal_model_info_label(info, 2), "") == 0);
  OK(shoal_model_info_input(info, 0, &spec));
  CHECK(strcmp(spec.name, "data") == 0 && spec.dtype == SHOAL_FLOAT32 && spec.rank == 2 && strcmp(spec.layout, "NC") == 0);
  CHECK(spec.dims[0] == -1 && spec.lowest[0] == 1 && spec.highest[0] == 8);
  CHECK(spec.dims[1] == 4 && spec.lowest[1] == 4 && spec.highest[1] == 4);
  OK(shoal_model_info_output(info, 0, &spec));
  CHECK(strcmp(spec.name, "total_output") == 0);
  CHECK(shoal_model_info_state_count(info) == 1);
  OK(shoal_model_info_state(info, 0, &pair));
  CHECK(strcmp(pair.output, "next_output") == 0 && strcmp(pair.input, "so_far") == 0);
  OK(shoal_model_info_preprocess(info, &preprocess));
  CHECK(preprocess.resize == 8 && preprocess.crop_height == 4 && preprocess.crop_width == 4);
  CHECK(strcmp(preprocess.order, "BGR") == 0 && preprocess.channel_count == 3 && preprocess.mean[2] == 3 &&
        preprocess.scale[0] == 0.5F);
  CHECK(preprocess.letterbox == 0);
  FAILS(shoal_model_info_input(info, 2, &spec), SHOAL_INVALID_ARGUMENT, "has no input 2: it has 2");

  const shoal_data_desc data = {"data", SHOAL_FLOAT32, 2, {-1, 4}, "NC"},
                        total = {.name = "total_output", .rank = 2, .dims = {-1, 4}};
  const shoal_data_desc wide = {.name = "data", .rank = 2, .dims = {1, 5}}, turned = {"data", 0, 2, {4, 4}, "CN"};
  OK(shoal_model_info_expect(info, &data, 1, &total, 1));
  OK(shoal_model_info_expect(info, NULL, 0, NULL, 0));
  FAILS(shoal_model_info_expect(info, &wide, 1, NULL, 0), SHOAL_INVALID_ARGUMENT, "model 'sum': input 'data'");
  FAILS(shoal_model_info_expect(info, &turned, 1, NULL, 0), SHOAL_INVALID_ARGUMENT, "CN");
  FAILS(shoal_model_info_expect(info, NULL, 0, &data, 1), SHOAL_INVALID_ARGUMENT, "no output 'data'");
  shoal_model_info_free(info);
  shoal_model_free(model);

  OK(shoal_client_describe(client, "echo", 0, &info));
  OK(shoal_model_info_input(info, 0, &spec));
  CHECK(spec.rank == -1);
  FAILS(shoal_model_info_preprocess(info, &preprocess), SHOAL_NOT_FOUND, "echo");
  shoal_model_info_free(info);
  FAILS(shoal_client_model(client, "none", 0, &model), SHOAL_NOT_FOUND, "none");
  FAILS(shoal_client_describe(client, "echo", 7, &info), SHOAL_NOT_FOUND, "7");
}

static void check_predict(void) {
  shoal_tensor *own = counting(1, 4), *loan = NULL;
  shoal_outputs* outputs = NULL;
  shoal_model* model = NULL;
  shoal_prediction* prediction = NULL;
  shoal_submit_options options = SHOAL_SUBMIT_OPTIONS_INIT;
  shoal_named_tensor input = {"data", own};
  options.timeout_ns = INT64_C(10000000000);
  OK(shoal_client_predict(client, "echo", &input, 1, &options, &outputs));
  CHECK(shoal_outputs_count(outputs) == 1 && strcmp(shoal_outputs_name(outputs, 0), "data_output") == 0);
  CHECK(number_at(shoal_outputs_tensor(outputs, 0), 3) == 4 && shoal_outputs_find(outputs, "data_output") != NULL);
  CHECK(shoal_outputs_find(outputs, "none") == NULL && shoal_outputs_tensor(outputs, 1) == NULL);
  shoal_outputs_free(outputs);

  OK(shoal_client_loan(client, SHOAL_FLOAT32, kRow, 2, &loan));
  ((float*)shoal_tensor_data(loan))[0] = 9;
  OK(shoal_client_model(client, "echo", 0, &model));
  input = (shoal_named_tensor){NULL, loan};  // by its place
  OK(shoal_model_predict(model, &input, 1, NULL, &outputs));
  CHECK(number_at(shoal_outputs_tensor(outputs, 0), 0) == 9);
  shoal_outputs_free(outputs);
  FAILS(shoal_client_predict(client, "echo", &input, 1, NULL, &outputs), SHOAL_INVALID_ARGUMENT, "inputs[0].name is NULL");
  FAILS(shoal_model_predict(model, NULL, 0, NULL, &outputs), SHOAL_INVALID_ARGUMENT, "data");
  options.priority = 200;
  FAILS(shoal_model_predict(model, &input, 1, &options, &outputs), SHOAL_INVALID_ARGUMENT, "priority 200");
  options.priority = 0, options.version = 7;
  FAILS(shoal_model_predict(model, &input, 1, &options, &outputs), SHOAL_NOT_FOUND, "7");
  options.struct_size = 3;
  FAILS(shoal_model_predict(model, &input, 1, &options, &outputs), SHOAL_INVALID_ARGUMENT, "SHOAL_SUBMIT_OPTIONS_INIT");
  CHECK(outputs == NULL);

  OK(shoal_model_submit(model, &input, 1, NULL, &prediction));
  CHECK(shoal_prediction_wait(prediction, SHOAL_FOREVER) && shoal_prediction_ready(prediction));
  const shoal_outcome* outcome = shoal_prediction_outcome(prediction);
  CHECK(shoal_outcome_code(outcome) == SHOAL_OK && strcmp(shoal_outcome_message(outcome), "") == 0);
  CHECK(shoal_outcome_status(outcome) == NULL && number_at(shoal_outputs_tensor(shoal_outcome_outputs(outcome), 0), 0) == 9);
  CHECK(shoal_outcome_ran(outcome) == SHOAL_RAN_YES && shoal_outcome_attempts(outcome) == 1);
  CHECK(shoal_outcome_batch(outcome) == 1 && shoal_outcome_model_version(outcome) == 1);
  CHECK(shoal_outcome_queue_time_ns(outcome) >= 0 && shoal_outcome_compute_time_ns(outcome) >= 0);
  CHECK(shoal_outcome_retry_after_ns(outcome) == 0);
  shoal_prediction_free(prediction);

  OK(shoal_client_submit(client, "none", &(shoal_named_tensor){"data", own}, 1, NULL, &prediction));
  outcome = shoal_prediction_outcome(prediction);
  CHECK(shoal_outcome_code(outcome) == SHOAL_NOT_FOUND && shoal_outcome_outputs(outcome) == NULL);
  FAILS(shoal_outcome_status(outcome), SHOAL_NOT_FOUND, shoal_outcome_message(outcome));
  shoal_prediction_cancel(prediction);
  shoal_prediction_free(prediction);
  shoal_tensor_free(loan);
  shoal_tensor_free(own);
  shoal_model_free(model);
}

// ---- Requests that are used again, queues, callbacks ----

static void check_queue(void) {
  enum { kRequests = 100 };
  shoal_queue* queue = NULL;
  shoal_model* model = NULL;
  shoal_request* requests[kRequests];
  shoal_completion done[16];
  shoal_tensor *input = NULL, *output = NULL;
  size_t count = 0;
  int fd = -1, seen = 0;
  OK(shoal_client_model(client, "echo", 0, &model));
  OK(shoal_queue_create(client, &queue));
  for (uint64_t i = 0; i < kRequests; ++i) {
    OK(shoal_request_create(model, &requests[i]));
    OK(shoal_client_loan(client, SHOAL_FLOAT32, kRow, 2, &input));
    ((float*)shoal_tensor_data(input))[0] = (float)i;
    OK(i % 2 == 0 ? shoal_request_set_input(requests[i], "data", input) : shoal_request_set_input_at(requests[i], 0, input));
    shoal_tensor_free(input);
    OK(shoal_request_set_timeout(requests[i], INT64_C(30000000000)));
    OK(shoal_request_set_priority(requests[i], -1));
    OK(shoal_request_set_flow(requests[i], 0));
    OK(shoal_request_set_version(requests[i], 1));
    OK(shoal_request_set_id(requests[i], 1000 + i));
  }
  for (int round = 0; round < 3; ++round) {  // by next(), by the descriptor, by poll()
    if (round == 1) OK(shoal_queue_fd(queue, &fd));
    for (uint64_t i = 0; i < kRequests; ++i) OK(shoal_queue_submit(queue, requests[i], i));
    CHECK(shoal_queue_under_way(queue) == kRequests);
    for (seen = 0; seen < kRequests; seen += (int)count) {
      if (round == 0) {
        OK(shoal_queue_next(queue, done, 16, shoal_now_ns() + INT64_C(30000000000), &count));
      } else {
        struct pollfd readable = {fd, POLLIN, 0};
        CHECK(round == 2 || poll(&readable, 1, 30000) == 1);
        OK(shoal_queue_poll(queue, done, 16, &count));
      }
      for (size_t k = 0; k < count; ++k) {
        CHECK(done[k].request == requests[done[k].tag] && shoal_request_id(done[k].request) == 1000 + done[k].tag);
        const shoal_outputs* outputs = shoal_outcome_outputs(shoal_request_outcome(done[k].request));
        CHECK(number_at(shoal_outputs_tensor(outputs, 0), 0) == (float)done[k].tag);
      }
    }
    CHECK(seen == kRequests);
  }
  OK(shoal_queue_next(queue, done, 16, SHOAL_FOREVER, &count));  // nothing is under way
  CHECK(count == 0);
  FAILS(shoal_queue_next(queue, done, 0, 0, &count), SHOAL_INVALID_ARGUMENT, "capacity");

  OK(shoal_client_loan_output(client, SHOAL_FLOAT32, kRow, 2, &output));
  OK(shoal_request_set_output(requests[7], "data_output", output));
  OK(shoal_queue_submit(queue, requests[7], 7));
  OK(shoal_queue_next(queue, done, 1, SHOAL_FOREVER, &count));
  CHECK(count == 1 && number_at(output, 0) == 7);
  CHECK(!shoal_request_is_under_way(requests[7]));
  FAILS(shoal_request_set_output(requests[7], "none", output), SHOAL_NOT_FOUND, "data_output");
  FAILS(shoal_request_set_input(requests[7], "none", output), SHOAL_NOT_FOUND, "data");
  FAILS(shoal_request_set_input_at(requests[7], 1, output), SHOAL_NOT_FOUND, "no input 1");
  FAILS(shoal_request_set_priority(requests[7], 128), SHOAL_INVALID_ARGUMENT, "128");
  shoal_tensor_free(output);

  OK(shoal_queue_submit(queue, requests[0], 1));
  OK(shoal_queue_submit(queue, requests[1], 2));
  shoal_request_cancel(requests[0]);
  shoal_request_free(requests[1]);  // under way: its completion has no request
  for (seen = 0; seen < 2; seen += (int)count) {
    OK(shoal_queue_next(queue, done, 1, SHOAL_FOREVER, &count));
    CHECK(done[0].request == (done[0].tag == 1 ? requests[0] : NULL));
  }
  OK(shoal_queue_submit(queue, requests[0], 1));
  shoal_queue_free(queue);  // cancels it
  const shoal_code code = shoal_outcome_code(shoal_request_outcome(requests[0]));
  CHECK(code == SHOAL_CANCELLED || code == SHOAL_OK);
  for (uint64_t i = 0; i < kRequests; ++i)
    if (i != 1) shoal_request_free(requests[i]);
  shoal_model_free(model);
}

static void keep_first_number(const shoal_outcome* outcome, void* arg) {
  *(float*)arg = number_at(shoal_outputs_tensor(shoal_outcome_outputs(outcome), 0), 0);
}

static void keep_task(shoal_task* task, void* arg) { *(shoal_task**)arg = task; }

static void check_callbacks(void) {
  shoal_tensor* tensor = counting(5, 4);
  shoal_prediction* prediction = NULL;
  volatile float first = 0;
  shoal_client_poll_once(client);  // from now on, callbacks run there
  OK(shoal_client_submit(client, "echo", &(shoal_named_tensor){"data", tensor}, 1, NULL, &prediction));
  OK(shoal_prediction_then(prediction, keep_first_number, (void*)&first));
  shoal_prediction_free(prediction);  // the request goes on
  for (const int64_t end = shoal_now_ns() + INT64_C(30000000000); first == 0 && shoal_now_ns() < end;)
    shoal_client_poll_once(client);
  CHECK(first == 5);

  first = 0;
  shoal_task* task = NULL;
  OK(shoal_client_submit(client, "echo", &(shoal_named_tensor){"data", tensor}, 1, NULL, &prediction));
  OK(shoal_prediction_then_on(prediction, keep_task, &task, keep_first_number, (void*)&first));
  shoal_prediction_free(prediction);
  for (const int64_t end = shoal_now_ns() + INT64_C(30000000000); !task && shoal_now_ns() < end;) shoal_client_poll_once(client);
  CHECK(task != NULL && first == 0);
  shoal_task_run(task);
  CHECK(first == 5);
  shoal_tensor_free(tensor);
}

// ---- Sessions ----

static void check_sessions(void) {
  shoal_session* session = NULL;
  shoal_outputs* outputs = NULL;
  shoal_prediction* prediction = NULL;
  shoal_tensor* tensor = counting(1, 4);
  const shoal_named_tensor input = {"data", tensor};
  OK(shoal_pool_open_session(pool, "sum", &session));
  for (int step = 1; step <= 3; ++step) {
    OK(shoal_session_predict(session, &input, 1, NULL, &outputs));
    CHECK(number_at(shoal_outputs_find(outputs, "total_output"), 1) == 2.0F * (float)step);
    shoal_outputs_free(outputs);
  }
  OK(shoal_session_submit(session, &input, 1, NULL, &prediction));
  const shoal_outcome* outcome = shoal_prediction_outcome(prediction);
  CHECK(number_at(shoal_outputs_find(shoal_outcome_outputs(outcome), "total_output"), 1) == 8);
  shoal_prediction_free(prediction);
  OK(shoal_session_reset(session));
  OK(shoal_session_predict(session, &input, 1, NULL, &outputs));
  CHECK(number_at(shoal_outputs_find(outputs, "total_output"), 1) == 2);
  shoal_outputs_free(outputs);
  FAILS(shoal_session_predict(session, NULL, 0, NULL, &outputs), SHOAL_INVALID_ARGUMENT, "'so_far'");
  shoal_session_close(session);
  shoal_tensor_free(tensor);
}

// ---- What the daemon serves ----

static void check_control(const char* directory) {
  shoal_names* names = NULL;
  shoal_change* change = NULL;
  shoal_usage usage = SHOAL_USAGE_INIT;
  char* json = NULL;
  OK(shoal_pool_list(pool, &names));
  CHECK(shoal_names_count(names) == 2 && strcmp(shoal_names_at(names, 0), "echo") == 0 &&
        strcmp(shoal_names_at(names, 2), "") == 0);
  shoal_names_free(names);
  OK(shoal_pool_stats(pool, &json));
  CHECK(strstr(json, "\"echo\"") != NULL);
  shoal_string_free(json);
  OK(shoal_pool_crashes(pool, NULL, &json));
  CHECK(json[0] == '{' || json[0] == '[');
  shoal_string_free(json);
  OK(shoal_pool_usage(pool, &usage));
  CHECK(usage.inputs.reserved_bytes > 0 && usage.outputs.allocated_bytes > 0);

  OK(shoal_pool_load(pool, "more", directory, &change));
  CHECK(strcmp(shoal_change_outcome(change), "loaded") == 0 && shoal_change_version(change) == 1);
  CHECK(shoal_change_version_count(change) == 1 && shoal_change_version_at(change, 0) == 1 &&
        shoal_change_version_at(change, 1) == 0);
  CHECK(shoal_change_workers(change) == 1 && shoal_change_took_ns(change) >= 0);
  shoal_change_free(change);
  OK(shoal_pool_scale(pool, "more", 2, &change));
  CHECK(strcmp(shoal_change_outcome(change), "scaled") == 0 && shoal_change_workers(change) == 2);
  shoal_change_free(change);
  OK(shoal_pool_reload(pool, "more", NULL, false, &change));
  CHECK(strcmp(shoal_change_outcome(change), "unchanged") == 0);
  shoal_change_free(change);
  OK(shoal_pool_reload(pool, "more", NULL, true, NULL));  // whoever does not want to know
  OK(shoal_pool_drain(pool, "more", &change));
  CHECK(strcmp(shoal_change_outcome(change), "drained") == 0);
  shoal_change_free(change);
  OK(shoal_pool_unload(pool, "more", &change));
  CHECK(strcmp(shoal_change_outcome(change), "unloaded") == 0);
  shoal_change_free(change);
  FAILS(shoal_pool_unload(pool, "more", &change), SHOAL_NOT_FOUND, "more");
  FAILS(shoal_pool_scale(pool, "echo", INT64_C(1) << 40, &change), SHOAL_INVALID_ARGUMENT, "workers");
  CHECK(change == NULL);
}

// ---- Pools ----

static void check_pools(const char* nowhere) {
  shoal_pool_options options = SHOAL_POOL_OPTIONS_INIT;
  shoal_pool* other = NULL;
  shoal_session* session = NULL;
  options.directory = nowhere;
  options.connect_timeout_ns = 1000000;
  FAILS(shoal_pool_connect(&options, &other), SHOAL_UNAVAILABLE, nowhere);
  CHECK(other == NULL && shoal_pool_client(NULL) == NULL);
  options.struct_size = 1;
  FAILS(shoal_pool_connect(&options, &other), SHOAL_INVALID_ARGUMENT, "SHOAL_POOL_OPTIONS_INIT");
  options = (shoal_pool_options)SHOAL_POOL_OPTIONS_INIT;
  options.no_arenas = 1;
  OK(shoal_pool_connect(&options, &other));
  FAILS(shoal_pool_open_session(other, "sum", &session), SHOAL_FAILED_PRECONDITION, "arenas");
  shoal_pool_close(other);

  // Handles outlive their pool.
  shoal_model* model = NULL;
  shoal_request* request = NULL;
  shoal_queue* queue = NULL;
  shoal_outputs* outputs = NULL;
  shoal_tensor* tensor = counting(1, 4);
  const shoal_named_tensor input = {"data", tensor};
  options = (shoal_pool_options)SHOAL_POOL_OPTIONS_INIT;
  options.arena_limit_bytes = 1 << 20;
  options.session_limit = 1;
  options.session_idle_ns = -1;
  OK(shoal_pool_connect(&options, &other));
  OK(shoal_pool_open_session(other, "sum", &session));
  OK(shoal_client_model(shoal_pool_client(other), "echo", 0, &model));
  OK(shoal_request_create(model, &request));
  OK(shoal_request_set_input_at(request, 0, tensor));
  OK(shoal_queue_create(shoal_pool_client(other), &queue));
  OK(shoal_model_predict(model, &input, 1, NULL, &outputs));
  shoal_pool_close(other);
  CHECK(number_at(shoal_outputs_tensor(outputs, 0), 0) == 1);  // a view of shared memory
  shoal_outputs_free(outputs);
  FAILS(shoal_model_predict(model, &input, 1, NULL, &outputs), SHOAL_CANCELLED, "");
  shoal_completion done;
  size_t count = 0;
  OK(shoal_queue_submit(queue, request, 1));  // what is submitted comes back
  OK(shoal_queue_next(queue, &done, 1, SHOAL_FOREVER, &count));
  CHECK(count == 1 && shoal_outcome_code(shoal_request_outcome(done.request)) == SHOAL_CANCELLED);
  FAILS(shoal_session_predict(session, &input, 1, NULL, &outputs), SHOAL_CANCELLED, "");
  shoal_queue_free(queue);
  shoal_request_free(request);
  shoal_model_free(model);
  shoal_session_close(session);
  shoal_tensor_free(tensor);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  OK(shoal_pool_connect(NULL, &pool));
  client = shoal_pool_client(pool);
  check_tensors();
  check_description();
  check_predict();
  check_queue();
  check_sessions();
  check_control(argv[1]);
  check_pools(argv[2]);
  check_callbacks();
  OK(shoal_pool_stop(pool));
  shoal_pool_close(pool);
  printf("every function works\n");
  return 0;
}
