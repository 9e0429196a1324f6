#include "cuvmm/pool/c_api.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "pool/c_calls.hpp"
#include "report_exception.hpp"

using cuvmm::DeviceOrdinal;
using cuvmm::ErrorKind;
using cuvmm::Pool;
using cuvmm::PoolOptions;
using cuvmm::pool::address_of;
using cuvmm::pool::guarded;
using cuvmm::pool::options_of;
using cuvmm::pool::process_driver;
using cuvmm::pool::required;

namespace {

constexpr int number_of(ErrorKind kind) noexcept {
  return 1 + static_cast<int>(kind);
}
static_assert(number_of(ErrorKind::driver_failure) == CUVMM_DRIVER_FAILURE);
static_assert(number_of(ErrorKind::out_of_device_memory) == CUVMM_OUT_OF_DEVICE_MEMORY);
static_assert(number_of(ErrorKind::out_of_host_memory) == CUVMM_OUT_OF_HOST_MEMORY);
static_assert(number_of(ErrorKind::out_of_address_space) == CUVMM_OUT_OF_ADDRESS_SPACE);
static_assert(number_of(ErrorKind::out_of_multicast_slots) == CUVMM_OUT_OF_MULTICAST_SLOTS);
static_assert(number_of(ErrorKind::out_of_descriptors) == CUVMM_OUT_OF_DESCRIPTORS);
static_assert(number_of(ErrorKind::not_supported) == CUVMM_NOT_SUPPORTED);
static_assert(number_of(ErrorKind::not_permitted) == CUVMM_NOT_PERMITTED);
static_assert(number_of(ErrorKind::invalid_use) == CUVMM_INVALID_USE);
static_assert(number_of(ErrorKind::timed_out) == CUVMM_TIMED_OUT);
static_assert(number_of(ErrorKind::peer_gone) == CUVMM_PEER_GONE);
static_assert(number_of(ErrorKind::protocol_violation) == CUVMM_PROTOCOL_VIOLATION);
static_assert(number_of(ErrorKind::device_lost) == CUVMM_DEVICE_LOST);
static_assert(number_of(ErrorKind::driver_unavailable) == CUVMM_DRIVER_UNAVAILABLE);

std::string& last_error() {
  thread_local std::string text;
  return text;
}

Pool& pool_of(cuvmm_pool* handle, std::string_view call) {
  return required(handle, call, "pool").pool;
}

std::vector<DeviceOrdinal> ordinals(const int* devices, std::size_t count, std::string_view argument) {
  std::vector<DeviceOrdinal> all;
  if (count == 0) {
    if (devices != nullptr)
      raise(cuvmm::invalid_use("cuvmm_pool_options", fmt::format("{} is not null, their count is 0", argument),
                               "Where devices are given, so is how many they are", "Pass the count, or null"));
    return all;
  }
  const int& first = required(devices, "cuvmm_pool_options", argument);
  std::transform(&first, &first + count, std::back_inserter(all), [](int device) { return DeviceOrdinal{device}; });
  return all;
}

cuvmm_pool_numbers numbers_of(const cuvmm::PoolStatistics& now) {
  cuvmm_pool_numbers numbers{};
  numbers.live_bytes = now.live_bytes;
  numbers.live_allocations = now.live_allocations;
  numbers.reserved_bytes = now.reserved_bytes;
  numbers.recyclable_bytes = now.recyclable_bytes;
  numbers.peak_live_bytes = now.peak_live_bytes;
  numbers.peak_reserved_bytes = now.peak_reserved_bytes;
  numbers.pending_bytes = now.pending_bytes;
  numbers.holes = now.holes;
  numbers.largest_hole = now.largest_hole;
  numbers.mappings = now.mappings;
  numbers.allocations = now.allocations;
  numbers.warm = now.warm;
  numbers.remapped = now.remapped;
  numbers.driver_calls = now.calls.total();
  return numbers;
}

}  // namespace

PoolOptions cuvmm::pool::options_of(const cuvmm_pool_options& given) {
  PoolOptions options;
  if (auto devices = ordinals(given.devices, given.device_count, "devices"); !devices.empty())
    options.devices = std::move(devices);
  for (const DeviceOrdinal device : ordinals(given.grants, given.grant_count, "grants"))
    options.grants.push_back({cuvmm::Location::device(device)});
  options.budget = given.budget;
  options.large_from = given.large_from;
  options.reuse_wait = std::chrono::microseconds(given.reuse_wait_microseconds);
  options.pressure_wait = std::chrono::milliseconds(given.pressure_wait_milliseconds);
  return options;
}

int cuvmm::pool::told_failure() noexcept {
  try {
    const cuvmm::Failure failure = failure_of_current_exception();
    last_error() = failure.message();
    return number_of(failure.kind);
  } catch (...) {
    return CUVMM_OUT_OF_HOST_MEMORY;
  }
}

const char* cuvmm_error_name(int error) {
  if (error == CUVMM_SUCCESS) return "success";
  if (error < CUVMM_DRIVER_FAILURE || error > CUVMM_DRIVER_UNAVAILABLE) return "no error of cuvmm";
  return cuvmm::to_string(static_cast<ErrorKind>(error - 1)).data();  // a literal
}

const char* cuvmm_pool_last_error() {
  return last_error().c_str();
}

