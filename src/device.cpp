#include "cuvmm/device.hpp"

#include <cstring>

#include "cuvmm/physical_memory.hpp"
#include "driver/call.hpp"

namespace cuvmm {

using namespace abi;
using driver::call;
using driver::EntryPoint;

std::string Device::name() const {
  char name[256] = {};
  call<EntryPoint::cuDeviceGetName>(driver_.interface(), name, static_cast<int>(sizeof name), handle_);
  return name;
}

std::size_t Device::total_memory() const {
  std::size_t bytes = 0;
  call<EntryPoint::cuDeviceTotalMem>(driver_.interface(), &bytes, handle_);
  return bytes;
}

std::array<std::byte, 16> Device::uuid() const {
  CUuuid uuid{};
  call<EntryPoint::cuDeviceGetUuid>(driver_.interface(), &uuid, handle_);
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, sizeof uuid.bytes);
  return bytes;
}

std::string Device::pci_bus_id() const {
  char id[32] = {};
  call<EntryPoint::cuDeviceGetPCIBusId>(driver_.interface(), id, static_cast<int>(sizeof id), handle_);
  return id;
}

int Device::attribute(int attribute) const {
  int value = 0;
  call<EntryPoint::cuDeviceGetAttribute>(driver_.interface(), &value, static_cast<CUdevice_attribute>(attribute),
                                         handle_);
  return value;
}

bool Device::announces(int attribute) const {
  int value = 0;
  const Result<void> result = driver::try_call<EntryPoint::cuDeviceGetAttribute>(
      driver_.interface(), &value, static_cast<CUdevice_attribute>(attribute), handle_);
  if (result) return value != 0;
  if (result.failure().code == CUDA_ERROR_INVALID_VALUE) return false;  // the driver is older than the attribute
  raise(result.failure());
}

bool Device::supports_virtual_memory_management() const {
  return announces(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

bool Device::supports_handle_type(HandleType type) const {
  switch (type) {
    case HandleType::posix_file_descriptor:
      return announces(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    case HandleType::win32:
      return announces(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED);
    case HandleType::win32_kmt:
      return announces(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED);
    case HandleType::fabric:
      return announces(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  }
  return false;
}

bool Device::supports_compression() const {
  return announces(CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED);
}

bool Device::supports_gpu_direct_rdma() const {
  return announces(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
}

bool Device::supports_host_memory() const {
  return announces(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

bool Device::supports_host_numa_memory() const {
  return announces(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

bool Device::supports_multicast() const {
  return driver_.interface().has(EntryPoint::cuMulticastCreate) && announces(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
}

int Device::host_numa_node() const {
  return attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
}

std::size_t Device::granularity(Granularity which, const MemoryProperties& properties) const {
  MemoryProperties here = properties;
  here.location = location();
  return PhysicalMemory::granularity(driver_, here, which);
}

bool Device::can_access_peer(const Device& peer) const {
  int can_access = 0;
  call<EntryPoint::cuDeviceCanAccessPeer>(driver_.interface(), &can_access, handle_, peer.handle_);
  return can_access != 0;
}

}  // namespace cuvmm
