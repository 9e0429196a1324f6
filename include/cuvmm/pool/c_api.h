/* The pool for programs in C, and for those that load functions by their names. Nothing is thrown; each function that
 * can fail answers 0, or else a number that is 1 + cuvmm::ErrorKind, and cuvmm_pool_last_error() tells more.
 * Thread-safe as cuvmm::Pool, by which all is described (pool.hpp). */
#pragma once

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): for C */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuvmm_pool cuvmm_pool; /* NOLINT(modernize-use-using) */
struct CUstream_st;

struct cuvmm_pool_numbers {
  size_t live_bytes;          /* given out, as it was asked for */
  size_t live_allocations;    /* how many that are */
  size_t reserved_bytes;      /* of physical memory that exists for the pool */
  size_t recyclable_bytes;    /* of these, what could be given back */
  size_t peak_live_bytes;     /* the most of the first that there was */
  size_t peak_reserved_bytes; /* and of the third */
};

/* A pool at one device, with the CUDA driver, or the emulated one where CUVMM_DRIVER says so. budget: the most bytes of
 * physical memory, 0 for no limit. */
int cuvmm_pool_create(int device, size_t budget, cuvmm_pool** pool);
/* A null pointer is left alone. */
void cuvmm_pool_destroy(cuvmm_pool* pool);

int cuvmm_pool_allocate(cuvmm_pool* pool, size_t bytes, struct CUstream_st* stream, void** address);
int cuvmm_pool_used_on(cuvmm_pool* pool, void* address, struct CUstream_st* stream);
int cuvmm_pool_free(cuvmm_pool* pool, void* address, struct CUstream_st* stream);
int cuvmm_pool_forget(cuvmm_pool* pool, struct CUstream_st* stream);
/* given may be null. */
int cuvmm_pool_trim(cuvmm_pool* pool, size_t keep_bytes, size_t* given);
int cuvmm_pool_statistics(cuvmm_pool* pool, struct cuvmm_pool_numbers* numbers);

/* What went wrong in the last function of these that failed in this thread; "" if none did. Valid until the next. */
const char* cuvmm_pool_last_error(void); /* NOLINT(modernize-redundant-void-arg) */

/* In the form that PyTorch's CUDAPluggableAllocator takes (sizes are its ssize_t). One pool for each device of the
 * process, made when it is first asked for and kept to the end. malloc answers null where there is no memory; what
 * goes wrong in free goes to the clean-up failure handler. */
void* cuvmm_pool_torch_malloc(ptrdiff_t bytes, int device, struct CUstream_st* stream);
void cuvmm_pool_torch_free(void* address, ptrdiff_t bytes, int device, struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif
