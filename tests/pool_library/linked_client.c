/* The pool in C11: what a program does with it, and what it is told where that is wrong. */
#include <string.h>

#include "cuvmm/pool/c_api.h"
#include "cuvmm/pool/c_tags.h"
#include "cuvmm/pool/torch_api.h"
#include "driver.h"

static const size_t mebibyte = 1 << 20;

static int (*copy_in)(void* to, const void* from, size_t bytes);
static int (*copy_out)(void* to, const void* from, size_t bytes);
static int (*wait)(void);

static void test_pool(struct CUstream_st* stream) {
  struct cuvmm_pool_options options;
  cuvmm_pool* pool = NULL;
  void* address = NULL;
  void* none = NULL;
  struct cuvmm_pool_numbers numbers;
  struct cuvmm_pool_allocation found;
  char text[512];
  char bytes[16] = "";
  cuvmm_pool_default_options(&options);
  options.budget = 8 * mebibyte;
  CHECK(cuvmm_pool_create_with(&options, &pool) == CUVMM_SUCCESS);
  CHECK(cuvmm_pool_allocate(pool, 3 * mebibyte, stream, &address) == CUVMM_SUCCESS);
  CHECK(copy_in(address, "through the pool", 16) == 0);
  CHECK(copy_out(bytes, address, 16) == 0);
  CHECK(memcmp(bytes, "through the pool", 16) == 0);
  CHECK(cuvmm_pool_describe(pool, (char*)address + 5, &found) == CUVMM_SUCCESS);
  CHECK(found.address == address && found.offset == 5 && found.stream == stream);
  CHECK(cuvmm_pool_allocate(pool, 9 * mebibyte, stream, &none) == CUVMM_OUT_OF_DEVICE_MEMORY);
  CHECK(none == NULL);
  CHECK(strstr(cuvmm_pool_last_error(), "9437184") != NULL);
  CHECK(cuvmm_pool_statistics(pool, &numbers) == CUVMM_SUCCESS);
  CHECK(numbers.live_bytes == 3 * mebibyte && numbers.reserved_bytes == 4 * mebibyte);
  CHECK(cuvmm_pool_statistics_text(pool, text, sizeof text, NULL) == CUVMM_SUCCESS);
  CHECK(strlen(text) > 20);
  CHECK(cuvmm_pool_free(pool, address, stream) == CUVMM_SUCCESS);
  CHECK(cuvmm_pool_free(pool, address, stream) == CUVMM_INVALID_USE);
  CHECK(strcmp(cuvmm_error_name(CUVMM_INVALID_USE), "invalid use") == 0);
  CHECK(cuvmm_pool_forget(pool, stream) == CUVMM_SUCCESS);
  CHECK(wait() == 0);
  CHECK(cuvmm_pool_trim(pool, 0, NULL) == CUVMM_SUCCESS);
  CHECK(cuvmm_pool_statistics(pool, &numbers) == CUVMM_SUCCESS);
  CHECK(numbers.reserved_bytes == 0);
  cuvmm_pool_destroy(pool);
}

static void test_tags(struct CUstream_st* stream) {
  cuvmm_pool* pool = NULL;
  cuvmm_tagged* tagged = NULL;
  void* address = NULL;
  struct cuvmm_tag_numbers numbers;
  char bytes[8] = "";
  CHECK(cuvmm_pool_create(0, 0, &pool) == CUVMM_SUCCESS);
  CHECK(cuvmm_tagged_create(pool, &tagged) == CUVMM_SUCCESS);
  CHECK(cuvmm_tagged_set_budget(tagged, "weights", 2 * mebibyte) == CUVMM_SUCCESS);
  CHECK(cuvmm_tagged_allocate(tagged, "weights", 5, stream, CUVMM_CONTENT_PAGEABLE, &address) == CUVMM_SUCCESS);
  CHECK(copy_in(address, "kept", 5) == 0);
  CHECK(cuvmm_tagged_sleep(tagged, "weights", NULL) == CUVMM_SUCCESS);
  CHECK(cuvmm_tagged_statistics(tagged, "weights", &numbers) == CUVMM_SUCCESS);
  CHECK(numbers.asleep_bytes == 2 * mebibyte);
  CHECK(cuvmm_tagged_wake(tagged, "weights") == CUVMM_SUCCESS);
  CHECK(copy_out(bytes, address, 5) == 0);
  CHECK(strcmp(bytes, "kept") == 0);
  CHECK(cuvmm_tagged_free(tagged, address) == CUVMM_SUCCESS);
  cuvmm_tagged_destroy(tagged);
  cuvmm_pool_destroy(pool);
}

static void test_torch(struct CUstream_st* stream) {
  void* const ordered = cuvmm_pool_torch_malloc((ptrdiff_t)mebibyte, 0, stream);
  void* const segment = cuvmm_pool_torch_segment_malloc((ptrdiff_t)mebibyte, 0, stream);
  struct cuvmm_pool_numbers numbers;
  CHECK(ordered != NULL && segment != NULL);
  CHECK(cuvmm_pool_statistics(cuvmm_pool_torch_pool(0), &numbers) == CUVMM_SUCCESS);
  CHECK(numbers.live_allocations == 2);
  cuvmm_pool_torch_segment_free(segment, (ptrdiff_t)mebibyte, 0, stream);
  cuvmm_pool_torch_free(ordered, (ptrdiff_t)mebibyte, 0, stream);
}

int main(void) {
  int (*new_stream)(struct CUstream_st**, unsigned) = NULL;
  struct CUstream_st* stream = NULL;
  begin_with_the_driver();
  look_up(driver_library, "cuMemcpyHtoD_v2", &copy_in);
  look_up(driver_library, "cuMemcpyDtoH_v2", &copy_out);
  look_up(driver_library, "cuCtxSynchronize", &wait);
  look_up(driver_library, "cuStreamCreate", &new_stream);
  CHECK(new_stream(&stream, 1) == 0);
  test_pool(stream);
  test_tags(stream);
  test_torch(stream);
  return 0;
}
