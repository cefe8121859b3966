/* The smallest engine in C: one worker with KV cache in host memory, and two requests with the same prompt. The first
 * computes its KV and saves it; the second loads it into other blocks.
 *
 *     build/release/troupe serve --config configs/single-node.json
 *     build/release/examples/troupe-example-c-engine data/single
 */
#include "connector/capi/troupe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

enum { layers = 2, heads = 2, head_bytes = 256, block_tokens = 16, blocks = 16 };
enum { layer_bytes = heads * block_tokens * head_bytes };
enum { prompt_tokens = 4 * block_tokens + 10, prompt_blocks = 5, full_blocks = 4 };

static troupe_error trouble = {.size = sizeof(troupe_error)};

/* Ends the program if a call has failed; `trouble` has the reason. */
static void check(int32_t code, const char* what) {
  if (code == TROUPE_OK)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, troupe_code_name(code), trouble.text);
  exit(1);
}

/* One layer's KV cache is [blocks, heads, tokens, K and V side by side], as vLLM registers it. */
static uint8_t cache[layers][blocks][layer_bytes];

/* Replaces a model: computes the KV of block `position` of a prompt. */
static void compute(uint8_t* out, int layer, int position) {
  for (int i = 0; i < layer_bytes; ++i)
    out[i] = (uint8_t)(i * 7 + layer * 31 + position * 101 + i / 251);
}

typedef struct engine {
  troupe_connection* connection;
  troupe_scheduler* scheduler;
  troupe_worker* worker;
} engine;

static void start(engine* x, const char* address) {
  const troupe_connect_options how = {.size = sizeof how, .address = address, .client_name = "c-example"};
  check(troupe_connect(&how, &x->connection, &trouble), "connect");

  const troupe_geometry shape = {.size = sizeof shape,
                                 .layers = layers,
                                 .parts = 1, /* K and V together */
                                 .heads = heads,
                                 .head_size = head_bytes / 2,
                                 .element_bytes = 2};
  const troupe_namespace space = {
      .size = sizeof space, .model = "example/tiny", .dtype = "bfloat16", .layout = "LBHNC", .geometry = &shape};
  const troupe_engine terms = {.size = sizeof terms, .block_tokens = block_tokens, .keys = TROUPE_KEYS_ROLLING};
  check(troupe_scheduler_create(x->connection, &space, &terms, &x->scheduler, &trouble), "scheduler half");
  check(troupe_worker_create(x->connection, &space, &terms, 0, -1, &x->worker, &trouble), "worker half");

  troupe_layer views[layers];
  for (int i = 0; i < layers; ++i)
    views[i] = (troupe_layer){.base = cache[i],
                              .bytes = sizeof cache[i],
                              .block_stride = layer_bytes,
                              .part_stride = layer_bytes,
                              .token_stride = head_bytes,
                              .head_stride = block_tokens * head_bytes};
  check(troupe_worker_register(x->worker, views, layers, blocks, &trouble), "KV cache");
}

static troupe_ids one_id(const char* id) {
  return (troupe_ids){.data = id, .length = strlen(id) + 1, .count = 1};
}

/* The number of tokens of the prompt in the cache. An engine schedules other requests until it is known. */
static uint32_t ask(engine* x, const char* id, const uint32_t* prompt) {
  const troupe_request request = {.size = sizeof request, .id = id, .tokens = prompt, .token_count = prompt_tokens};
  troupe_matched found = {.size = sizeof found};
  const struct timespec moment = {.tv_nsec = 100000};
  for (;;) {
    check(troupe_scheduler_matched(x->scheduler, &request, 0, &found, &trouble), "lookup");
    if (found.known)
      break;
    thrd_sleep(&moment, NULL);
  }
  printf("%s: %u of %d tokens are in the cache\n", id, found.tokens, prompt_tokens);
  return found.tokens;
}

/* One step: metadata from the scheduler half to the worker half, reports back. */
static troupe_finished step(engine* x, troupe_step scheduled, size_t* load_errors) {
  scheduled.size = sizeof scheduled;
  troupe_bytes meta;
  check(troupe_scheduler_build_meta(x->scheduler, &scheduled, &meta, &trouble), "metadata");

  check(troupe_worker_handle_preemptions(x->worker, meta.data, meta.length, &trouble), "preemptions");
  check(troupe_worker_bind(x->worker, meta.data, meta.length, &trouble), "bind");
  /* The forward pass runs here. */
  check(troupe_worker_start_load(x->worker, NULL, &trouble), "loads");
  check(troupe_worker_save(x->worker, NULL, &trouble), "saves");
  troupe_finished finished = {.size = sizeof finished};
  check(troupe_worker_get_finished(x->worker, NULL, &finished, &trouble), "finished requests");
  troupe_blocks errors;
  check(troupe_worker_load_errors(x->worker, &errors, &trouble), "load errors");
  troupe_bytes report;
  check(troupe_worker_meta(x->worker, &report, &trouble), "worker's report");
  check(troupe_worker_clear(x->worker, &trouble), "clear");

  const troupe_worker_output output = {.size = sizeof output,
                                       .sent = finished.sent,
                                       .received = finished.received,
                                       .failed = finished.failed,
                                       .load_errors = errors,
                                       .worker_meta = &report,
                                       .worker_meta_count = 1};
  check(troupe_scheduler_worker_output(x->scheduler, &output, &trouble), "output");
  *load_errors += errors.count;
  return finished;
}

