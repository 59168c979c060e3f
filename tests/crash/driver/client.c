// shoal-crash-client-c DIRECTORY HISTORY WORD...: what client.cpp does, in C on shoal/shoal.h: requests that are used again,
// loans and a completion queue.
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <zlib.h>

#include "shoal/shoal.h"

enum { kFirstWord = 3, kPlanWords = 6, kModelWords = 4 };  // plan.hpp: to_words()
enum { kMostModels = 8, kMostUnderWay = 64, kTooLarge = 200 };
static const int64_t kLookNs = 5000000, kTurnNs = 15000000;

/// A model, and what a client draws from (pattern.hpp).
struct model {
  const char* name;
  enum { kRows, kFlat } inputs;
  uint32_t sizes, contents;
  shoal_model* handle;
};
/// Room for one request, to any of the models.
struct place {
  shoal_request* requests[kMostModels];
  uint64_t id, stalled_before_ns;
  bool is_under_way;
};

static volatile sig_atomic_t is_over = 0;
static struct model models[kMostModels];
static struct place places[kMostUnderWay];
static size_t model_count, window, under_way;
static uint32_t random_state;
static double cancel_share, deadline_share, guilty_share;
static uint64_t timeout_ns, last_id;
static int64_t last_turn_ns, stalled_ns;
static int history = -1;
static shoal_pool* pool;
static const shoal_client* client;
static shoal_queue* queue;

static void end(int signal) {
  (void)signal;
  is_over = 1;
}

static void check(shoal_status* failed) {
  if (!failed) return;
  fprintf(stderr, "client %d: %s: %s\n", getpid(), shoal_code_name(shoal_status_code(failed)), shoal_status_message(failed));
  exit(1);
}

/// Writes a line of the history (history.hpp) by one write().
static void write_line(const char* format, ...) {
  char line[256];
  va_list values;
  va_start(values, format);
  const int size = vsnprintf(line, sizeof line, format, values);
  va_end(values);
  if (size < 0 || (size_t)size >= sizeof line || write(history, line, (size_t)size) != size) abort();
}

static uint32_t draw(void) {  // xorshift
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  return random_state ^= random_state << 5;
}
static bool chance(double share) { return draw() < share * 0x1p32; }

/// As pattern_input() in pattern.cpp. Every second one is a loan, as long as there is room for it.
static shoal_tensor* pattern_input(const struct model* model, uint32_t size, uint32_t seed, bool is_guilty) {
  const int64_t rows[] = {size, 16}, flat[] = {1 + 997 * (int64_t)size};
  const int64_t* const dims = model->inputs == kRows ? rows : flat;
  const size_t rank = model->inputs == kRows ? 2 : 1;
  shoal_tensor* tensor = NULL;
  if (chance(0.5)) shoal_status_free(shoal_client_loan(client, SHOAL_FLOAT32, dims, rank, &tensor));
  if (!tensor) check(shoal_tensor_create(SHOAL_FLOAT32, dims, rank, &tensor));
  float* const values = shoal_tensor_data(tensor);
  uint32_t state = seed * 2654435761u + size;
  for (int64_t i = 0; i < shoal_tensor_element_count(tensor); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 20) * 0.125f;
  }
  if (is_guilty) values[0] = 666;
  return tensor;
}

/// As hash_of() in history.cpp.
static uint64_t hash_of(const shoal_tensor* tensor) {
  uint64_t hash = 0;
  for (size_t i = 0; i < shoal_tensor_rank(tensor); ++i) {
    char dim[32];
    const int size = snprintf(dim, sizeof dim, "%s%" PRId64, i > 0 ? "x" : "", shoal_tensor_dims(tensor)[i]);
    hash = crc32_z(hash, (const Bytef*)dim, (size_t)size);
  }
  return crc32_z(hash, shoal_tensor_data(tensor), shoal_tensor_size(tensor));
}

static void ask(void) {
  size_t tag = 0;
  while (places[tag].is_under_way) ++tag;
  struct place* const place = &places[tag];
  const size_t number = draw() % model_count;
  const struct model* const model = &models[number];
  const uint32_t seed = draw() % model->contents;
  uint32_t size = draw() % 3 == 0 ? 1 + draw() % model->sizes : 1;
  if (model->inputs == kFlat && draw() % 50 == 0) size = kTooLarge;
  const uint64_t timeout = chance(deadline_share) ? timeout_ns : 0;
  const bool is_guilty = model->inputs == kRows && chance(guilty_share), is_canceled = !is_guilty && chance(cancel_share);

  shoal_request** const request = &place->requests[number];
  if (!*request) check(shoal_request_create(model->handle, request));
  shoal_tensor* const input = pattern_input(model, size, seed, is_guilty);
  check(shoal_request_set_input_at(*request, 0, input));
  shoal_tensor_free(input);
  check(shoal_request_set_timeout(*request, (int64_t)timeout));
  place->id = ++last_id;
  place->stalled_before_ns = (uint64_t)stalled_ns;
  place->is_under_way = true;
  ++under_way;
  write_line("ask %" PRIu64 " %" PRId64 " %s %" PRIu32 " %" PRIu32 " %" PRIu64 " %s\n", place->id, shoal_now_ns(), model->name,
             size, seed, timeout,
             is_guilty     ? "guilty"
             : is_canceled ? "cancel"
                           : "plain");
  check(shoal_queue_submit(queue, *request, tag));
  if (is_canceled) shoal_request_cancel(*request);
}

