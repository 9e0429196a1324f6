/* What of the CUDA driver the clients call, which is loaded as PyTorch loads it. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* ISO C has no cast from an object's pointer to a function's. */
static void* driver_library;
static void look_up(void* library, const char* name, void* function) {
  *(void**)function = dlsym(library, name);
  if (*(void**)function == NULL) {
    fprintf(stderr, "%s is missing\n", name);
    exit(1);
  }
}

/* The primary context of device 0 becomes current. */
static void begin_with_the_driver(void) {
  int (*init)(unsigned) = NULL;
  int (*retain)(void**, int) = NULL;
  int (*make_current)(void*) = NULL;
  void* context = NULL;
  driver_library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(driver_library != NULL);
  look_up(driver_library, "cuInit", &init);
  look_up(driver_library, "cuDevicePrimaryCtxRetain", &retain);
  look_up(driver_library, "cuCtxSetCurrent", &make_current);
  CHECK(init(0) == 0);
  CHECK(retain(&context, 0) == 0);
  CHECK(make_current(context) == 0);
}
