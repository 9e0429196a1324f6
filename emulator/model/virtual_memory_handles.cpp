// Physical memory and the handles to it.
#include <fmt/format.h>

#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {
namespace {

// Handles are addresses on a real driver; ours look like addresses that are never mapped, and are never used twice.
constexpr CUmemGenericAllocationHandle first_handle = 0x0ca1'0000'0000;
constexpr CUmemGenericAllocationHandle handle_step = 0x40;

bool on_host(const CUmemAllocationProp& properties) {
  return properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

// What the driver keeps of properties that it accepted: what it does not know is dropped, and HOST memory is that of
// NUMA node 0.
CUmemAllocationProp normalised(CUmemAllocationProp properties) {
  constexpr int known_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  properties.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(properties.requestedHandleTypes & known_types);
  if (properties.location.type == CU_MEM_LOCATION_TYPE_HOST) properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  properties.allocFlags.gpuDirectRDMACapable = properties.allocFlags.gpuDirectRDMACapable != 0 ? 1 : 0;
  properties.allocFlags.usage &= 1;
  return properties;
}

Place place_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Place::on_device(location.id) : Place::on_host();
}

}  // namespace

VirtualMemory::VirtualMemory(const Configuration& configuration, PhysicalStore& store, AddressSpace& addresses,
                             HostViewListener& host_view, Warning warn)
    : configuration_(configuration),
      store_(store),
      addresses_(addresses),
      host_view_(host_view),
      warn_(std::move(warn)),
      next_handle_(first_handle) {
  failures_left_.reserve(configuration_.multicast_failures.size());
  for (const MulticastFailure& failure : configuration_.multicast_failures)
    failures_left_.push_back(failure.times == 0 ? -1 : failure.times);
}

Answer VirtualMemory::granularity(std::size_t* granularity, const CUmemAllocationProp* properties,
                                  CUmemAllocationGranularity_flags option) const {
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::vmm_supported, "the device has no virtual memory management"};
  if (granularity == nullptr || properties == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "granularity and properties must not be null"};
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return {CUDA_ERROR_INVALID_VALUE, Rule::granularity_option, fmt::format("option is {}", static_cast<int>(option))};
  *granularity = configuration_.profile.granularity;
  return {};
}

Answer VirtualMemory::check_handle_types(const CUmemAllocationProp& properties) const {
  const int types = properties.requestedHandleTypes;
  const auto refused = [&](CUresult code, Rule rule, std::string_view why) {
    return Answer(code, rule, fmt::format("requestedHandleTypes is {:#x}: {}", types, why));
  };
  if ((types & (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)) != 0)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::create_handle_type, "Win32 handles do not exist here");
  constexpr int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if (properties.location.type == CU_MEM_LOCATION_TYPE_HOST && (types & known) != 0)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::create_handle_type, "HOST memory cannot be shared");
  if ((types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 &&
      configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0)
    return refused(CUDA_ERROR_NOT_SUPPORTED, Rule::create_handle_type, "this machine has no descriptors");
  if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) == 0)
      return refused(CUDA_ERROR_NOT_SUPPORTED, Rule::create_handle_type, "this machine has no fabric handles");
    if (configuration_.profile.behaviour.fabric_creation_out_of_memory)
      return refused(CUDA_ERROR_OUT_OF_MEMORY, Rule::rights_on_behaviour, "fabric_creation_out_of_memory is on");
  }
  return {};
}

Answer VirtualMemory::check_properties(const CUmemAllocationProp& properties) const {
  const auto refused = [](std::string what) {
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::create_properties, std::move(what));
  };
  const CUmemLocation& location = properties.location;
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (location.id < 0 || location.id >= configuration_.devices)
        return {CUDA_ERROR_INVALID_DEVICE, Rule::create_location,
                fmt::format("device {} of {}", location.id, configuration_.devices)};
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
      if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
        return {CUDA_ERROR_NOT_SUPPORTED, Rule::create_location, "this machine has no host memory of this kind"};
      break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
        return {CUDA_ERROR_NOT_SUPPORTED, Rule::create_location, "this machine has no host NUMA memory of this kind"};
      if (location.id < 0 || location.id >= configuration_.profile.host_numa_nodes)
        return {CUDA_ERROR_INVALID_VALUE, Rule::create_location,
                fmt::format("host NUMA node {} of {}", location.id, configuration_.profile.host_numa_nodes)};
      break;
    default:
      return {CUDA_ERROR_INVALID_VALUE, Rule::create_location,
              fmt::format("location type is {}", static_cast<int>(location.type))};
  }
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return refused(fmt::format("type is {}, not CU_MEM_ALLOCATION_TYPE_PINNED", static_cast<int>(properties.type)));
  for (const unsigned char byte : properties.allocFlags.reserved)
    if (byte != 0) return refused("allocFlags.reserved is not zero");
  if (properties.allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC)
    return refused(fmt::format("compressionType is {}", properties.allocFlags.compressionType));
  if (properties.allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE && on_host(properties))
    return refused("host memory cannot be compressed");
  if (properties.win32HandleMetaData != nullptr) return refused("win32HandleMetaData is not null");
  return check_handle_types(properties);
}

