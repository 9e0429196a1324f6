#include "cuvmm/pool/torch_api.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "cuvmm/pool/synchronous_allocations.hpp"
#include "driver/call.hpp"
#include "pool/c_calls.hpp"
#include "report_exception.hpp"

using cuvmm::DeviceOrdinal;
using cuvmm::Pool;
using cuvmm::PoolOptions;
using cuvmm::SynchronousAllocations;
using cuvmm::pool::address_of;
using cuvmm::pool::process_driver;
namespace abi = cuvmm::abi;

namespace {

struct ProcessPool {
  explicit ProcessPool(const PoolOptions& options)
      : handle{Pool::create(process_driver(), options), true}, segments(SynchronousAllocations::create(handle.pool)) {}

  cuvmm_pool handle;
  SynchronousAllocations segments;
};

// One a device. They are kept to the end of the process: who frees in destructors of static objects still finds them.
using ProcessPools = std::array<std::atomic<ProcessPool*>, 64>;
ProcessPools& process_pools() {
  static ProcessPools& pools = *new ProcessPools{};
  return pools;
}

std::mutex& making() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::atomic<ProcessPool*>& place_of(int device, std::string_view call) {
  if (device < 0 || static_cast<std::size_t>(device) >= process_pools().size())
    raise(cuvmm::invalid_use(call, fmt::format("device = {}", device), "There is no such device", "Name one"));
  return process_pools()[static_cast<std::size_t>(device)];
}

ProcessPool& pool_of(int device, std::string_view call) {
  std::atomic<ProcessPool*>& place = place_of(device, call);
  if (ProcessPool* const found = place.load(std::memory_order_acquire)) return *found;
  const std::lock_guard lock(making());
  if (place.load() == nullptr) place = new ProcessPool({.devices = {DeviceOrdinal{device}}});
  return *place.load();
}

// Of a default stream that the driver cannot tell of, since another is being captured, it is not.
bool is_captured(CUstream_st* stream) {
  auto status = abi::CU_STREAM_CAPTURE_STATUS_NONE;
  const abi::CUresult answer = process_driver().interface().cuStreamIsCapturing(stream, &status);
  return answer == abi::CUDA_SUCCESS && status != abi::CU_STREAM_CAPTURE_STATUS_NONE;
}

std::size_t size_of(ptrdiff_t bytes, std::string_view call) {
  if (bytes < 0)
    raise(cuvmm::invalid_use(call, fmt::format("bytes = {}", bytes), "No size is less than 0",
                             "Ask for as much as is needed"));
  return static_cast<std::size_t>(bytes);
}

// For functions that have no error to answer: nobody but standard error would be told.
template <class Step>
void told_aloud(std::string_view call, Step&& step) noexcept {
  try {
    cuvmm::pool::refuse_in_forked_child(call);
    step();
  } catch (...) {
    cuvmm::report_current_exception(call);
    static_cast<void>(cuvmm::pool::told_failure());
  }
}

}  // namespace

void* cuvmm_pool_torch_malloc(ptrdiff_t bytes, int device, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_torch_malloc";
  void* address = nullptr;
  told_aloud(call, [&] {
    const std::size_t size = size_of(bytes, call);
    if (size == 0) return;
    Pool& pool = pool_of(device, call).handle.pool;
    if (is_captured(stream))
      raise(cuvmm::invalid_use(call, fmt::format("bytes = {}, stream = {}", bytes, fmt::ptr(stream)),
                               "The stream is being captured: what its graph uses would go to others later",
                               "Capture with a torch.cuda.MemPool of the functions for segments: docs/pytorch.md"));
    address = pool.allocate(size, stream).as_pointer();
  });
  return address;
}

void cuvmm_pool_torch_free(void* address, ptrdiff_t /*bytes*/, int device, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_torch_free";
  if (address == nullptr) return;
  told_aloud(call, [&] { pool_of(device, call).handle.pool.free(address_of(address), stream); });
}

void cuvmm_pool_torch_record_stream(void* address, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_torch_record_stream";
  if (address == nullptr) return;
  told_aloud(call, [&] {
    for (const auto& each : process_pools())
      if (ProcessPool* const pool = each.load(std::memory_order_acquire))
        if (pool->handle.pool.describe(address_of(address)))
          return pool->handle.pool.used_on(address_of(address), stream);
    raise(cuvmm::invalid_use(call, fmt::format("address = {}", address), "No pool has given that address out",
                             "Pass an address that cuvmm_pool_torch_malloc() returned"));
  });
}

void cuvmm_pool_torch_empty_cache() {
  told_aloud("cuvmm_pool_torch_empty_cache", [&] {
    for (const auto& each : process_pools())
      if (ProcessPool* const pool = each.load(std::memory_order_acquire)) pool->handle.pool.trim();
  });
}

void* cuvmm_pool_torch_segment_malloc(ptrdiff_t bytes, int device, CUstream_st* /*stream*/) {
  constexpr std::string_view call = "cuvmm_pool_torch_segment_malloc";
  void* address = nullptr;
  told_aloud(call, [&] {
    const std::size_t size = size_of(bytes, call);
    if (size != 0) address = pool_of(device, call).segments.allocate(size).as_pointer();
  });
  return address;
}

void cuvmm_pool_torch_segment_free(void* address, ptrdiff_t /*bytes*/, int device, CUstream_st* /*stream*/) {
  constexpr std::string_view call = "cuvmm_pool_torch_segment_free";
  if (address == nullptr) return;
  told_aloud(call, [&] { pool_of(device, call).segments.free(address_of(address)); });
}

int cuvmm_pool_torch_configure(const cuvmm_pool_options* options) {
  constexpr std::string_view call = "cuvmm_pool_torch_configure";
  return cuvmm::pool::guarded(call, [&] {
    const PoolOptions wanted = cuvmm::pool::options_of(cuvmm::pool::required(options, call, "options"));
    const int device = wanted.devices.front().value;
    std::atomic<ProcessPool*>& place = place_of(device, call);
    const std::lock_guard lock(making());
    if (wanted.devices.size() != 1 || place.load() != nullptr)
      raise(cuvmm::invalid_use(call, fmt::format("{} device(s), the first is {}", wanted.devices.size(), device),
                               "Each device has one pool, which is configured before it is first asked for",
                               "Name one device, before anything is allocated there"));
    place = new ProcessPool(wanted);
  });
}

cuvmm_pool* cuvmm_pool_torch_pool(int device) {
  constexpr std::string_view call = "cuvmm_pool_torch_pool";
  cuvmm_pool* pool = nullptr;
  told_aloud(call, [&] { pool = &pool_of(device, call).handle; });
  return pool;
}
