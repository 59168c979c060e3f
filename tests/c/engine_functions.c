// Calls every function of shoal/shoal_engine.h.
//
//   engine_functions DIRECTORY      of "sum": a model with the inputs data and so_far and the outputs total and next
#include "shoal/shoal_engine.h"

#include "tests/c/check.h"

// data (n, 4), times factor, plus bias; the graph ends in a head of training, whose label is the last input.
static const char kSymbol[] =
    "{\"nodes\": ["
    "{\"op\": \"null\", \"name\": \"data\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"factor\", \"inputs\": []},"
    "{\"op\": \"broadcast_mul\", \"name\": \"scaled\", \"inputs\": [[0, 0, 0], [1, 0, 0]]},"
    "{\"op\": \"null\", \"name\": \"bias\", \"inputs\": []},"
    "{\"op\": \"broadcast_add\", \"name\": \"shifted\", \"inputs\": [[2, 0, 0], [3, 0, 0]]},"
    "{\"op\": \"null\", \"name\": \"label\", \"inputs\": []},"
    "{\"op\": \"LinearRegressionOutput\", \"name\": \"out\", \"inputs\": [[4, 0, 0], [5, 0, 0]]}],"
    "\"arg_nodes\": [0, 1, 3, 5], \"heads\": [[6, 0, 0]], \"attrs\": {\"mxnet_version\": [\"int\", 10901]}}";

/// A file of the parameters "arg:factor" and "arg:bias", of four numbers each, as MXNet 1.9.1 writes it.
static size_t write_params(unsigned char* bytes) {
  const uint64_t head[3] = {0x112, 0, 2}, names = 2;
  const char* texts[2] = {"arg:factor", "arg:bias"};
  unsigned char* at = bytes;
  memcpy(at, head, sizeof head), at += sizeof head;
  for (int i = 0; i < 2; ++i) {
    const uint32_t magic = 0xF993FAC9;
    const int32_t storage = 0, rank = 1, context[2] = {1, 0}, type = 0;
    const int64_t size = 4;
    const float values[2][4] = {{1, 10, 100, 1000}, {1, 2, 3, 4}};
    memcpy(at, &magic, 4), at += 4;
    memcpy(at, &storage, 4), at += 4;
    memcpy(at, &rank, 4), at += 4;
    memcpy(at, &size, 8), at += 8;
    memcpy(at, context, 8), at += 8;
    memcpy(at, &type, 4), at += 4;
    memcpy(at, values[i], 16), at += 16;
  }
  memcpy(at, &names, 8), at += 8;
  for (int i = 0; i < 2; ++i) {
    const uint64_t length = strlen(texts[i]);
    memcpy(at, &length, 8), at += 8;
    memcpy(at, texts[i], length), at += length;
  }
  return (size_t)(at - bytes);
}

static const shoal_data_desc kData = {"data", SHOAL_FLOAT32, 2, {-1, 4}, NULL};

// ---- Engine ----

static void check_engine(const char* directory) {
  shoal_engine_options options = SHOAL_ENGINE_OPTIONS_INIT;
  const shoal_data_desc shapes[2] = {{"data", 0, 2, {1, 4}, NULL}, {"so_far", 0, 2, {1, 4}, NULL}};
  const shoal_shape_set sets[1] = {{shapes, 2}};
  shoal_engine* engine = NULL;
  shoal_model_info* info = NULL;
  shoal_outputs* outputs = NULL;
  shoal_prediction* prediction = NULL;
  shoal_tensor_spec spec = SHOAL_TENSOR_SPEC_INIT;
  shoal_tensor* tensor = counting(1, 4);
  const shoal_named_tensor inputs[2] = {{NULL, tensor}, {"so_far", tensor}};
  options.device = "cpu-reference", options.precision = "f32";
  options.threads = 1, options.contexts = 2, options.queue_limit = 8, options.tuning_ms = -1;
  options.shape_sets = sets, options.shape_set_count = 1;
  OK(shoal_engine_load(directory, &options, &engine));
  OK(shoal_engine_describe(engine, &info));
  OK(shoal_model_info_input(info, 0, &spec));
  CHECK(strcmp(spec.name, "data") == 0 && spec.dims[0] == 1);
  OK(shoal_engine_run(engine, inputs, 2, &outputs));
  CHECK(number_at(shoal_outputs_find(outputs, "total_output"), 3) == 8);
  shoal_outputs_free(outputs);
  FAILS(shoal_engine_run(engine, inputs, 0, &outputs), SHOAL_INVALID_ARGUMENT, "'data' is missing");
  OK(shoal_client_submit(shoal_engine_client(engine), shoal_model_info_name(info), &(shoal_named_tensor){"data", tensor}, 1, NULL,
                         &prediction));
  CHECK(number_at(shoal_outputs_tensor(shoal_outcome_outputs(shoal_prediction_outcome(prediction)), 0), 3) == 4);
  shoal_prediction_free(prediction);
  CHECK(shoal_engine_warning_count(engine) == 0 && strcmp(shoal_engine_warning(engine, 0), "") == 0);
  CHECK(shoal_engine_packed_bytes(engine) == 0);
  CHECK(shoal_engine_arena_bytes(engine) < 1 << 20);
  shoal_model_info_free(info);
  shoal_engine_close(engine);

  FAILS(shoal_engine_load("/no/such/model", NULL, &engine), SHOAL_NOT_FOUND, "/no/such/model");
  options.threads = -1;
  FAILS(shoal_engine_load(directory, &options, &engine), SHOAL_INVALID_ARGUMENT, "threads is -1");
  options.threads = 1, options.device = "abacus";
  FAILS(shoal_engine_load(directory, &options, &engine), SHOAL_INVALID_ARGUMENT, "abacus");
  const shoal_data_desc wrong = {"data", 0, 9, {0}, NULL};
  options.device = NULL, options.shape_sets = &(shoal_shape_set){&wrong, 1};
  FAILS(shoal_engine_load(directory, &options, &engine), SHOAL_INVALID_ARGUMENT, "shape_sets[0].shapes[0] ('data'): rank 9");
  CHECK(engine == NULL);
  shoal_tensor_free(tensor);
}

