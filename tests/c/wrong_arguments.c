// Calls every function of both headers with NULL for every pointer that must not be NULL. A failure names the function and the
// argument, and what it would have given is NULL. Wants a daemon in $SHOAL_DIR, which serves "echo" (builtin:identity).
#include "shoal/shoal_engine.h"
#include "tests/c/check.h"

static shoal_pool* pool;
static shoal_engine* engine;
static const shoal_client* client;
static shoal_model* model;
static shoal_model_info* info;
static shoal_tensor* tensor;

static void check_shared_functions(void) {
  shoal_dtype dtype = 7;
  shoal_tensor* none = tensor;
  const int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[1] = {-1}, huge[2] = {INT64_MAX, INT64_MAX};
  shoal_tensor_spec spec = SHOAL_TENSOR_SPEC_INIT;
  shoal_state_pair pair = SHOAL_STATE_PAIR_INIT;
  shoal_preprocess preprocess = SHOAL_PREPROCESS_INIT;
  NEEDS("shoal_dtype_parse: name", shoal_dtype_parse(NULL, &dtype));
  CHECK(dtype == 0);
  NEEDS("shoal_dtype_parse: dtype", shoal_dtype_parse("float32", NULL));
  NEEDS("shoal_tensor_create: tensor", shoal_tensor_create(SHOAL_FLOAT32, dims, 1, NULL));
  NEEDS("dims", shoal_tensor_create(SHOAL_FLOAT32, NULL, 1, &none));
  CHECK(none == NULL);
  NEEDS("rank is 9", shoal_tensor_create(SHOAL_FLOAT32, dims, 9, &none));
  NEEDS("rank is", shoal_tensor_create(SHOAL_FLOAT32, dims, SIZE_MAX, &none));
  NEEDS("dtype", shoal_tensor_create(0, dims, 1, &none));
  NEEDS("dtype", shoal_tensor_create(-7, dims, 1, &none));
  NEEDS("shape", shoal_tensor_create(SHOAL_FLOAT32, negative, 1, &none));
  NEEDS("shape", shoal_tensor_create(SHOAL_FLOAT32, huge, 2, &none));
  NEEDS("shoal_tensor_wrap: tensor", shoal_tensor_wrap(SHOAL_FLOAT32, dims, 1, &spec, 4, NULL, NULL, NULL));
  NEEDS("data is NULL", shoal_tensor_wrap(SHOAL_FLOAT32, dims, 1, NULL, 4, NULL, NULL, &none));
  NEEDS("dtype", shoal_tensor_wrap(99, dims, 1, &spec, 4, NULL, NULL, &none));
  NEEDS("shape", shoal_tensor_wrap(SHOAL_FLOAT32, negative, 1, &spec, 4, NULL, NULL, &none));
  NEEDS("shape", shoal_tensor_wrap(SHOAL_FLOAT32, huge, 1, &spec, 4, NULL, NULL, &none));
  NEEDS("shoal_tensor_share: tensor", shoal_tensor_share(NULL, &none));
  NEEDS("shoal_tensor_share: shared", shoal_tensor_share(tensor, NULL));

  NEEDS("shoal_model_info_input: info", shoal_model_info_input(NULL, 0, &spec));
  NEEDS("shoal_model_info_input: spec", shoal_model_info_input(info, 0, NULL));
  NEEDS("no input", shoal_model_info_input(info, SIZE_MAX, &spec));
  NEEDS("shoal_model_info_output: info", shoal_model_info_output(NULL, 0, &spec));
  NEEDS("shoal_model_info_output: spec", shoal_model_info_output(info, 0, NULL));
  NEEDS("shoal_model_info_expect: info", shoal_model_info_expect(NULL, NULL, 0, NULL, 0));
  NEEDS("inputs is NULL", shoal_model_info_expect(info, NULL, 1, NULL, 0));
  NEEDS("outputs is NULL", shoal_model_info_expect(info, NULL, 0, NULL, 1));
  NEEDS("shoal_model_info_state: info", shoal_model_info_state(NULL, 0, &pair));
  NEEDS("shoal_model_info_state: pair", shoal_model_info_state(info, 0, NULL));
  NEEDS("no state 0", shoal_model_info_state(info, 0, &pair));
  NEEDS("shoal_model_info_preprocess: info", shoal_model_info_preprocess(NULL, &preprocess));
  NEEDS("shoal_model_info_preprocess: preprocess", shoal_model_info_preprocess(info, NULL));
  spec.struct_size = 0;
  NEEDS("SHOAL_TENSOR_SPEC_INIT", shoal_model_info_input(info, 0, &spec));
  spec.struct_size = SIZE_MAX;
  NEEDS("SHOAL_TENSOR_SPEC_INIT", shoal_model_info_input(info, 0, &spec));

  // A newer program's struct is longer: what this library does not know must not be set.
  struct {
    shoal_submit_options known;
    uint64_t unknown;
  } newer = {SHOAL_SUBMIT_OPTIONS_INIT, 0};
  struct {
    shoal_tensor_spec known;
    uint64_t unknown;
  } longer = {SHOAL_TENSOR_SPEC_INIT, 7};
  shoal_prediction* prediction = NULL;
  newer.known.struct_size = sizeof newer;
  OK(shoal_model_submit(model, NULL, 0, &newer.known, &prediction));
  shoal_prediction_free(prediction);
  newer.unknown = 1;
  NEEDS("older than the program", shoal_model_submit(model, NULL, 0, &newer.known, &prediction));
  longer.known.struct_size = sizeof longer;
  OK(shoal_model_info_input(info, 0, &longer.known));
  CHECK(longer.unknown == 0 && longer.known.struct_size == sizeof longer);
}

