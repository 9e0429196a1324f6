/* loading_client LIBRARY CASE: loads the library, and ends in an unusual way. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "cuvmm/pool/torch_api.h"
#include "driver.h"

static void* (*torch_malloc)(ptrdiff_t, int, struct CUstream_st*);
static void (*torch_free)(void*, ptrdiff_t, int, struct CUstream_st*);
static const char* (*last_error)(void);

static void* load(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  look_up(library, "cuvmm_pool_torch_segment_malloc", &torch_malloc);
  look_up(library, "cuvmm_pool_torch_segment_free", &torch_free);
  look_up(library, "cuvmm_pool_last_error", &last_error);
  return library;
}

/* Closing it leaves code and pools where they are; loading it again finds them. */
static void closes_while_memory_is_live(const char* path) {
  void* library = load(path);
  void* const kept = torch_malloc(1 << 20, 0, NULL);
  CHECK(kept != NULL);
  void* const more = torch_malloc(1 << 20, 0, NULL);
  CHECK(dlclose(library) == 0);
  torch_free(more, 1 << 20, 0, NULL);
  library = load(path);
  void* const again = torch_malloc(1 << 20, 0, NULL);
  CHECK(again == more);
  CHECK(dlclose(library) == 0);
}

static void* allocate_for_ever(void* seed) {
  ptrdiff_t bytes = *(const ptrdiff_t*)seed;
  for (;;) {
    bytes = bytes * 7 % 4000037 + 1;
    void* const address = torch_malloc(bytes, 0, NULL);
    torch_free(address, bytes, 0, NULL);
  }
  return NULL;
}

/* main returns, and destructors of static objects run, while others allocate. */
static void ends_while_threads_allocate(const char* path) {
  static ptrdiff_t seeds[] = {1, 22222, 333333};
  const struct timespec a_while = {0, 100000000};
  load(path);
  CHECK(torch_malloc(1, 0, NULL) != NULL);
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; ++i) {
    pthread_t thread = 0;
    CHECK(pthread_create(&thread, NULL, allocate_for_ever, &seeds[i]) == 0);
    CHECK(pthread_detach(thread) == 0);
  }
  nanosleep(&a_while, NULL);
}

/* Null and a text, and nothing thrown through a caller in C. */
static void says_what_is_missing(const char* path) {
  load(path);
  CHECK(strcmp(last_error(), "") == 0);
  CHECK(torch_malloc(1 << 20, 0, NULL) == NULL);
  CHECK(strstr(last_error(), "names no driver") != NULL);
}

int main(int count, char** arguments) {
  CHECK(count == 3);
  if (strcmp(arguments[2], "says_what_is_missing") == 0) {
    says_what_is_missing(arguments[1]);
    return 0;
  }
  begin_with_the_driver();
  if (strcmp(arguments[2], "closes_while_memory_is_live") == 0) {
    closes_while_memory_is_live(arguments[1]);
  } else {
    CHECK(strcmp(arguments[2], "ends_while_threads_allocate") == 0);
    ends_while_threads_allocate(arguments[1]);
  }
  return 0;
}
