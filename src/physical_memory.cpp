#include "cuvmm/physical_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "driver/convert.hpp"
#include "missing_device.hpp"
#include "owner_states.hpp"
#include "pointer_query.hpp"
#include "range/mapped_range_impl.hpp"
#include "refusal.hpp"
#include "windows_handles.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;
using driver::try_call;

namespace {

// Adds what was wrong with the size, if it was the size. Asked only now: a right size must not cost a driver call.
void explain_size(Failure& failure, const Driver& driver, const abi::CUmemAllocationProp& properties,
                  std::size_t bytes) {
  std::size_t granularity = 0;
  const Result<void> asked = try_call<EntryPoint::cuMemGetAllocationGranularity>(
      driver.interface(), &granularity, &properties, abi::CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (!asked || granularity == 0 || (bytes != 0 && is_aligned(bytes, granularity))) return;
  const auto rounded = checked_align_up(std::max<std::size_t>(bytes, 1), granularity);
  failure.rule_ids = "CREATE-SIZE-GRANULARITY";
  failure.rule = fmt::format("The size must be a multiple of the granularity, {} bytes ({}), and not 0", granularity,
                             format_bytes(granularity));
  failure.way_out = rounded ? fmt::format("Ask for {} bytes: PhysicalMemory::rounded_up computes it", *rounded)
                            : "Ask for fewer bytes";
  failure.asked_bytes = bytes;
  failure.rounded_bytes = rounded;
}

// Adds that it was the NUMA node, where nothing else can be wrong.
void explain_node(Failure& failure, const Location& location) {
  if (location.kind != LocationKind::host_numa || failure.rounded_bytes) return;
  failure.rule_ids = "CREATE-LOCATION";
  failure.rule = fmt::format("NUMA node {} of the host must be there and have memory", location.id);
  failure.way_out =
      "Name a node that /sys/devices/system/node/has_memory lists, or Location::host() for memory of any node";
}

// Adds how much is free, if the current context is one of the device that ran out.
void explain_shortage(Failure& failure, const Driver& driver, const Location& location) {
  int current = -1;
  std::size_t free = 0;
  std::size_t total = 0;
  driver::Interface& interface = driver.interface();
  if (location.kind == LocationKind::device && interface.cuCtxGetDevice(&current) == abi::CUDA_SUCCESS &&
      current == location.id && interface.cuMemGetInfo(&free, &total) == abi::CUDA_SUCCESS)
    failure.free_bytes = free;
}

constexpr std::string_view creating = "PhysicalMemory::create";

// What no driver has, or would not explain.
std::optional<Failure> refusal_of(const MemoryProperties& properties) {
  if (auto refused = windows_handles_refused(creating, properties.handle_types)) return refused;
  if (auto flaw = range::flaw_in({properties.location, AccessRights::none}))
    return invalid_use(creating, fmt::format("location = {}", to_string(properties.location)), std::move(flaw->rule),
                       flaw->way_out, "CREATE-LOCATION");
  return host_handles_refused(creating, properties);
}

std::optional<Failure> refusal_to_adopt(unsigned long long handle, std::size_t bytes) {
  const bool too_large = bytes > SIZE_MAX / 2;  // offset and size are added up, and must not wrap
  if (handle != 0 && bytes != 0 && !too_large) return std::nullopt;
  return invalid_use(
      "PhysicalMemory::adopt", fmt::format("handle = {:#x}, bytes = {}", handle, bytes),
      too_large ? "No memory is that large" : "Neither the handle nor the size of memory is 0",
      "Pass what cuMemCreate, an import or a retain returned, and the size that was given to cuMemCreate",
      handle == 0 ? "HANDLE-LIVE"
      : too_large ? "RANGE-FITS"
                  : "CREATE-SIZE-GRANULARITY");
}

}  // namespace

PhysicalMemory::PhysicalMemory(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<PhysicalMemory> PhysicalMemory::try_create(const Driver& driver, const MemoryProperties& properties,
                                                  std::size_t bytes) {
  if (auto refused = refusal_of(properties)) return std::move(*refused);
  auto state = std::make_shared<State>(driver, properties, bytes);  // before the call: nothing may fail after it
  const abi::CUmemAllocationProp converted = driver::to_abi(properties);
  const Result<void> created =
      try_call<EntryPoint::cuMemCreate>(driver.interface(), &state->handle, bytes, &converted, 0ULL);
  if (created) {
    state->owned = true;
    return PhysicalMemory(std::move(state));
  }
  Failure failure = with_missing_device_told(created.failure(), driver, properties.location, "CREATE-LOCATION");
  if (failure.code == abi::CUDA_ERROR_INVALID_VALUE) {
    explain_size(failure, driver, converted, bytes);
    explain_node(failure, properties.location);
  }
  if (failure.kind == ErrorKind::out_of_device_memory) explain_shortage(failure, driver, properties.location);
  if (failure.kind == ErrorKind::not_permitted && properties.handle_types.contains(HandleType::fabric))
    failure.feature = "fabric handles";
  return failure;
}

PhysicalMemory PhysicalMemory::create(const Driver& driver, const MemoryProperties& properties, std::size_t bytes) {
  return try_create(driver, properties, bytes).value();
}

PhysicalMemory PhysicalMemory::adopt(const Driver& driver, unsigned long long handle,
                                     const MemoryProperties& properties, std::size_t bytes) {
  if (const auto refused = refusal_to_adopt(handle, bytes)) raise(*refused);
  auto state = std::make_shared<State>(driver, properties, bytes);
  state->handle = handle;
  state->owned = true;
  return PhysicalMemory(std::move(state));
}

PhysicalMemory PhysicalMemory::adopt(const Driver& driver, unsigned long long handle, std::size_t bytes) {
  if (const auto refused = refusal_to_adopt(handle, bytes)) raise(*refused);
  abi::CUmemAllocationProp got{};
  call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(driver.interface(), &got, handle);
  return adopt(driver, handle, driver::from_abi(got), bytes);
}

Result<PhysicalMemory> PhysicalMemory::try_retain(const Driver& driver, DeviceAddress address) {
  auto state = std::make_shared<State>(driver, MemoryProperties{}, 0);  // before the call: nothing may fail after it
  const Result<void> retained =
      try_call<EntryPoint::cuMemRetainAllocationHandle>(driver.interface(), &state->handle, address.as_pointer<void>());
  if (!retained) return retained.failure();
  state->owned = true;
  RecyclableMemory::all().held_elsewhere(state->handle);
  const auto facts = query_pointer(driver, address);
  if (!facts) return facts.failure();
  abi::CUmemAllocationProp got{};
  const Result<void> asked =
      try_call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(driver.interface(), &got, state->handle);
  if (!asked) return asked.failure();
  state->size = facts->size;
  state->properties = driver::from_abi(got);
  return PhysicalMemory(std::move(state));
}

PhysicalMemory PhysicalMemory::retain(const Driver& driver, DeviceAddress address) {
  return try_retain(driver, address).value();
}

unsigned long long PhysicalMemory::give_out() {
  if (!state_) raise(owns_nothing("PhysicalMemory::give_out", "memory"));
  const unsigned long long handle = state_->handle;
  state_->owned = false;
  state_.reset();
  return handle;
}

std::size_t PhysicalMemory::granularity(const Driver& driver, const MemoryProperties& properties, Granularity which) {
  const abi::CUmemAllocationProp converted = driver::to_abi(properties);
  std::size_t granularity = 0;
  const Result<void> asked = try_call<EntryPoint::cuMemGetAllocationGranularity>(
      driver.interface(), &granularity, &converted, static_cast<abi::CUmemAllocationGranularity_flags>(which));
  if (!asked) raise(with_missing_device_told(asked.failure(), driver, properties.location, "CREATE-LOCATION"));
  if (granularity == 0) raise(nonsense("cuMemGetAllocationGranularity", "a granularity of 0"));
  return granularity;
}

std::size_t PhysicalMemory::rounded_up(const Driver& driver, const MemoryProperties& properties, std::size_t bytes,
                                       Granularity which) {
  return align_up(std::max<std::size_t>(bytes, 1), granularity(driver, properties, which));
}

std::size_t PhysicalMemory::size() const noexcept {
  return state_ ? state_->size : 0;
}

const MemoryProperties& PhysicalMemory::properties() const {
  return owned(state_, "PhysicalMemory::properties", "memory").properties;
}

const Driver& PhysicalMemory::driver() const {
  return owned(state_, "PhysicalMemory::driver", "memory").driver;
}

unsigned long long PhysicalMemory::handle() const noexcept {
  return state_ ? state_->handle : 0;
}

void PhysicalMemory::release() {
  if (!state_) raise(owns_nothing("PhysicalMemory::release", "memory"));
  call<EntryPoint::cuMemRelease>(state_->driver.interface(), state_->handle);
  state_->owned = false;
  state_.reset();
}

}  // namespace cuvmm
