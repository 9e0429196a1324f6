// Devices and what they can do.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

// Copies as much as fits and ends it with a zero, as the driver does: a negative length becomes a huge one.
void copy_text(char* target, int length, const std::string& text) {
  const std::size_t count = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(target, text.data(), count);
  target[count] = '\0';
}

// Emulated devices sit on consecutive PCI device numbers, as in the recorded machine.
int pci_device_id(int base, CUdevice device) {
  return base + device;
}

}  // namespace

Answer EmulatedDriver::check_device(CUdevice device) const {
  const int count = machine_.configuration().devices;
  if (device < 0 || device >= count)
    return {CUDA_ERROR_INVALID_DEVICE, Rule::device_exists, fmt::format("device {} of {}", device, count)};
  return {};
}

CUresult EmulatedDriver::cuDeviceGetCount(int* count) {
  return initialised([&]() -> Answer {
    if (count == nullptr) return null_output("count");
    *count = machine_.configuration().devices;
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGet(CUdevice* device, int ordinal) {
  return initialised([&]() -> Answer {
    if (device == nullptr) return null_output("device");
    if (Answer refused = check_device(ordinal); !refused.ok()) return refused;
    *device = ordinal;
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetName(char* name, int length, CUdevice device) {
  return initialised([&]() -> Answer {
    if (name == nullptr) return null_output("name");
    if (length == 0) return {CUDA_ERROR_INVALID_VALUE, Rule::text_room, "len is 0"};
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (length < 0)
      if (Answer refused = machine_.tolerated(Rule::text_room, fmt::format("len is {}", length)); !refused.ok())
        return refused;
    copy_text(name, length, machine_.configuration().profile.device_name);
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return initialised([&]() -> Answer {
    if (bytes == nullptr) return null_output("bytes");
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    *bytes = machine_.configuration().memory_per_device();
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return initialised([&]() -> Answer {
    if (value == nullptr) return null_output("pi");
    const auto& attributes = machine_.configuration().profile.attributes;
    auto found = attributes.find(attribute);
    if (found == attributes.end())
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("attribute {} does not exist", static_cast<int>(attribute))};
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    *value = found->second;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) *value = pci_device_id(found->second, device);
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID) *value = found->second + device;
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return initialised([&]() -> Answer {
    if (uuid == nullptr) return null_output("uuid");
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    std::memcpy(uuid->bytes, "cuvmm-emulated", 14);
    uuid->bytes[14] = static_cast<char>(machine_.configuration().node);
    uuid->bytes[15] = static_cast<char>(device);
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetPCIBusId(char* bus_id, int length, CUdevice device) {
  return initialised([&]() -> Answer {
    if (bus_id == nullptr) return null_output("pciBusId");
    constexpr int shortest = 13;  // "0000:00:00.0" and its end
    if (length < shortest)
      return {CUDA_ERROR_INVALID_VALUE, Rule::text_room, fmt::format("len is {}, needed are {}", length, shortest)};
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    const int first = machine_.configuration().profile.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    copy_text(bus_id, length, fmt::format("0000:00:{:02X}.0", pci_device_id(first, device)));
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetByPCIBusId(CUdevice* device, const char* bus_id) {
  return initialised([&]() -> Answer {
    if (device == nullptr || bus_id == nullptr) return null_output("dev and pciBusId");
    // Domain and function may be left out; letters of any case.
    unsigned parts[4] = {0, 0, 0, 0};
    const bool whole = std::sscanf(bus_id, "%x:%x:%x.%x", &parts[0], &parts[1], &parts[2], &parts[3]) >= 3;
    const bool without_domain = !whole && std::sscanf(bus_id, "%x:%x.%x", &parts[1], &parts[2], &parts[3]) >= 2;
    if (!whole && !without_domain)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("\"{}\" is no place of a PCI device", bus_id)};
    const int first = machine_.configuration().profile.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    for (int ordinal = 0; ordinal < machine_.configuration().devices; ++ordinal) {
      const auto place = static_cast<unsigned>(pci_device_id(first, ordinal));
      if (parts[0] != 0 || parts[1] != 0 || parts[2] != place || parts[3] != 0) continue;
      *device = ordinal;
      return {};
    }
    return {CUDA_ERROR_INVALID_DEVICE, Rule::device_exists, fmt::format("no device is at {}", bus_id)};
  });
}

CUresult EmulatedDriver::cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  return initialised([&]() -> Answer {
    if (can_access == nullptr) return null_output("canAccessPeer");
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (Answer refused = check_device(peer); !refused.ok()) return refused;
    *can_access = device != peer && machine_.configuration().can_access_peer(device, peer) ? 1 : 0;
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                                 CUdevice destination) {
  return initialised([&]() -> Answer {
    if (value == nullptr) return null_output("value");
    if (Answer refused = check_device(source); !refused.ok()) return refused;
    if (Answer refused = check_device(destination); !refused.ok()) return refused;
    if (source == destination) return {CUDA_ERROR_INVALID_DEVICE, Rule::device_exists, "a device is not its own peer"};
    const bool reachable = machine_.configuration().can_access_peer(source, destination);
    switch (static_cast<int>(attribute)) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED + 1:  // only partial native atomics
        *value = 0;
        return {};
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = reachable ? 1 : 0;
        return {};
      default:
        return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
                fmt::format("attribute {} does not exist", static_cast<int>(attribute))};
    }
  });
}

}  // namespace cuvmm::emulator::api
