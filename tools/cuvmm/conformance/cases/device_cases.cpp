// Devices: ordinals, names, attributes; and cuInit itself.
#include <array>
#include <cstring>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

void add(Table& table, const std::string& id, CaseFunction function) {
  table.add(id, std::move(function), needs_initialized);
}

void add_initialisation(Table& table) {
  table.add(
      "init.flags_1", [](Environment& cuda) { return cuda->cuInit(1); }, needs_loaded);
  table.add(
      "init.twice",
      [](Environment& cuda) {
        return commas({cuda->cuInit(0), cuda->cuInit(0)});
      },
      needs_loaded);
  add(table, "init.then_flags_1", [](Environment& cuda) { return cuda->cuInit(1); });
  add(table, "init.version_null", [](Environment& cuda) { return cuda->cuDriverGetVersion(nullptr); });
  add(table, "init.current_context", [](Environment& cuda) {
    CUcontext context = nullptr;
    const CUresult result = cuda->cuCtxGetCurrent(&context);
    return slashes({result, context == nullptr ? "null" : "set"});
  });
}

void add_ordinals(Table& table) {
  for (const int ordinal : {-1, 0, 99})
    add(table, "device.get_" + std::to_string(ordinal), [ordinal](Environment& cuda) {
      CUdevice device = -7;
      const CUresult result = cuda->cuDeviceGet(&device, ordinal);
      return slashes({result, device});
    });
  add(table, "device.get_count", [](Environment& cuda) {
    CUdevice device = -7;
    return cuda->cuDeviceGet(&device, cuda.device_count());
  });
  add(table, "device.get_null", [](Environment& cuda) { return cuda->cuDeviceGet(nullptr, 0); });
  add(table, "device.count_null", [](Environment& cuda) { return cuda->cuDeviceGetCount(nullptr); });
}

// The result, how long the text is that was written, and whether the byte after the buffer was left alone.
std::string text_written(CUresult result, const std::array<char, 64>& buffer, int length) {
  if (result != CUDA_SUCCESS) return result_name(result);
  return slashes({result, strnlen(buffer.data(), buffer.size()),
                  buffer[static_cast<std::size_t>(length)] == '#' ? "within" : "beyond"});
}

void add_texts(Table& table) {
  for (const int length : {-1, 0, 1, 5})
    add(table, "device.name_length_" + std::to_string(length), [length](Environment& cuda) {
      std::array<char, 64> buffer{};
      buffer.fill('#');
      const CUresult result = cuda->cuDeviceGetName(buffer.data(), length, 0);
      return text_written(result, buffer, length < 0 ? 0 : length);
    });
  add(table, "device.name_null", [](Environment& cuda) { return cuda->cuDeviceGetName(nullptr, 10, 0); });
  for (const int length : {-1, 0, 1, 5, 12, 13, 20})
    add(table, "device.pci_bus_id_length_" + std::to_string(length), [length](Environment& cuda) {
      std::array<char, 64> buffer{};
      buffer.fill('#');
      const CUresult result = cuda->cuDeviceGetPCIBusId(buffer.data(), length, 0);
      return text_written(result, buffer, length < 0 ? 0 : length);
    });
  add(table, "device.pci_bus_id_null", [](Environment& cuda) { return cuda->cuDeviceGetPCIBusId(nullptr, 20, 0); });
  add(table, "device.uuid_null", [](Environment& cuda) { return cuda->cuDeviceGetUuid(nullptr, 0); });
  add(table, "device.total_null", [](Environment& cuda) { return cuda->cuDeviceTotalMem(nullptr, 0); });
}

void add_bad_devices(Table& table) {
  for (const int device : {-1, 99}) {
    const std::string suffix = "_of_" + std::to_string(device);
    add(table, "device.name" + suffix, [device](Environment& cuda) {
      std::array<char, 64> buffer{};
      return cuda->cuDeviceGetName(buffer.data(), 64, device);
    });
    add(table, "device.total" + suffix, [device](Environment& cuda) {
      std::size_t bytes = 0;
      return cuda->cuDeviceTotalMem(&bytes, device);
    });
    add(table, "device.uuid" + suffix, [device](Environment& cuda) {
      CUuuid uuid{};
      return cuda->cuDeviceGetUuid(&uuid, device);
    });
    add(table, "device.pci_bus_id" + suffix, [device](Environment& cuda) {
      std::array<char, 64> buffer{};
      return cuda->cuDeviceGetPCIBusId(buffer.data(), 64, device);
    });
    add(table, "device.attribute" + suffix, [device](Environment& cuda) {
      int value = 0;
      return cuda->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    });
  }
}

void add_attributes(Table& table) {
  for (const int attribute : {-1, 0, 148, 149, 1000})
    add(table, "device.attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      int value = -7;
      const CUresult result = cuda->cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0);
      return slashes({result, value});
    });
  add(table, "device.attribute_null",
      [](Environment& cuda) { return cuda->cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0); });
  const std::pair<const char*, CUdevice_attribute> features[] = {
      {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {"posix_descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      {"fabric", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
      {"compression", CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED},
      {"rdma_with_vmm", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
      {"host_numa_vmm", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {"host_vmm", CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {"unified_addressing", CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
      {"registered_host_pointer", CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
      {"pageable_memory_access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
      {"read_only_registration", CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED},
      {"wait_value_nor", CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR},
      {"flush_remote_writes", CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
      {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
  };
  for (const auto& [name, attribute] : features)
    add(table, std::string{"device.feature_"} + name, [attribute = attribute](Environment& cuda) {
      int value = -7;
      const CUresult result = cuda->cuDeviceGetAttribute(&value, attribute, 0);
      return slashes({result, value});
    });
}

void add_peers(Table& table) {
  const std::pair<int, int> pairs[] = {{0, 0}, {0, 99}, {99, 0}, {-1, 0}};
  for (const auto& [first, second] : pairs)
    add(table, "device.peer_" + std::to_string(first) + "_" + std::to_string(second),
        [first = first, second = second](Environment& cuda) {
          int can = -7;
          const CUresult result = cuda->cuDeviceCanAccessPeer(&can, first, second);
          return slashes({result, can});
        });
  add(table, "device.peer_null", [](Environment& cuda) { return cuda->cuDeviceCanAccessPeer(nullptr, 0, 0); });
  for (const int attribute : {0, 1, 2, 3, 4, 9})
    add(table, "device.p2p_self_" + std::to_string(attribute), [attribute](Environment& cuda) {
      int value = -7;
      const CUresult result =
          cuda->cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(attribute), 0, 0);
      return slashes({result, value});
    });
  add(table, "device.p2p_99", [](Environment& cuda) {
    int value = -7;
    return cuda->cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99);
  });
}

}  // namespace

void add_device_cases(Table& table) {
  add_initialisation(table);
  add_ordinals(table);
  add_texts(table);
  add_bad_devices(table);
  add_attributes(table);
  add_peers(table);
}

}  // namespace cuvmm::conformance
