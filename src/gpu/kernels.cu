// The project's plain kernels. Names and arguments are described in gpu/kernel_signatures.hpp; the emulated driver runs
// the same names as host functions. All loops stride over the grid, so that any launch shape is right.
#include <cstdint>

#include "cuvmm/gpu/proxy_fence.cuh"
#include "gpu/checksum.hpp"

namespace {

using Byte = unsigned char;
using Word = std::uint64_t;

__device__ Word first_index() {
  return static_cast<Word>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ Word stride() {
  return static_cast<Word>(gridDim.x) * blockDim.x;
}

__device__ bool is_word_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Word) == 0;
}

}  // namespace

extern "C" __global__ void cuvmm_fill(Byte* destination, Word bytes, Word pattern) {
  const Word words = is_word_aligned(destination) ? bytes / sizeof(Word) : 0;
  for (Word index = first_index(); index < words; index += stride()) {
    reinterpret_cast<Word*>(destination)[index] = pattern;
  }
  for (Word index = words * sizeof(Word) + first_index(); index < bytes; index += stride()) {
    destination[index] = static_cast<Byte>(pattern >> (8 * (index % sizeof(Word))));
  }
}

extern "C" __global__ void cuvmm_copy(Byte* destination, const Byte* source, Word bytes) {
  const Word words = is_word_aligned(destination) && is_word_aligned(source) ? bytes / sizeof(Word) : 0;
  for (Word index = first_index(); index < words; index += stride()) {
    reinterpret_cast<Word*>(destination)[index] = reinterpret_cast<const Word*>(source)[index];
  }
  for (Word index = words * sizeof(Word) + first_index(); index < bytes; index += stride()) {
    destination[index] = source[index];
  }
}

extern "C" __global__ void cuvmm_checksum(const Byte* source, Word bytes, Word first_word, unsigned long long* sum) {
  const Word whole_words = is_word_aligned(source) ? bytes / sizeof(Word) : 0;
  const Word words = cuvmm::gpu::checksum_words(bytes);
  Word partial = 0;
  for (Word index = first_index(); index < words; index += stride()) {
    const Word word = index < whole_words ? reinterpret_cast<const Word*>(source)[index]
                                          : cuvmm::gpu::checksum_word(source, bytes, index);
    partial += cuvmm::gpu::checksum_term(word, first_word + index);
  }
  if (partial != 0) atomicAdd(sum, partial);
}

extern "C" __global__ void cuvmm_scale_add(float* y, const float* x, float factor, Word count) {
  for (Word index = first_index(); index < count; index += stride()) y[index] = fmaf(factor, x[index], y[index]);
}

extern "C" __global__ void cuvmm_spin(const volatile std::uint32_t* flag, Word most_polls) {
  for (Word poll = 0; poll < most_polls && *flag == 0; ++poll) __nanosleep(100);
}

// Each thread reads the word that its neighbour in the block wrote. The loop's condition is one for the whole block, so
// that all its threads meet at the barrier.
extern "C" __global__ void cuvmm_alias(Byte* written, const Byte* source, const volatile Byte* read, Word bytes,
                                       Word first_word, unsigned long long* sum) {
  const Word words = cuvmm::gpu::checksum_words(bytes);
  Word partial = 0;
  for (Word base = static_cast<Word>(blockIdx.x) * blockDim.x; base < words; base += stride()) {
    const Word mine = (base + threadIdx.x) * sizeof(Word);
    for (Word byte = mine; byte < bytes && byte < mine + sizeof(Word); ++byte) written[byte] = source[byte];
    cuvmm::gpu::proxy_fence_alias();
    __syncthreads();
    const Word index = base + (threadIdx.x + 1) % blockDim.x;
    if (index >= words) continue;
    Word word = 0;
    for (Word byte = 0; byte < sizeof(Word) && index * sizeof(Word) + byte < bytes; ++byte) {
      word |= static_cast<Word>(read[index * sizeof(Word) + byte]) << (8 * byte);
    }
    partial += cuvmm::gpu::checksum_term(word, first_word + index);
  }
  if (partial != 0) atomicAdd(sum, partial);
}

namespace {

struct ReadState {
  unsigned long long begun;
  unsigned long long sum;
  volatile std::uint32_t stop;
};

// The next tile of a block; none once it is told to stop.
__device__ Word next_tile(ReadState* state, Word tiles) {
  __shared__ Word tile;
  __syncthreads();
  if (threadIdx.x == 0) tile = state->stop != 0 ? tiles : atomicAdd(&state->begun, 1ULL);
  __syncthreads();
  return tile;
}

// Many loads at once, as memory needs to be at its fastest.
__device__ Word sum_of(const ulonglong2* values, Word count) {
  constexpr Word at_once = 8;
  Word sum = 0;
  Word index = threadIdx.x;
  for (; index + (at_once - 1) * blockDim.x < count; index += at_once * blockDim.x) {
    ulonglong2 read[at_once];
#pragma unroll
    for (Word each = 0; each < at_once; ++each) read[each] = values[index + each * blockDim.x];
#pragma unroll
    for (Word each = 0; each < at_once; ++each) sum += read[each].x + read[each].y;
  }
  for (; index < count; index += blockDim.x) sum += values[index].x + values[index].y;
  return sum;
}

}  // namespace

extern "C" __global__ void cuvmm_read(const Byte* source, Word bytes, Word tile_bytes, Word tiles, ReadState* state,
                                      volatile unsigned long long* progress) {
  constexpr Word told_after = 64;
  const Word in_memory = bytes / tile_bytes;
  Word sum = 0;
  for (Word tile = next_tile(state, tiles); tile < tiles; tile = next_tile(state, tiles)) {
    sum += sum_of(reinterpret_cast<const ulonglong2*>(source + tile % in_memory * tile_bytes),
                  tile_bytes / sizeof(ulonglong2));
    if (threadIdx.x == 0 && (tile + 1) % told_after == 0) *progress = tile + 1;
  }
  for (unsigned distance = warpSize / 2; distance != 0; distance /= 2) sum += __shfl_down_sync(~0U, sum, distance);
  if (threadIdx.x % warpSize == 0) atomicAdd(&state->sum, sum);
}