/// How much longer than kTurnNs the current turn has taken so far.
static int64_t since_turn(void) {
  const int64_t turn_ns = shoal_now_ns() - last_turn_ns;
  return turn_ns > kTurnNs ? turn_ns - kTurnNs : 0;
}

static void write_answer(const shoal_completion* done) {
  struct place* const place = &places[done->tag];
  const int64_t now_ns = shoal_now_ns();
  const shoal_outcome* const outcome = shoal_request_outcome(done->request);
  const shoal_outputs* const outputs = shoal_outcome_outputs(outcome);
  const shoal_code code = shoal_outcome_code(outcome);
  if (code == SHOAL_UNAVAILABLE || code == SHOAL_INTERNAL || code == SHOAL_ABORTED)
    fprintf(stderr, "client %d: %s: %s\n", getpid(), shoal_code_name(code), shoal_outcome_message(outcome));
  write_line("answer %" PRIu64 " %" PRId64 " %d %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu64 "\n", place->id, now_ns, (int)code,
             shoal_outcome_model_version(outcome), outputs ? hash_of(shoal_outputs_tensor(outputs, 0)) : 0,
             shoal_outcome_attempts(outcome), (uint64_t)(stalled_ns + since_turn()) - place->stalled_before_ns);
  place->is_under_way = false;
  --under_way;
}

static void run(void) {
  last_turn_ns = shoal_now_ns();
  while (!is_over || under_way > 0) {
    while (!is_over && under_way < window) ask();
    shoal_completion done[kMostUnderWay];
    size_t count = 0;
    check(shoal_queue_next(queue, done, kMostUnderWay, shoal_now_ns() + kLookNs, &count));
    for (size_t i = 0; i < count; ++i) write_answer(&done[i]);
    stalled_ns += since_turn();
    last_turn_ns = shoal_now_ns();
  }
  write_line("end\n");
}

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < kFirstWord + kPlanWords) return 2;
  struct sigaction action = {.sa_handler = end};
  sigaction(SIGTERM, &action, NULL);
  char** const words = argv + kFirstWord;
  random_state = (uint32_t)strtoul(words[0], NULL, 10) | 1;
  window = strtoul(words[1], NULL, 10);
  cancel_share = strtod(words[2], NULL), deadline_share = strtod(words[3], NULL), guilty_share = strtod(words[4], NULL);
  timeout_ns = strtoull(words[5], NULL, 10) * 1000000;
  model_count = (size_t)(argc - kFirstWord - kPlanWords) / kModelWords;
  if (window > kMostUnderWay || model_count == 0 || model_count > kMostModels) return 2;

  shoal_pool_options options = SHOAL_POOL_OPTIONS_INIT;  // as client.cpp
  options.directory = argv[1];
  options.arena_limit_bytes = 192 << 10;
  options.connect_timeout_ns = options.control_timeout_ns = INT64_C(20000000000);
  shoal_status* failed = shoal_pool_connect(&options, &pool);
  for (int i = 0; i < 10 && shoal_status_code(failed) == SHOAL_UNAVAILABLE; ++i) {
    shoal_status_free(failed);
    failed = shoal_pool_connect(&options, &pool);
  }
  check(failed);
  client = shoal_pool_client(pool);
  check(shoal_queue_create(client, &queue));
  for (size_t i = 0; i < model_count; ++i) {
    char** const model = words + kPlanWords + i * kModelWords;
    if (atoi(model[1]) > kFlat) return 2;
    models[i] = (struct model){model[0], atoi(model[1]), (uint32_t)atoi(model[2]), (uint32_t)atoi(model[3]), NULL};
    check(shoal_client_model(client, model[0], 0, &models[i].handle));
  }
  history = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (history < 0) return 1;
  run();
  for (size_t i = 0; i < kMostUnderWay * kMostModels; ++i) shoal_request_free(places[i / kMostModels].requests[i % kMostModels]);
  for (size_t i = 0; i < model_count; ++i) shoal_model_free(models[i].handle);
  shoal_queue_free(queue);
  shoal_pool_close(pool);
  return 0;
}