Answer VirtualMemory::create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::vmm_supported, "the device has no virtual memory management"};
  if (handle == nullptr || properties == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "handle and properties must not be null"};
  if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
  if (bytes == 0 || !aligned(bytes))
    return {CUDA_ERROR_INVALID_VALUE, Rule::create_size,
            fmt::format("size is {} bytes, granularity {}", bytes, configuration_.profile.granularity)};
  if (Answer answer = check_properties(*properties); !answer.ok()) return answer;

  CUmemAllocationProp granted = normalised(*properties);
  if (configuration_.profile.behaviour.withhold_compression ||
      configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED) == 0)
    granted.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
  if (configuration_.profile.behaviour.withhold_rdma ||
      configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 0)
    granted.allocFlags.gpuDirectRDMACapable = 0;
  if (granted.allocFlags.gpuDirectRDMACapable != 0)  // of both wishes, this one is granted
    granted.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;

  const Place place = place_of(properties->location);
  const auto too_much = [&] {
    return Answer(
        CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity,
        fmt::format("{} bytes asked, {} free of {} {}", bytes, store_.free(place), store_.total(place),
                    place.is_host() ? std::string("on the host") : fmt::format("on device {}", place.device)));
  };
  if ((properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !store_.has_imex_channel()) {
    if (bytes > store_.free(place)) return too_much();  // which the driver finds first
    return {CUDA_ERROR_NOT_PERMITTED, Rule::create_fabric_permission,
            fmt::format("requestedHandleTypes is {:#x}: there is no IMEX channel that this process may open",
                        static_cast<int>(properties->requestedHandleTypes))};
  }
  Allocation* allocation = store_.create(place, bytes, granted);
  if (allocation == nullptr) return too_much();
  try {
    *handle = add_handle(*allocation, false).value;
  } catch (...) {
    store_.drop_reference(*allocation);
    throw;
  }
  store_.drop_reference(*allocation);  // the handle has its own
  return {};
}

Handle& VirtualMemory::add_handle(Allocation& allocation, bool imported) {
  Handle& handle = handles_[next_handle_];
  handle = Handle{next_handle_, &allocation, 1, 0, imported};
  next_handle_ += handle_step;
  store_.add_reference(allocation);
  return handle;
}

void VirtualMemory::forget_if_unused(Handle& handle) noexcept {
  if (handle.references > 0 || handle.mappings > 0) return;
  Allocation& allocation = *handle.allocation;
  handles_.erase(handle.value);
  store_.drop_reference(allocation);
}

Handle* VirtualMemory::find_handle(CUmemGenericAllocationHandle value) const {
  auto found = handles_.find(value);
  if (found == handles_.end() || found->second.references == 0) return nullptr;
  return const_cast<Handle*>(&found->second);
}

Answer VirtualMemory::dead_handle(CUmemGenericAllocationHandle value) const {
  Answer answer(CUDA_ERROR_INVALID_VALUE, Rule::handle_live,
                was_handle(value) ? fmt::format("handle {:#x} was released", value)
                                  : fmt::format("{:#x} never was a handle", value));
  answer.crashes = value != 0;
  if (answer.crashes) answer.detail += "; the real driver crashes the process here";
  return answer;
}

bool VirtualMemory::was_handle(CUmemGenericAllocationHandle value) const {
  return value < next_handle_ && value >= first_handle && (value - first_handle) % handle_step == 0;
}

Answer VirtualMemory::release(CUmemGenericAllocationHandle value) {
  Handle* handle = find_handle(value);
  if (handle == nullptr) {
    if (!was_handle(value)) return dead_handle(value);
    return {CUDA_ERROR_INVALID_VALUE, Rule::handle_live,  // which a real driver notices, too
            fmt::format("handle {:#x} was released already, as often as it was made and retained", value)};
  }
  if (handle->references == 1)
    if (Answer answer = check_not_last_of_bound(*handle, 0); !answer.ok()) return answer;
  --handle->references;
  forget_if_unused(*handle);
  return {};
}

Answer VirtualMemory::properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle value) const {
  if (properties == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "properties must not be null"};
  const Handle* handle = find_handle(value);
  if (handle == nullptr) return dead_handle(value);
  if (handle->allocation->is_multicast())
    return {CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle, fmt::format("{:#x} is a multicast object's", value)};
  *properties = handle->allocation->properties;
  if (handle->imported) {
    properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    properties->allocFlags.gpuDirectRDMACapable = 0;
  }
  return {};
}

// NOLINTNEXTLINE(readability-make-member-function-const)
Answer VirtualMemory::retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address) {
  if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "handle must not be null"};
  const Mapping* mapping = find_mapping(address);
  if (mapping == nullptr || find_reservation(address) == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::retain_mapped,
            fmt::format("{:#x} is not {}", address, mapping == nullptr ? "mapped" : "reserved")};
  ++mapping->handle->references;
  *handle = mapping->handle->value;
  return {};
}

Answer VirtualMemory::check_export(CUmemGenericAllocationHandle value, CUmemAllocationHandleType type,
                                   unsigned long long flags, Allocation** allocation) const {
  const Handle* handle = find_handle(value);
  if (handle == nullptr) return dead_handle(value);
  if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
  if (handle->imported)
    return {CUDA_ERROR_INVALID_VALUE, Rule::export_imported, fmt::format("handle {:#x} was imported", value)};
  const int requested = handle->allocation->properties.requestedHandleTypes;
  const bool single = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC;
  if (!single || (requested & type) == 0)
    return {
        CUDA_ERROR_INVALID_VALUE, Rule::export_requested,
        fmt::format("type {:#x} of memory created with requestedHandleTypes {:#x}", static_cast<int>(type), requested)};
  *allocation = handle->allocation;
  return {};
}

CUmemGenericAllocationHandle VirtualMemory::import(Allocation& allocation) {
  return add_handle(allocation, true).value;
}

}  // namespace cuvmm::emulator::model