/* A step without computation, while a transfer is in progress. */
static troupe_finished idle_step(engine* x, size_t* load_errors) {
  const struct timespec moment = {.tv_nsec = 1000000};
  thrd_sleep(&moment, NULL);
  return step(x, (troupe_step){0}, load_errors);
}

/* Ends the request: waits until its blocks are free. */
static void finish(engine* x, const char* id) {
  int32_t keep_blocks = 0;
  check(troupe_scheduler_finished(x->scheduler, id, &keep_blocks, &trouble), "end of a request");
  size_t load_errors = 0;
  while (keep_blocks && idle_step(x, &load_errors).sent.count == 0)
    ;
}

static void run_prompt(engine* x, const char* id, const uint32_t* prompt, const uint32_t* where) {
  ask(x, id, prompt);
  /* No tokens are loaded, so that the example computes all of them. */
  check(troupe_scheduler_allocated(x->scheduler, id, where, prompt_blocks, 0, &trouble), "blocks");
  for (int layer = 0; layer < layers; ++layer)
    for (int i = 0; i < full_blocks; ++i)
      compute(cache[layer][where[i]], layer, i);
  const uint32_t none = 0;
  const uint32_t all = prompt_tokens;
  const uint32_t block_end = prompt_blocks;
  size_t load_errors = 0;
  step(x,
       (troupe_step){.requests = one_id(id),
                     .new_requests = 1,
                     .computed_tokens = &none,
                     .scheduled_tokens = &all,
                     .block_ends = &block_end,
                     .blocks = {where, prompt_blocks}},
       &load_errors);
  finish(x, id);
  printf("%s: computed\n", id);
}

static int load_prompt(engine* x, const char* id, const uint32_t* prompt, const uint32_t* where) {
  const uint32_t found = ask(x, id, prompt);
  if (found == 0)
    return 0;
  check(troupe_scheduler_allocated(x->scheduler, id, where, prompt_blocks, found, &trouble), "blocks");
  size_t load_errors = 0;
  while (idle_step(x, &load_errors).received.count == 0) /* the request waits until it is reported */
    ;
  int right = load_errors == 0; /* such blocks would have to be computed */
  uint8_t expected[layer_bytes];
  for (int layer = 0; layer < layers; ++layer)
    for (uint32_t i = 0; i < found / block_tokens; ++i) {
      compute(expected, layer, (int)i);
      right = right && memcmp(cache[layer][where[i]], expected, layer_bytes) == 0;
    }
  finish(x, id);
  printf("%s: loaded, %s\n", id, right ? "every byte is right" : "AND NOT EVERY BYTE IS RIGHT");
  return right;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: troupe-example-c-engine NODE\n"
                    "NODE is its data_dir, the path of its socket, or HOST:PORT\n");
    return 2;
  }
  engine x;
  start(&x, argv[1]);
  /* Another prompt each time, so that the first request of a run does not find pages of an earlier run. */
  uint32_t prompt[prompt_tokens];
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  for (int i = 0; i < prompt_tokens; ++i)
    prompt[i] = (uint32_t)(now.tv_nsec + now.tv_sec * 1000 + i);
  const uint32_t first[prompt_blocks] = {1, 7, 3, 9, 11};
  const uint32_t second[prompt_blocks] = {2, 4, 6, 8, 10};
  run_prompt(&x, "first", prompt, first);
  const int right = load_prompt(&x, "second", prompt, second);
  troupe_bytes stats;
  check(troupe_worker_stats(x.worker, &stats, &trouble), "statistics");
  printf("%.*s\n", (int)stats.length, (const char*)stats.data);
  size_t tracked = 0;
  check(troupe_scheduler_tracked_requests(x.scheduler, &tracked, &trouble), "requests");
  troupe_worker_destroy(x.worker);
  troupe_scheduler_destroy(x.scheduler);
  troupe_connection_destroy(x.connection);
  return right && tracked == 0 ? 0 : 1;
}
