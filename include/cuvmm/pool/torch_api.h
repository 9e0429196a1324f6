/* The pool behind PyTorch (docs/pytorch.md): functions in the forms that torch.cuda.memory.CUDAPluggableAllocator
 * takes. Sizes are its ssize_t. There is one pool for each device of the process, made when it is first asked for and
 * kept to the end. What goes wrong is written to standard error, since nobody else would tell, and is the thread's
 * cuvmm_pool_last_error(). Thread-safe. */
#pragma once

#include "cuvmm/pool/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-redundant-void-arg): for C */
/* In the order of streams, for the allocator of the whole program. Null for 0 bytes, where there is no memory, and for
 * a stream that is being captured, since a graph would go on using what others get. */
void* cuvmm_pool_torch_malloc(ptrdiff_t bytes, int device, struct CUstream_st* stream);
/* A null address is left alone. */
void cuvmm_pool_torch_free(void* address, ptrdiff_t bytes, int device, struct CUstream_st* stream);
/* Tensor.record_stream(): work of that stream uses it, too. For set_record_stream_fn. */
void cuvmm_pool_torch_record_stream(void* address, struct CUstream_st* stream);
/* torch.cuda.empty_cache(): gives back what is free. For set_reset_fn. */
void cuvmm_pool_torch_empty_cache(void);

/* In the order of no stream, for torch.cuda.MemPool, whose segments PyTorch divides among streams and captured graphs
 * itself, as it does with cudaMalloc's. Freeing waits for the device. */
void* cuvmm_pool_torch_segment_malloc(ptrdiff_t bytes, int device, struct CUstream_st* stream);
void cuvmm_pool_torch_segment_free(void* address, ptrdiff_t bytes, int device, struct CUstream_st* stream);

/* Makes the pool of one device, options->devices[0], as the options say: with a budget, or with other devices that
 * reach its memory. CUVMM_INVALID_USE once there is one. */
int cuvmm_pool_torch_configure(const struct cuvmm_pool_options* options);
/* The pool of both at the device, for statistics, trimming and descriptions. Null where it cannot be made. It is the
 * process's: cuvmm_pool_destroy() leaves it alone. */
cuvmm_pool* cuvmm_pool_torch_pool(int device);
/* NOLINTEND(modernize-redundant-void-arg) */

#ifdef __cplusplus
}
#endif