static void ignore(const shoal_outcome* outcome, void* arg) { CHECK(outcome != NULL && arg == NULL); }
static void run_at_once(shoal_task* task, void* arg) { shoal_task_run(arg ? NULL : task); }

static void check_client(void) {
  shoal_model* no_model = model;
  shoal_model_info* no_info = info;
  shoal_tensor* no_tensor = tensor;
  shoal_outputs* outputs = NULL;
  shoal_prediction* prediction = NULL;
  const shoal_named_tensor input = {"data", tensor}, empty = {"data", NULL};
  NEEDS("shoal_client_model: client", shoal_client_model(NULL, "echo", 0, &no_model));
  CHECK(no_model == NULL);
  NEEDS("shoal_client_model: name", shoal_client_model(client, NULL, 0, &no_model));
  NEEDS("shoal_client_model: model", shoal_client_model(client, "echo", 0, NULL));
  NEEDS("shoal_client_describe: client", shoal_client_describe(NULL, "echo", 0, &no_info));
  NEEDS("shoal_client_describe: name", shoal_client_describe(client, NULL, 0, &no_info));
  NEEDS("shoal_client_describe: info", shoal_client_describe(client, "echo", 0, NULL));
  NEEDS("shoal_model_describe: model", shoal_model_describe(NULL, &no_info));
  NEEDS("shoal_model_describe: info", shoal_model_describe(model, NULL));
  CHECK(no_info == NULL);
  NEEDS("shoal_client_loan: client", shoal_client_loan(NULL, SHOAL_FLOAT32, NULL, 0, &no_tensor));
  NEEDS("shoal_client_loan: tensor", shoal_client_loan(client, SHOAL_FLOAT32, NULL, 0, NULL));
  NEEDS("dims", shoal_client_loan(client, SHOAL_FLOAT32, NULL, 1, &no_tensor));
  NEEDS("dtype", shoal_client_loan(client, 14, NULL, 0, &no_tensor));
  NEEDS("shoal_client_loan_output: client", shoal_client_loan_output(NULL, SHOAL_FLOAT32, NULL, 0, &no_tensor));
  NEEDS("shoal_client_loan_output: tensor", shoal_client_loan_output(client, SHOAL_FLOAT32, NULL, 0, NULL));
  NEEDS("dims", shoal_client_loan_output(client, SHOAL_FLOAT32, NULL, 1, &no_tensor));
  CHECK(no_tensor == NULL);
  shoal_client_poll_once(NULL);

  NEEDS("shoal_model_predict: model", shoal_model_predict(NULL, &input, 1, NULL, &outputs));
  NEEDS("shoal_model_predict: outputs", shoal_model_predict(model, &input, 1, NULL, NULL));
  NEEDS("inputs is NULL", shoal_model_predict(model, NULL, 1, NULL, &outputs));
  NEEDS("inputs[0].tensor is NULL", shoal_model_predict(model, &empty, 1, NULL, &outputs));
  NEEDS("at most 65536", shoal_model_predict(model, &input, SIZE_MAX, NULL, &outputs));
  NEEDS("shoal_client_predict: client", shoal_client_predict(NULL, "echo", &input, 1, NULL, &outputs));
  NEEDS("shoal_client_predict: model", shoal_client_predict(client, NULL, &input, 1, NULL, &outputs));
  NEEDS("shoal_client_predict: outputs", shoal_client_predict(client, "echo", &input, 1, NULL, NULL));
  NEEDS("inputs is NULL", shoal_client_predict(client, "echo", NULL, 1, NULL, &outputs));
  NEEDS("shoal_model_submit: model", shoal_model_submit(NULL, &input, 1, NULL, &prediction));
  NEEDS("shoal_model_submit: prediction", shoal_model_submit(model, &input, 1, NULL, NULL));
  NEEDS("inputs is NULL", shoal_model_submit(model, NULL, 1, NULL, &prediction));
  NEEDS("shoal_client_submit: client", shoal_client_submit(NULL, "echo", &input, 1, NULL, &prediction));
  NEEDS("shoal_client_submit: model", shoal_client_submit(client, NULL, &input, 1, NULL, &prediction));
  NEEDS("shoal_client_submit: prediction", shoal_client_submit(client, "echo", &input, 1, NULL, NULL));
  NEEDS("inputs[0].tensor is NULL", shoal_client_submit(client, "echo", &empty, 1, NULL, &prediction));
  CHECK(outputs == NULL && prediction == NULL);

  OK(shoal_model_submit(model, &input, 1, NULL, &prediction));
  NEEDS("shoal_prediction_then: callback", shoal_prediction_then(prediction, NULL, NULL));
  NEEDS("shoal_prediction_then_on: executor", shoal_prediction_then_on(prediction, NULL, NULL, ignore, NULL));
  NEEDS("shoal_prediction_then_on: callback", shoal_prediction_then_on(prediction, run_at_once, NULL, NULL, NULL));
  NEEDS("shoal_prediction_then_on: prediction", shoal_prediction_then_on(NULL, run_at_once, NULL, ignore, NULL));
  shoal_task_run(NULL);
  shoal_prediction_free(prediction);
}

