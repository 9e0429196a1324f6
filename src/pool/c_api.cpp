#include "cuvmm/pool/c_api.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <new>
#include <string>

#include "cuvmm/pool/pool.hpp"
#include "pool/process_driver.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

using cuvmm::DeviceAddress;
using cuvmm::DeviceOrdinal;
using cuvmm::Driver;
using cuvmm::Failure;
using cuvmm::Pool;

const Driver& cuvmm::pool::process_driver() {
  static const Driver& driver = *new Driver(Driver::open());
  return driver;
}

struct cuvmm_pool {
  Pool pool;
};

namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

// Of the exception that is being handled.
int told_failure() noexcept {
  try {
    const Failure failure = cuvmm::failure_of_current_exception();
    last_error() = failure.message();
    return 1 + static_cast<int>(failure.kind);
  } catch (...) {
    return 1 + static_cast<int>(cuvmm::ErrorKind::out_of_host_memory);
  }
}

template <class Step>
int guarded(Step&& step) noexcept {
  try {
    step();
    return 0;
  } catch (...) {
    return told_failure();
  }
}

template <class Pointer>
Pointer& required(Pointer* pointer, const char* call, const char* argument) {
  if (pointer == nullptr)
    raise(
        cuvmm::invalid_use(call, fmt::format("{} = null", argument), "The argument is needed", "Pass a valid pointer"));
  return *pointer;
}

DeviceAddress address_of(const void* pointer) noexcept {
  return DeviceAddress{reinterpret_cast<std::uintptr_t>(pointer)};
}

// Kept to the end of the process: who frees in destructors of static objects still finds it.
Pool& pool_of(int device) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, Pool>& pools = *new std::map<int, Pool>;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = pools.find(device); found != pools.end()) return found->second;
  }
  Pool made = Pool::create(cuvmm::pool::process_driver(), {.devices = {DeviceOrdinal{device}}});
  const std::lock_guard lock(mutex);
  return pools.try_emplace(device, std::move(made)).first->second;
}

}  // namespace

int cuvmm_pool_create(int device, size_t budget, cuvmm_pool** pool) {
  return guarded([&] {
    cuvmm_pool*& made = required(pool, "cuvmm_pool_create", "pool");
    made = new cuvmm_pool{
        Pool::create(cuvmm::pool::process_driver(), {.devices = {DeviceOrdinal{device}}, .budget = budget})};
  });
}

void cuvmm_pool_destroy(cuvmm_pool* pool) {
  delete pool;
}

int cuvmm_pool_allocate(cuvmm_pool* pool, size_t bytes, CUstream_st* stream, void** address) {
  return guarded([&] {
    void*& given = required(address, "cuvmm_pool_allocate", "address");
    given = required(pool, "cuvmm_pool_allocate", "pool").pool.allocate(bytes, stream).as_pointer();
  });
}

int cuvmm_pool_used_on(cuvmm_pool* pool, void* address, CUstream_st* stream) {
  return guarded([&] { required(pool, "cuvmm_pool_used_on", "pool").pool.used_on(address_of(address), stream); });
}

int cuvmm_pool_free(cuvmm_pool* pool, void* address, CUstream_st* stream) {
  return guarded([&] { required(pool, "cuvmm_pool_free", "pool").pool.free(address_of(address), stream); });
}

int cuvmm_pool_forget(cuvmm_pool* pool, CUstream_st* stream) {
  return guarded([&] { required(pool, "cuvmm_pool_forget", "pool").pool.forget(stream); });
}

int cuvmm_pool_trim(cuvmm_pool* pool, size_t keep_bytes, size_t* given) {
  return guarded([&] {
    const size_t bytes = required(pool, "cuvmm_pool_trim", "pool").pool.trim(keep_bytes);
    if (given != nullptr) *given = bytes;
  });
}

int cuvmm_pool_statistics(cuvmm_pool* pool, cuvmm_pool_numbers* numbers) {
  return guarded([&] {
    const auto now = required(pool, "cuvmm_pool_statistics", "pool").pool.statistics();
    required(numbers, "cuvmm_pool_statistics", "numbers") = {now.live_bytes,      now.live_allocations,
                                                             now.reserved_bytes,  now.recyclable_bytes,
                                                             now.peak_live_bytes, now.peak_reserved_bytes};
  });
}

const char* cuvmm_pool_last_error() {
  return last_error().c_str();
}

void* cuvmm_pool_torch_malloc(ptrdiff_t bytes, int device, CUstream_st* stream) {
  void* address = nullptr;
  const int failed = guarded([&] {
    if (bytes < 0)
      raise(cuvmm::invalid_use("cuvmm_pool_torch_malloc", fmt::format("bytes = {}", bytes), "No size is less than 0",
                               "Ask for as much as is needed"));
    address = pool_of(device).allocate(static_cast<std::size_t>(bytes), stream).as_pointer();
  });
  return failed == 0 ? address : nullptr;
}

void cuvmm_pool_torch_free(void* address, ptrdiff_t /*bytes*/, int device, CUstream_st* stream) {
  if (address == nullptr) return;
  try {
    pool_of(device).free(address_of(address), stream);
  } catch (...) {
    cuvmm::report_current_exception("cuvmm_pool_torch_free");
  }
}
