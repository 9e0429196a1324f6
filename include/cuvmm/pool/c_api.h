/* The pool for programs in C, and for those that load functions by their names. Nothing is thrown; each function that
 * can fail answers an error, of which 0 is none, and cuvmm_pool_last_error() tells more. A pointer that is needed and
 * null is CUVMM_INVALID_USE, as is every call in a forked child of the process that opened the driver. Thread-safe as
 * cuvmm::Pool, by which all is described (pool.hpp).
 *
 *   cuvmm_pool* pool = NULL;
 *   if (cuvmm_pool_create(0, 0, &pool) != 0) return tell(cuvmm_pool_last_error());
 *   if (cuvmm_pool_allocate(pool, bytes, stream, &address) != 0) ...
 *   cuvmm_pool_free(pool, address, stream);
 *   cuvmm_pool_destroy(pool); */
#pragma once

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): for C */

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using,modernize-redundant-void-arg,performance-enum-size): for C */
typedef struct cuvmm_pool cuvmm_pool;
struct CUstream_st; /* a CUstream or cudaStream_t points to one */

enum cuvmm_error {
  CUVMM_SUCCESS = 0,
  CUVMM_DRIVER_FAILURE = 1, /* none of the others */
  CUVMM_OUT_OF_DEVICE_MEMORY = 2,
  CUVMM_OUT_OF_HOST_MEMORY = 3,
  CUVMM_OUT_OF_ADDRESS_SPACE = 4,
  CUVMM_OUT_OF_MULTICAST_SLOTS = 5,
  CUVMM_OUT_OF_DESCRIPTORS = 6,
  CUVMM_NOT_SUPPORTED = 7,
  CUVMM_NOT_PERMITTED = 8,
  CUVMM_INVALID_USE = 9,
  CUVMM_TIMED_OUT = 10,
  CUVMM_PEER_GONE = 11,
  CUVMM_PROTOCOL_VIOLATION = 12,
  CUVMM_DEVICE_LOST = 13,
  CUVMM_DRIVER_UNAVAILABLE = 14
};

/* "success", "out of device memory"; never null. */
const char* cuvmm_error_name(int error);

/* What went wrong in the last function of these that failed in this thread; "" if none did. Valid until the next. */
const char* cuvmm_pool_last_error(void);

/* As cuvmm::PoolOptions (pool_options.hpp). Begin with cuvmm_pool_default_options(), and change what is to differ. */
struct cuvmm_pool_options {
  const int* devices;  /* whose memory the pool gives out; null: of device 0 */
  size_t device_count; /* how many that are; 0 is refused unless devices is null */
  const int* grants;   /* devices that may access all of it as well; null: none */
  size_t grant_count;
  size_t budget; /* bytes of physical memory at one device, at most; 0: no limit */
  size_t large_from;
  long long reuse_wait_microseconds;
  long long pressure_wait_milliseconds;
};

struct cuvmm_pool_numbers {
  size_t live_bytes;               /* given out, as it was asked for */
  size_t live_allocations;         /* how many that are */
  size_t reserved_bytes;           /* of physical memory that exists for the pool */
  size_t recyclable_bytes;         /* of these, what could be given back */
  size_t peak_live_bytes;          /* the most of the first that there was */
  size_t peak_reserved_bytes;      /* and of the third */
  size_t pending_bytes;            /* freed; the device may not be done with it */
  size_t holes;                    /* free places beside what is live */
  size_t largest_hole;             /* of these: bytes that are free side by side */
  size_t mappings;                 /* chunks of physical memory that are mapped */
  unsigned long long allocations;  /* ever made */
  unsigned long long warm;         /* of these, without mapping anything */
  unsigned long long remapped;     /* chunks that were moved to another address */
  unsigned long long driver_calls; /* cuMemCreate, cuMemRelease, cuMemMap, cuMemSetAccess and cuMemUnmap */
};

struct cuvmm_pool_allocation {
  void* address;              /* where it begins */
  size_t bytes;               /* as it was asked for */
  size_t rounded_bytes;       /* what it takes */
  size_t offset;              /* of the address that was asked about */
  struct CUstream_st* stream; /* that it was allocated on */
  int device;
};

/* A pool at one device, with the CUDA driver, or the emulated one where CUVMM_DRIVER says so. budget: as above. */
int cuvmm_pool_create(int device, size_t budget, cuvmm_pool** pool);
void cuvmm_pool_default_options(struct cuvmm_pool_options* options);
int cuvmm_pool_create_with(const struct cuvmm_pool_options* options, cuvmm_pool** pool);
/* A pool for one captured graph (cuvmm::Pool::make_private), which is to be destroyed by itself. */
int cuvmm_pool_make_private(cuvmm_pool* pool, cuvmm_pool** made);
/* A null pointer is left alone, and so is any pool in a forked child. */
void cuvmm_pool_destroy(cuvmm_pool* pool);

int cuvmm_pool_allocate(cuvmm_pool* pool, size_t bytes, struct CUstream_st* stream, void** address);
int cuvmm_pool_allocate_at(cuvmm_pool* pool, size_t bytes, struct CUstream_st* stream, int device, void** address);
int cuvmm_pool_used_on(cuvmm_pool* pool, void* address, struct CUstream_st* stream);
int cuvmm_pool_free(cuvmm_pool* pool, void* address, struct CUstream_st* stream);
int cuvmm_pool_forget(cuvmm_pool* pool, struct CUstream_st* stream);

/* Both: given may be null. The second ends once step_bytes were given back. */
int cuvmm_pool_trim(cuvmm_pool* pool, size_t keep_bytes, size_t* given);
int cuvmm_pool_trim_some(cuvmm_pool* pool, size_t keep_bytes, size_t step_bytes, size_t* given);

int cuvmm_pool_statistics(cuvmm_pool* pool, struct cuvmm_pool_numbers* numbers);
int cuvmm_pool_statistics_at(cuvmm_pool* pool, int device, struct cuvmm_pool_numbers* numbers);
/* All of it in sentences, cut to `bytes` with the 0 at its end. needed, which may be null, is told how many bytes the
 * whole takes; text may be null where bytes is 0. */
int cuvmm_pool_statistics_text(cuvmm_pool* pool, char* text, size_t bytes, size_t* needed);
/* The live allocation that the address lies in; all zeros where there is none. */
int cuvmm_pool_describe(cuvmm_pool* pool, const void* address, struct cuvmm_pool_allocation* allocation);
/* NOLINTEND(modernize-use-using,modernize-redundant-void-arg,performance-enum-size) */

#ifdef __cplusplus
}
#endif