static void check_requests(void) {
  shoal_request *request = NULL, *none = NULL;
  shoal_queue* queue = NULL;
  shoal_completion done;
  size_t count = 7;
  int fd = 7;
  NEEDS("shoal_prediction_then: prediction", shoal_prediction_then(NULL, ignore, NULL));
  NEEDS("shoal_request_create: model", shoal_request_create(NULL, &none));
  NEEDS("shoal_request_create: request", shoal_request_create(model, NULL));
  OK(shoal_request_create(model, &request));
  NEEDS("shoal_request_set_input: request", shoal_request_set_input(NULL, "data", tensor));
  NEEDS("shoal_request_set_input: name", shoal_request_set_input(request, NULL, tensor));
  NEEDS("shoal_request_set_input: tensor", shoal_request_set_input(request, "data", NULL));
  NEEDS("shoal_request_set_input_at: request", shoal_request_set_input_at(NULL, 0, tensor));
  NEEDS("shoal_request_set_input_at: tensor", shoal_request_set_input_at(request, 0, NULL));
  FAILS(shoal_request_set_input_at(request, SIZE_MAX, tensor), SHOAL_NOT_FOUND, "builtin:identity");
  NEEDS("shoal_request_set_output: request", shoal_request_set_output(NULL, "data_output", tensor));
  NEEDS("shoal_request_set_output: name", shoal_request_set_output(request, NULL, tensor));
  NEEDS("shoal_request_set_output: tensor", shoal_request_set_output(request, "data_output", NULL));
  NEEDS("shoal_request_set_timeout: request", shoal_request_set_timeout(NULL, 1));
  NEEDS("shoal_request_set_priority: request", shoal_request_set_priority(NULL, 1));
  NEEDS("priority -129", shoal_request_set_priority(request, -129));
  NEEDS("shoal_request_set_flow: request", shoal_request_set_flow(NULL, 1));
  NEEDS("shoal_request_set_version: request", shoal_request_set_version(NULL, 1));
  NEEDS("shoal_request_set_id: request", shoal_request_set_id(NULL, 1));
  CHECK(shoal_request_id(NULL) == 0 && !shoal_request_is_under_way(NULL));
  CHECK(shoal_outcome_code(shoal_request_outcome(NULL)) == SHOAL_INVALID_ARGUMENT);
  CHECK(shoal_outcome_code(shoal_request_outcome(request)) == SHOAL_FAILED_PRECONDITION);
  shoal_request_cancel(NULL), shoal_request_cancel(request);

  NEEDS("shoal_queue_create: client", shoal_queue_create(NULL, &queue));
  NEEDS("shoal_queue_create: queue", shoal_queue_create(client, NULL));
  OK(shoal_queue_create(client, &queue));
  NEEDS("shoal_queue_submit: queue", shoal_queue_submit(NULL, request, 0));
  NEEDS("shoal_queue_submit: request", shoal_queue_submit(queue, NULL, 0));
  NEEDS("shoal_queue_next: queue", shoal_queue_next(NULL, &done, 1, 0, &count));
  CHECK(count == 0);
  NEEDS("shoal_queue_next: completions", shoal_queue_next(queue, NULL, 1, 0, &count));
  NEEDS("capacity", shoal_queue_next(queue, &done, 0, 0, &count));
  NEEDS("shoal_queue_next: count", shoal_queue_next(queue, &done, 1, 0, NULL));
  OK(shoal_queue_next(queue, &done, 1, INT64_MIN, &count));
  NEEDS("shoal_queue_poll: queue", shoal_queue_poll(NULL, &done, 1, &count));
  NEEDS("shoal_queue_poll: completions", shoal_queue_poll(queue, NULL, 1, &count));
  NEEDS("shoal_queue_poll: count", shoal_queue_poll(queue, &done, 1, NULL));
  NEEDS("shoal_queue_fd: queue", shoal_queue_fd(NULL, &fd));
  CHECK(fd == -1 && shoal_queue_under_way(NULL) == 0);
  NEEDS("shoal_queue_fd: fd", shoal_queue_fd(queue, NULL));

  OK(shoal_request_set_input(request, "data", tensor));
  FAILS(shoal_queue_submit(queue, request, 0), SHOAL_FAILED_PRECONDITION, "another client");  // the queue is the pool's
  shoal_queue_free(queue);
  OK(shoal_queue_create(shoal_engine_client(engine), &queue));
  OK(shoal_queue_submit(queue, request, 3));
  FAILS(shoal_queue_submit(queue, request, 3), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_input_at(request, 0, tensor), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_timeout(request, 0), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_priority(request, 0), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_flow(request, 0), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_version(request, 0), SHOAL_FAILED_PRECONDITION, "under way");
  FAILS(shoal_request_set_id(request, 0), SHOAL_FAILED_PRECONDITION, "under way");
  OK(shoal_queue_next(queue, &done, 1, SHOAL_FOREVER, &count));
  CHECK(count == 1 && done.tag == 3 && done.request == request);
  shoal_request_free(request);
  shoal_queue_free(queue);
}

static void check_pool(void) {
  shoal_usage usage = SHOAL_USAGE_INIT;
  shoal_session *session = NULL, *no_session = NULL;
  shoal_outputs* outputs = NULL;
  shoal_prediction* prediction = NULL;
  shoal_names* names = NULL;
  shoal_change* change = (shoal_change*)&usage;  // not NULL
  char* text = NULL;
  const shoal_named_tensor input = {"data", tensor};
  NEEDS("shoal_pool_connect: pool", shoal_pool_connect(NULL, NULL));
  NEEDS("shoal_pool_usage: pool", shoal_pool_usage(NULL, &usage));
  NEEDS("shoal_pool_usage: usage", shoal_pool_usage(pool, NULL));
  usage.struct_size = 8;
  NEEDS("SHOAL_USAGE_INIT", shoal_pool_usage(pool, &usage));
  NEEDS("shoal_pool_open_session: pool", shoal_pool_open_session(NULL, "echo", &session));
  NEEDS("shoal_pool_open_session: model", shoal_pool_open_session(pool, NULL, &session));
  NEEDS("shoal_pool_open_session: session", shoal_pool_open_session(pool, "echo", NULL));
  OK(shoal_pool_open_session(pool, "echo", &session));
  NEEDS("shoal_session_predict: session", shoal_session_predict(no_session, &input, 1, NULL, &outputs));
  NEEDS("shoal_session_predict: outputs", shoal_session_predict(session, &input, 1, NULL, NULL));
  NEEDS("inputs is NULL", shoal_session_predict(session, NULL, 1, NULL, &outputs));
  NEEDS("shoal_session_submit: session", shoal_session_submit(no_session, &input, 1, NULL, &prediction));
  NEEDS("shoal_session_submit: prediction", shoal_session_submit(session, &input, 1, NULL, NULL));
  NEEDS("inputs is NULL", shoal_session_submit(session, NULL, 1, NULL, &prediction));
  NEEDS("shoal_session_reset: session", shoal_session_reset(no_session));
  FAILS(shoal_session_predict(session, &input, 1, NULL, &outputs), SHOAL_FAILED_PRECONDITION, "echo");  // it has no state
  shoal_session_close(session);

  NEEDS("shoal_pool_list: pool", shoal_pool_list(NULL, &names));
  NEEDS("shoal_pool_list: names", shoal_pool_list(pool, NULL));
  NEEDS("shoal_pool_stats: pool", shoal_pool_stats(NULL, &text));
  NEEDS("shoal_pool_stats: json", shoal_pool_stats(pool, NULL));
  NEEDS("shoal_pool_crashes: pool", shoal_pool_crashes(NULL, NULL, &text));
  NEEDS("shoal_pool_crashes: json", shoal_pool_crashes(pool, NULL, NULL));
  NEEDS("shoal_pool_load: pool", shoal_pool_load(NULL, "m", "p", &change));
  CHECK(change == NULL);
  NEEDS("shoal_pool_load: name", shoal_pool_load(pool, NULL, "p", &change));
  NEEDS("shoal_pool_load: path", shoal_pool_load(pool, "m", NULL, &change));
  NEEDS("shoal_pool_reload: pool", shoal_pool_reload(NULL, "m", NULL, true, &change));
  NEEDS("shoal_pool_reload: name", shoal_pool_reload(pool, NULL, NULL, true, &change));
  NEEDS("shoal_pool_unload: pool", shoal_pool_unload(NULL, "m", &change));
  NEEDS("shoal_pool_unload: name", shoal_pool_unload(pool, NULL, &change));
  NEEDS("shoal_pool_scale: pool", shoal_pool_scale(NULL, "m", 1, &change));
  NEEDS("shoal_pool_scale: name", shoal_pool_scale(pool, NULL, 1, &change));
  NEEDS("workers is -1", shoal_pool_scale(pool, "echo", -1, &change));
  NEEDS("shoal_pool_drain: pool", shoal_pool_drain(NULL, "m", &change));
  NEEDS("shoal_pool_drain: name", shoal_pool_drain(pool, NULL, &change));
  NEEDS("shoal_pool_stop: pool", shoal_pool_stop(NULL));
}

static void check_engine(void) {
  shoal_engine* no_engine = engine;
  shoal_program* program = NULL;
  shoal_model_info* no_info = info;
  shoal_outputs* outputs = NULL;
  shoal_tensor *inputs[1] = {tensor}, *results[1] = {NULL};
  const shoal_named_tensor input = {"data", tensor};
  shoal_engine_options options = SHOAL_ENGINE_OPTIONS_INIT;
  shoal_program_options flags = SHOAL_PROGRAM_OPTIONS_INIT;
  const char* no_text[1] = {NULL};
  const char* keys[1] = {"data_indices"};
  NEEDS("shoal_engine_load: path", shoal_engine_load(NULL, NULL, &no_engine));
  CHECK(no_engine == NULL);
  NEEDS("shoal_engine_load: engine", shoal_engine_load("builtin:identity", NULL, NULL));
  options.shape_set_count = 1;
  NEEDS("shape_sets is NULL", shoal_engine_load("builtin:identity", &options, &no_engine));
  options = (shoal_engine_options)SHOAL_ENGINE_OPTIONS_INIT;
  options.contexts = INT64_C(1) << 40;
  NEEDS("contexts", shoal_engine_load("builtin:identity", &options, &no_engine));
  NEEDS("shoal_engine_describe: engine", shoal_engine_describe(NULL, &no_info));
  NEEDS("shoal_engine_describe: info", shoal_engine_describe(engine, NULL));
  NEEDS("shoal_engine_run: engine", shoal_engine_run(NULL, &input, 1, &outputs));
  NEEDS("shoal_engine_run: outputs", shoal_engine_run(engine, &input, 1, NULL));
  NEEDS("inputs is NULL", shoal_engine_run(engine, NULL, 1, &outputs));

  NEEDS("shoal_program_create: symbol_json", shoal_program_create(NULL, "", 0, NULL, &program));
  NEEDS("shoal_program_create: program", shoal_program_create("{}", "", 0, NULL, NULL));
  NEEDS("params is NULL", shoal_program_create("{}", NULL, 8, NULL, &program));
  flags.flag_count = 1;
  NEEDS("keys is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.keys = keys;
  NEEDS("values is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.values = no_text;
  NEEDS("values[0], of data_indices, is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.keys = no_text;
  NEEDS("keys[0] is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags = (shoal_program_options)SHOAL_PROGRAM_OPTIONS_INIT;
  flags.input_count = 1;
  NEEDS("inputs is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.inputs = &(shoal_data_desc){NULL, 0, 0, {0}, NULL};
  NEEDS("inputs[0].name is NULL", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.inputs = &(shoal_data_desc){"data", 77, 1, {1}, NULL};
  NEEDS("77 is no dtype", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.inputs = &(shoal_data_desc){"data", 0, 1, {-2}, NULL};
  NEEDS("below -1", shoal_program_create("{}", NULL, 0, &flags, &program));
  flags.struct_size = 0;
  NEEDS("SHOAL_PROGRAM_OPTIONS_INIT", shoal_program_create("{}", NULL, 0, &flags, &program));
  NEEDS("shoal_program_load: path", shoal_program_load(NULL, NULL, &program));
  NEEDS("shoal_program_load: program", shoal_program_load("p", NULL, NULL));
  NEEDS("shoal_program_describe: program", shoal_program_describe(NULL, &no_info));
  NEEDS("shoal_program_invoke: program", shoal_program_invoke(NULL, inputs, 1, results, 1));
  CHECK(program == NULL && no_info == NULL);

  static const char kTwice[] =
      "{\"nodes\": [{\"op\": \"null\", \"name\": \"data\", \"inputs\": []}, {\"op\": \"_mul_scalar\", \"name\": \"twice\", "
      "\"attrs\": {\"scalar\": \"2\"}, \"inputs\": [[0, 0, 0]]}], \"arg_nodes\": [0], \"heads\": [[1, 0, 0]]}";
  flags = (shoal_program_options)SHOAL_PROGRAM_OPTIONS_INIT;
  flags.inputs = &(shoal_data_desc){"data", 0, 2, {1, 4}, NULL}, flags.input_count = 1;
  OK(shoal_program_create(kTwice, NULL, 0, &flags, &program));  // it has no parameters
  NEEDS("shoal_program_describe: info", shoal_program_describe(program, NULL));
  NEEDS("inputs is NULL", shoal_program_invoke(program, NULL, 1, results, 1));
  NEEDS("outputs is NULL", shoal_program_invoke(program, inputs, 1, NULL, 1));
  OK(shoal_program_invoke(program, inputs, 1, results, 1));
  CHECK(number_at(results[0], 3) == 8);
  shoal_tensor_free(results[0]);
  shoal_program_free(program);
}

/// Functions that return no status.
static void check_getters(void) {
  CHECK(shoal_status_code(NULL) == SHOAL_OK && strcmp(shoal_status_message(NULL), "") == 0);
  CHECK(shoal_status_retry_after_ns(NULL) == 0 && strcmp(shoal_code_name(99), "UNKNOWN") == 0);
  CHECK(strcmp(shoal_code_name(-1), "UNKNOWN") == 0 && strcmp(shoal_code_name(SHOAL_POISON), "POISON") == 0);
  shoal_string_free(NULL), shoal_status_free(NULL);
  CHECK(shoal_tensor_data(NULL) == NULL && shoal_tensor_size(NULL) == 0 && shoal_tensor_dtype(NULL) == 0);
  CHECK(shoal_tensor_rank(NULL) == 0 && shoal_tensor_dims(NULL) != NULL && shoal_tensor_element_count(NULL) == 0);
  shoal_tensor_free(NULL), shoal_outputs_free(NULL);
  CHECK(shoal_outputs_count(NULL) == 0 && strcmp(shoal_outputs_name(NULL, 0), "") == 0);
  CHECK(shoal_outputs_tensor(NULL, 0) == NULL && shoal_outputs_find(NULL, "x") == NULL);
  CHECK(strcmp(shoal_model_info_name(NULL), "") == 0 && shoal_model_info_version(NULL) == 0);
  CHECK(strcmp(shoal_model_info_precision(NULL), "") == 0 && shoal_model_info_input_count(NULL) == 0);
  CHECK(shoal_model_info_output_count(NULL) == 0 && shoal_model_info_state_count(NULL) == 0);
  CHECK(shoal_model_info_label_count(NULL) == 0 && strcmp(shoal_model_info_label(NULL, 0), "") == 0);
  shoal_model_info_free(NULL), shoal_model_free(NULL), shoal_prediction_free(NULL), shoal_request_free(NULL),
      shoal_queue_free(NULL);
  CHECK(shoal_outcome_code(NULL) == SHOAL_INVALID_ARGUMENT && strcmp(shoal_outcome_message(NULL), "the outcome is NULL") == 0);
  CHECK(shoal_outcome_outputs(NULL) == NULL && shoal_outcome_ran(NULL) == SHOAL_RAN_NO && shoal_outcome_attempts(NULL) == 0);
  CHECK(shoal_outcome_batch(NULL) == 0 && shoal_outcome_model_version(NULL) == 0 && shoal_outcome_queue_time_ns(NULL) == 0);
  CHECK(shoal_outcome_compute_time_ns(NULL) == 0 && shoal_outcome_retry_after_ns(NULL) == 0);
  NEEDS("the outcome is NULL", shoal_outcome_status(NULL));
  CHECK(strcmp(shoal_model_name(NULL), "") == 0 && shoal_model_version(NULL) == 0);
  CHECK(shoal_prediction_ready(NULL) && shoal_prediction_wait(NULL, SHOAL_FOREVER));
  CHECK(shoal_outcome_code(shoal_prediction_outcome(NULL)) == SHOAL_INVALID_ARGUMENT);
  shoal_prediction_cancel(NULL);
  CHECK(shoal_names_count(NULL) == 0 && strcmp(shoal_names_at(NULL, 0), "") == 0);
  CHECK(strcmp(shoal_change_outcome(NULL), "") == 0 && shoal_change_version(NULL) == 0 && shoal_change_version_count(NULL) == 0);
  CHECK(shoal_change_version_at(NULL, 0) == 0 && shoal_change_workers(NULL) == 0 && shoal_change_took_ns(NULL) == 0);
  shoal_names_free(NULL), shoal_change_free(NULL), shoal_session_close(NULL), shoal_pool_close(NULL), shoal_engine_close(NULL);
  shoal_program_free(NULL), shoal_ensure_passive_openmp(NULL);
  CHECK(shoal_pool_client(NULL) == NULL && shoal_engine_client(NULL) == NULL && shoal_program_client(NULL) == NULL);
  CHECK(shoal_engine_warning_count(NULL) == 0 && strcmp(shoal_engine_warning(NULL, 0), "") == 0);
  CHECK(shoal_engine_packed_bytes(NULL) == 0 && shoal_engine_arena_bytes(NULL) == 0);
}

int main(void) {
  OK(shoal_pool_connect(NULL, &pool));
  client = shoal_pool_client(pool);
  OK(shoal_engine_load("builtin:identity", NULL, &engine));
  OK(shoal_engine_describe(engine, &info));
  OK(shoal_client_model(shoal_engine_client(engine), shoal_model_info_name(info), 0, &model));
  tensor = counting(1, 4);
  check_getters();
  check_shared_functions();
  check_client();
  check_requests();
  check_pool();
  check_engine();
  shoal_tensor_free(tensor);
  shoal_model_info_free(info);
  shoal_model_free(model);
  shoal_engine_close(engine);
  shoal_pool_close(pool);
  printf("every wrong argument is an error\n");
  return 0;
}
