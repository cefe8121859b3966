/* Pages of host memory by key, in C: a pool of pages is saved under keys that its owner chooses, and read back into other
 * places of the pool.
 *
 *     build/release/troupe serve --config configs/single-node.json
 *     build/release/examples/troupe-example-c-pages data/single
 */
#include "connector/capi/troupe.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { page_bytes = 65536, pages = 16, saved = 6, key_bytes = 32 };

static uint8_t pool[pages][page_bytes];

static int report(const char* what, const troupe_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, troupe_code_name(error->code), error->text);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: troupe-example-c-pages NODE\n"
                    "NODE is its data_dir, the path of its socket, or HOST:PORT\n");
    return 2;
  }
  troupe_error error = {.size = sizeof error};
  const troupe_connect_options how = {.size = sizeof how, .address = argv[1], .client_name = "c-pages"};
  troupe_connection* connection = NULL;
  if (troupe_connect(&how, &connection, &error))
    return report("connect", &error);

  const troupe_geometry shape = {
      .size = sizeof shape, .layers = 1, .page_tokens = 64, .opaque_block_bytes = page_bytes};
  const troupe_namespace space = {
      .size = sizeof space, .model = "example/tiny", .dtype = "bfloat16", .geometry = &shape};
  const troupe_pages_options options = {.size = sizeof options, .key_bytes = key_bytes};
  const troupe_layer layer = {.base = pool, .bytes = sizeof pool, .block_stride = page_bytes};
  troupe_pages* store = NULL;
  if (troupe_pages_create(connection, &space, &options, &layer, 1, pages, &store, &error))
    return report("pool", &error);

  /* Real keys are hashes of tokens. Each run uses new keys, so that none is stored yet. */
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  uint8_t keys[saved][key_bytes] = {{0}};
  uint32_t from[saved];
  uint32_t to[saved];
  for (uint32_t i = 0; i < saved; ++i) {
    memcpy(keys[i], &now.tv_sec, sizeof now.tv_sec);
    memcpy(keys[i] + 8, &now.tv_nsec, sizeof now.tv_nsec);
    keys[i][31] = (uint8_t)i;
    from[i] = i;
    to[i] = pages - 1 - i;
    memset(pool[i], (int)(i + 1), page_bytes);
  }

  size_t found = 0;
  size_t done = 0;
  int32_t results[saved];
  if (troupe_pages_exist(store, keys[0], saved, 5, &found, &error))
    return report("exist", &error);
  printf("%zu of %d pages are there\n", found, (int)saved);
  if (troupe_pages_put(store, keys[0], from, saved, 5, results, &done, &error))
    return report("put", &error);
  printf("%zu are saved\n", done);
  if (troupe_pages_exist(store, keys[0], saved, 5, &found, &error))
    return report("exist", &error);
  printf("%zu are there now\n", found);
  if (troupe_pages_get(store, keys[0], to, saved, 5, results, &done, &error))
    return report("get", &error);
  int right = found == saved && done == saved;
  for (uint32_t i = 0; i < saved; ++i)
    right = right && results[i] == TROUPE_OK && memcmp(pool[to[i]], pool[from[i]], page_bytes) == 0;
  printf("%zu are read, %s\n", done, right ? "every byte is right" : "AND NOT EVERY BYTE IS RIGHT");

  troupe_pages_destroy(store);
  troupe_connection_destroy(connection);
  return right ? 0 : 1;
}