// ---- Program ----

static unsigned char params[1024];
static size_t params_size;

static shoal_status* create(const char* key, const char* value, shoal_program** program) {
  const char *keys[] = {key}, *values[] = {value};
  shoal_program_options options = SHOAL_PROGRAM_OPTIONS_INIT;
  options.keys = keys, options.values = values, options.flag_count = key != NULL;
  options.inputs = &kData, options.input_count = 1;
  return shoal_program_create(kSymbol, params, params_size, &options, program);
}

static void check_flags(void) {
  shoal_program* program = NULL;
  shoal_model_info* info = NULL;
  const struct {
    const char *key, *value, *why;
  } wrong[] = {
      {"data_indices", "[4]", "the symbol has no input 4: it has 4 (data, factor, bias, label)"},
      {"data_indices", "[0, 0]", "is in data_indices already"},
      {"data_indices", "[0, 1]", "input 1 ('factor') is a parameter"},
      {"data_indices", "[3]", "input 0 ('data') is missing"},
      {"data_indices", "zero", "must be positions"},
      {"data_indices", "[-1]", "must be positions"},
      {"param_indices", "[0, 1]", "the parameters hold no value of input 0 ('data')"},
      {"static_shape", "true", "static_alloc is not"},
      {"static_alloc", "maybe", "must be true or false"},
      {"inline_limit", "many", "must be a whole number"},
      {"Static_alloc", "true", "there is no key 'Static_alloc'"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    FAILS(create(wrong[i].key, wrong[i].value, &program), SHOAL_INVALID_ARGUMENT, wrong[i].why);
    CHECK(program == NULL);
  }
  const struct {
    const char *key, *value;
    size_t inputs;
  } right[] = {
      {NULL, NULL, 1},
      {"data_indices", "[0]", 1},
      {"data_indices", "(3, 0)", 2},  // MXNet's callers pass the label
      {"param_indices", "[1, 2, 3]", 1},
      {"static_alloc", "True", 1},
      {"is_dynamic", "1", 1},
      {"inline_limit", "2", 1},
      {"forward_bulk_size", "15", 1},
      {"backward_bulk_size", "15", 1},
  };
  for (size_t i = 0; i < sizeof right / sizeof *right; ++i) {
    OK(create(right[i].key, right[i].value, &program));
    OK(shoal_program_describe(program, &info));
    CHECK(shoal_model_info_input_count(info) == right[i].inputs);
    shoal_model_info_free(info);
    shoal_program_free(program);
  }
  OK(create("data_indices", "[3, 0]", &program));  // the label has no effect
  shoal_tensor *given[2] = {counting(0, 4), counting(1, 4)}, *output = NULL;
  OK(shoal_program_invoke(program, given, 2, &output, 1));
  CHECK(number_at(output, 3) == 4 * 1000 + 4);
  shoal_tensor_free(given[0]), shoal_tensor_free(given[1]), shoal_tensor_free(output);
  shoal_program_free(program);
}

static void check_program(const char* directory) {
  shoal_program_options options = SHOAL_PROGRAM_OPTIONS_INIT;
  shoal_program* program = NULL;
  shoal_outputs* outputs = NULL;
  shoal_tensor *inputs[1] = {counting(1, 4)}, *made[1] = {NULL}, *own[1] = {counting(0, 4)};
  options.inputs = &kData, options.input_count = 1;
  options.name = "decimal", options.precision = "f32", options.threads = 1, options.contexts = 2;
  OK(shoal_program_create(kSymbol, params, params_size, &options, &program));
  OK(shoal_program_invoke(program, inputs, 1, made, 1));
  CHECK(number_at(made[0], 0) == 2 && number_at(made[0], 3) == 4004);
  OK(shoal_program_invoke(program, inputs, 1, own, 1));  // into the caller's memory
  CHECK(number_at(own[0], 3) == 4004);
  OK(shoal_client_predict(shoal_program_client(program), "decimal", &(shoal_named_tensor){"data", inputs[0]}, 1, NULL, &outputs));
  CHECK(number_at(shoal_outputs_tensor(outputs, 0), 3) == 4004);
  shoal_outputs_free(outputs);

  FAILS(shoal_program_invoke(program, inputs, 2, made, 1), SHOAL_INVALID_ARGUMENT, "input_count is 2");
  FAILS(shoal_program_invoke(program, inputs, 1, made, 2), SHOAL_INVALID_ARGUMENT, "output_count is 2");
  FAILS(shoal_program_invoke(program, (shoal_tensor*[]){NULL}, 1, made, 1), SHOAL_INVALID_ARGUMENT, "inputs[0] ('data') is NULL");
  shoal_tensor* small = counting(0, 3);
  FAILS(shoal_program_invoke(program, inputs, 1, &small, 1), SHOAL_INVALID_ARGUMENT, "the memory for output 'out_output'");
  FAILS(shoal_program_invoke(program, &small, 1, made, 1), SHOAL_INVALID_ARGUMENT, "'data'");
  shoal_tensor_free(small);
  shoal_tensor_free(made[0]);

  const int64_t rows[2] = {3, 4};  // another shape
  made[0] = NULL;
  shoal_tensor_free(inputs[0]);
  OK(shoal_tensor_create(SHOAL_FLOAT32, rows, 2, &inputs[0]));
  OK(shoal_program_invoke(program, inputs, 1, made, 1));
  CHECK(shoal_tensor_dims(made[0])[0] == 3 && number_at(made[0], 11) == 4);
  shoal_tensor_free(made[0]), shoal_tensor_free(own[0]), shoal_tensor_free(inputs[0]);
  shoal_program_free(program);

  FAILS(shoal_program_create(kSymbol, params, params_size, NULL, &program), SHOAL_INVALID_ARGUMENT, "the shape of input 'data'");
  FAILS(shoal_program_create(kSymbol, params, params_size - 1, &options, &program), SHOAL_DATA_LOSS, "params: offset");
  FAILS(shoal_program_create("{\"nodes\": [", params, params_size, &options, &program), SHOAL_DATA_LOSS, "symbol_json: offset");
  FAILS(shoal_program_create("", params, params_size, &options, &program), SHOAL_DATA_LOSS, "symbol_json");
  const shoal_data_desc both[2] = {{"data", 0, 2, {1, 4}, NULL}, {"so_far", 0, 2, {1, 4}, NULL}};
  options.inputs = both, options.input_count = 2;
  FAILS(shoal_program_create(kSymbol, params, params_size, &options, &program), SHOAL_INVALID_ARGUMENT, "so_far");
  CHECK(program == NULL);

  OK(shoal_program_load(directory, NULL, &program));
  shoal_tensor *two[2] = {counting(1, 4), counting(10, 4)}, *results[2] = {NULL, NULL};
  OK(shoal_program_invoke(program, two, 2, results, 2));
  CHECK(number_at(results[0], 0) == 11 && number_at(results[1], 3) == 17);
  shoal_tensor_free(two[0]), shoal_tensor_free(two[1]), shoal_tensor_free(results[0]), shoal_tensor_free(results[1]);
  shoal_program_free(program);
  FAILS(shoal_program_load("/no/such/model", NULL, &program), SHOAL_NOT_FOUND, "/no/such/model");
}

int main(int argc, char** argv) {
  shoal_ensure_passive_openmp(argv);
  CHECK(argc == 2 && getenv("GOMP_SPINCOUNT") != NULL);
  params_size = write_params(params);
  check_engine(argv[1]);
  check_flags();
  check_program(argv[1]);
  printf("every function works\n");
  return 0;
}
