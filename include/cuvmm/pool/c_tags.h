/* Allocations in groups that sleep and wake, for programs in C: cuvmm::TaggedAllocations, by which all is described
 * (tagged_allocations.hpp). Errors as in c_api.h. */
#pragma once

#include "cuvmm/pool/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using,performance-enum-size): for C */
typedef struct cuvmm_tagged cuvmm_tagged;

/* Where the content is while it sleeps: cuvmm::SleepingContent. */
enum cuvmm_sleeping_content {
  CUVMM_CONTENT_DISCARDED = 0,
  CUVMM_CONTENT_PINNED = 1,
  CUVMM_CONTENT_PAGEABLE = 2,
  CUVMM_CONTENT_FILE = 3
};

enum cuvmm_group_state { CUVMM_AWAKE = 0, CUVMM_ASLEEP = 1, CUVMM_PARTLY_ASLEEP = 2 };

struct cuvmm_tag_numbers {
  size_t live_bytes;         /* as they were asked for */
  size_t live_allocations;   /* how many that are */
  size_t rounded_bytes;      /* of physical memory that they take when all of them are awake */
  size_t asleep_bytes;       /* of these, what is given back as long as it sleeps */
  size_t peak_live_bytes;    /* the most of the first that there was */
  size_t peak_rounded_bytes; /* and of the third */
  size_t budget;             /* the most that the third may be; 0: no limit */
};

/* On the memory of the pool's source. The pool may be destroyed first. */
int cuvmm_tagged_create(cuvmm_pool* pool, cuvmm_tagged** tagged);
/* A null pointer is left alone, and so is all in a forked child. */
void cuvmm_tagged_destroy(cuvmm_tagged* tagged);

/* content: one of cuvmm_sleeping_content. */
int cuvmm_tagged_allocate(cuvmm_tagged* tagged, const char* tag, size_t bytes, struct CUstream_st* stream, int content,
                          void** address);
int cuvmm_tagged_used_on(cuvmm_tagged* tagged, void* address, struct CUstream_st* stream);
int cuvmm_tagged_free(cuvmm_tagged* tagged, void* address);

/* given: bytes of physical memory given back; may be null. */
int cuvmm_tagged_sleep(cuvmm_tagged* tagged, const char* tag, size_t* given);
int cuvmm_tagged_wake(cuvmm_tagged* tagged, const char* tag);
/* state: one of cuvmm_group_state. */
int cuvmm_tagged_state(cuvmm_tagged* tagged, const char* tag, int* state);

int cuvmm_tagged_set_budget(cuvmm_tagged* tagged, const char* tag, size_t bytes);
int cuvmm_tagged_statistics(cuvmm_tagged* tagged, const char* tag, struct cuvmm_tag_numbers* numbers);
/* NOLINTEND(modernize-use-using,performance-enum-size) */

#ifdef __cplusplus
}
#endif