int cuvmm_pool_create(int device, size_t budget, cuvmm_pool** pool) {
  constexpr std::string_view call = "cuvmm_pool_create";
  return guarded(call, [&] {
    cuvmm_pool*& made = required(pool, call, "pool");
    made = new cuvmm_pool{Pool::create(process_driver(), {.devices = {DeviceOrdinal{device}}, .budget = budget})};
  });
}

void cuvmm_pool_default_options(cuvmm_pool_options* options) {
  if (options == nullptr) return;
  const PoolOptions defaults;
  *options = {};
  options->large_from = defaults.large_from;
  options->reuse_wait_microseconds = defaults.reuse_wait.count();
  options->pressure_wait_milliseconds = defaults.pressure_wait.count();
}

int cuvmm_pool_create_with(const cuvmm_pool_options* options, cuvmm_pool** pool) {
  constexpr std::string_view call = "cuvmm_pool_create_with";
  return guarded(call, [&] {
    cuvmm_pool*& made = required(pool, call, "pool");
    made = new cuvmm_pool{Pool::create(process_driver(), options_of(required(options, call, "options")))};
  });
}

int cuvmm_pool_make_private(cuvmm_pool* pool, cuvmm_pool** made) {
  constexpr std::string_view call = "cuvmm_pool_make_private";
  return guarded(call, [&] {
    cuvmm_pool*& result = required(made, call, "made");
    result = new cuvmm_pool{pool_of(pool, call).make_private()};
  });
}

void cuvmm_pool_destroy(cuvmm_pool* pool) {
  if (pool == nullptr || pool->of_process || cuvmm::pool::in_forked_child()) return;
  delete pool;
}

int cuvmm_pool_allocate(cuvmm_pool* pool, size_t bytes, CUstream_st* stream, void** address) {
  constexpr std::string_view call = "cuvmm_pool_allocate";
  return guarded(call, [&] {
    void*& given = required(address, call, "address");
    given = pool_of(pool, call).allocate(bytes, stream).as_pointer();
  });
}

int cuvmm_pool_allocate_at(cuvmm_pool* pool, size_t bytes, CUstream_st* stream, int device, void** address) {
  constexpr std::string_view call = "cuvmm_pool_allocate_at";
  return guarded(call, [&] {
    void*& given = required(address, call, "address");
    given = pool_of(pool, call).allocate(bytes, stream, DeviceOrdinal{device}).as_pointer();
  });
}

int cuvmm_pool_used_on(cuvmm_pool* pool, void* address, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_used_on";
  return guarded(call, [&] { pool_of(pool, call).used_on(address_of(address), stream); });
}

int cuvmm_pool_free(cuvmm_pool* pool, void* address, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_free";
  return guarded(call, [&] { pool_of(pool, call).free(address_of(address), stream); });
}

int cuvmm_pool_forget(cuvmm_pool* pool, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_pool_forget";
  return guarded(call, [&] { pool_of(pool, call).forget(stream); });
}

int cuvmm_pool_trim(cuvmm_pool* pool, size_t keep_bytes, size_t* given) {
  return cuvmm_pool_trim_some(pool, keep_bytes, SIZE_MAX, given);
}

int cuvmm_pool_trim_some(cuvmm_pool* pool, size_t keep_bytes, size_t step_bytes, size_t* given) {
  constexpr std::string_view call = "cuvmm_pool_trim";
  return guarded(call, [&] {
    const size_t bytes = pool_of(pool, call).trim(keep_bytes, step_bytes);
    if (given != nullptr) *given = bytes;
  });
}

int cuvmm_pool_statistics(cuvmm_pool* pool, cuvmm_pool_numbers* numbers) {
  constexpr std::string_view call = "cuvmm_pool_statistics";
  return guarded(call, [&] { required(numbers, call, "numbers") = numbers_of(pool_of(pool, call).statistics()); });
}

int cuvmm_pool_statistics_at(cuvmm_pool* pool, int device, cuvmm_pool_numbers* numbers) {
  constexpr std::string_view call = "cuvmm_pool_statistics_at";
  return guarded(call, [&] {
    required(numbers, call, "numbers") = numbers_of(pool_of(pool, call).statistics(DeviceOrdinal{device}));
  });
}

int cuvmm_pool_statistics_text(cuvmm_pool* pool, char* text, size_t bytes, size_t* needed) {
  constexpr std::string_view call = "cuvmm_pool_statistics_text";
  return guarded(call, [&] {
    const std::string whole = cuvmm::to_string(pool_of(pool, call).statistics());
    if (needed != nullptr) *needed = whole.size() + 1;
    if (bytes == 0) return;
    const std::size_t shown = std::min(bytes - 1, whole.size());
    std::memcpy(&required(text, call, "text"), whole.data(), shown);
    text[shown] = '\0';
  });
}

int cuvmm_pool_describe(cuvmm_pool* pool, const void* address, cuvmm_pool_allocation* allocation) {
  constexpr std::string_view call = "cuvmm_pool_describe";
  return guarded(call, [&] {
    cuvmm_pool_allocation& told = required(allocation, call, "allocation");
    const auto found = pool_of(pool, call).describe(address_of(address));
    told = {};
    if (!found) return;
    told.address = found->address.as_pointer();
    told.bytes = found->bytes;
    told.rounded_bytes = found->rounded_bytes;
    told.offset = found->offset;
    told.stream = found->stream;
    told.device = found->device.value;
  });
}
